/**
 * Parts of every screen: tokens, plain tables, lines of an arithmetic, and bars. Blanks of a token arrive as
 * visible marks; a sign of a line is always part of a text.
 */

import { h, svg, visible } from "./dom.js";
import { numberLink } from "./link.js";
import { showMagnitude, withMinus } from "./number.js";

const MOST_CHARACTERS = 12;

/** Returns at most 12 characters of a token's text. */
export function shorten(text, most = MOST_CHARACTERS) {
  const characters = Array.from(visible(text));
  return characters.length > most ? `${characters.slice(0, most - 1).join("")}…` : characters.join("");
}

/** Makes a token: its leading blank is faint, and the whole text is its title where it is cut. */
export function token(label, most = MOST_CHARACTERS) {
  const whole = visible(label);
  const text = shorten(label, most);
  const blank = text.startsWith("·") && text.length > 1 ? "·" : "";
  return h(
    "bdi",
    { class: "token", title: text === whole ? null : whole },
    blank && h("span.blank", blank),
    text.slice(blank.length),
  );
}

/** Makes a table; what is not a cell becomes one, and an empty heading is a plain cell. */
export function plainTable(name, headings, rows, foot = []) {
  const cell = (part) => (part instanceof HTMLTableCellElement ? part : h("td", part));
  const row = (parts) => h("tr", parts.map(cell));
  const head = headings.map((text) => (text ? h("th", { scope: "col" }, text) : ""));
  return h(
    "table",
    { class: `${name} rows` },
    headings.length > 0 && h("thead", row(head)),
    h("tbody", rows.map(row)),
    foot.length > 0 && h("tfoot", row(foot)),
  );
}

/** Makes the heading of a row. */
export function rowHeading(...children) {
  return h("th", { scope: "row" }, ...children);
}

/** Makes the nodes of a line; a number after "^" stands raised, without the parentheses around its sign. */
export function pieces(line) {
  const rest = [...line];
  const nodes = [];
  while (rest.length) {
    const piece = rest.shift();
    const isText = typeof piece === "string";
    const found = isText && /^(.*)\^(\(-|-?)$/s.exec(piece);
    const isAlone = found && (found[2] !== "(-" || rest[1]?.startsWith?.(")"));
    if (!isAlone) nodes.push(isText ? withMinus(piece) : pieceNumber(piece));
    else {
      nodes.push(withMinus(found[1]), h("sup", withMinus(found[2].replace("(", "")), pieceNumber(rest.shift())));
      if (found[2] === "(-") rest[0] = rest[0].slice(1);
    }
  }
  return nodes;
}

function pieceNumber(piece) {
  const text = showMagnitude(piece.value, "line");
  if (piece.at) return numberLink(piece.at, piece.value, "line", text);
  return h("span", { class: piece.kind ? `number ${piece.kind}` : "number" }, text);
}

const WIDTH = 96;
const HEIGHT = 11;

/**
 * Makes one bar per number, all on one scale; null where a number is not finite. The length is the magnitude,
 * to the left of the common zero and hatched where the number is negative.
 */
export function bars(numbers) {
  const finite = numbers.map((x) => (Number.isFinite(x) ? x : 0));
  const least = Math.min(0, ...finite);
  const span = Math.max(0, ...finite) - least;
  return finite.map((x) => (span > 0 && Number.isFinite(span) ? bar(x, least, span) : null));
}

function bar(x, least, span) {
  const zero = (-least / span) * WIDTH;
  const length = Math.max((Math.abs(x) / span) * WIDTH, 0.5);
  const left = x < 0 ? Math.max(zero - length, 0) : Math.min(zero, WIDTH - length);
  const box = { x: left, y: 0.5, width: length, height: HEIGHT - 1 };
  return svg(
    "svg",
    { class: "bar", width: WIDTH, height: HEIGHT, viewBox: `0 0 ${WIDTH} ${HEIGHT}`, "aria-hidden": "true" },
    least < 0 && svg("line", { class: "zero", x1: zero, x2: zero, y1: 0, y2: HEIGHT }),
    svg("rect", { ...box, class: x < 0 ? "negative" : "positive" }),
  );
}
