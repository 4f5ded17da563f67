/** Why: one number with its formula, its numbers, where it stands, what it reads, and where each of them came from. */

import { bars } from "./chart.js";
import { h } from "./dom.js";
import { valueWindow } from "./grid.js";
import { cellLink, hashOf, numberLink } from "./link.js";
import { formula } from "./math.js";
import { show, showCount, write } from "./number.js";
import { pieces } from "./pieces.js";
import { token, visible } from "./token.js";

const WASHES = ["a", "b", "c"];
const MOST_CRUMBS = 6;
const PHASES = { fwd: "forward", bwd: "backward", upd: "update" };

/** The shown cell, for the keys. */
let current = null;
let currentPage = null;

export const whyScreen = {
  id: "why",
  title: "Why",
  here: () => current?.at,
  actions: {
    step: (direction) => openCell(direction > 0 ? current?.following : current?.previous),
    twin: (phase) => openCell((current?.role === "grad") === (phase === "forward") ? current?.twin : null),
    layer: (direction) => openCell(neighborLayer(direction)),
    head: (direction) => openCell(neighborPlace("h", direction)),
    token: (direction) => openCell(neighborPlace("t", direction)),
  },

  async show(main, [address, ...options], page) {
    currentPage = page;
    const at = address || (await firstCell(page));
    if (!at.includes("[") && (await isValue(at, page))) return showValue(main, at, page);
    const cell = await page.ask("cell", { at, flatten: options.includes("flatten") || null });
    current = cell;
    const stands = standsSection(cell, page);
    const reads = readsSection(cell, page);
    main.append(
      crumbs(page.walk(cell.at)),
      h(
        "div",
        { class: "columns" },
        h("div", { class: "left" }, title(cell), formulaSection(cell), numbersSection(cell), operandsSection(cell), waysOn(cell, page)),
        h("div", { class: "right" }, stands.section, reads.section),
      ),
    );
    page.announce(spoken(cell));
    return { settled: Promise.all([stands.settled, reads.settled]) };
  },
};

/** Returns the address of the likeliest next token, where a reader begins. */
async function firstCell(page) {
  const { tokens } = await page.ask("next");
  return tokens[0].at;
}

async function isValue(name, page) {
  const { values } = await page.names();
  return values.some(([known, shape]) => known === name && shape.length > 0);
}

/** Shows a whole value: its first window. */
async function showValue(main, name, page) {
  current = null;
  const [window, { meaning, shape }] = await Promise.all([valueWindow(name, {}, page), page.ask("value", { at: name })]);
  const size = shape.map(showCount).join(" × ");
  main.append(h("h1", null, visible(meaning)), h("p", { class: "address" }, `${visible(name)} · ${size}`), window);
}

function openCell(at) {
  if (at) currentPage.go(hashOf("why", at));
}

function neighborLayer(direction) {
  const found = /\bblocks\.(\d+)\./.exec(current?.at ?? "");
  const layer = found ? Number(found[1]) + direction : -1;
  if (layer < 0 || layer >= currentPage.session.layers) return null;
  return current.at.replace(found[0], `blocks.${layer}.`);
}

function neighborPlace(axis, direction) {
  const found = current?.places.find((place) => place.axis === axis);
  const i = found ? found.i + direction : -1;
  if (i < 0 || i >= found?.size) return null;
  return current.at.replace(new RegExp(`([[,]${axis}=)\\d+`), `$1${i}`);
}

function spoken(cell) {
  const places = cell.places.map(({ axis, i, label, about }) => `${about ?? axis} ${label ? visible(label) : i}`);
  return [visible(cell.meaning ?? cell.name), ...places, show(cell.value, "line")].join(", ");
}

/* ---- left column ---- */

function crumbs(walk) {
  const shown = walk.slice(-MOST_CRUMBS);
  return h(
    "nav",
    { class: "crumbs", "aria-label": "Numbers on the way here" },
    h(
      "ol",
      null,
      walk.length > shown.length && h("li", { class: "faint" }, `${walk.length - shown.length} before`),
      shown.map((at, i) =>
        h("li", null, i < shown.length - 1 ? cellLink(at, visible(at)) : h("span", { "aria-current": "page" }, visible(at))),
      ),
    ),
  );
}

function title(cell) {
  const places = cell.places.filter(({ label }) => label !== null && label !== undefined);
  return h(
    "header",
    { class: "title" },
    h("h1", null, visible(cell.meaning ?? cell.name)),
    write(h("p", { class: "headline number", data: { at: cell.at } }), show(cell.value, "headline")),
    h(
      "p",
      { class: "address" },
      h("span", { class: "number" }, visible(cell.at)),
      places.map(({ axis, i, label }) => h("span", { class: "place" }, ` ${axis}=${i} `, token(label))),
    ),
    h("p", { class: "faint" }, stepText(cell)),
    cell.edited &&
      h("p", { class: "edited" }, "Set by you; its formula gives ", numberLink(cell.edited.at, cell.edited.value, "headline"), "."),
    cell.original !== null &&
      cell.original !== undefined &&
      !cell.edited &&
      h("p", { class: "edited" }, "Changed by the edit; it was ", h("span", { class: "number" }, show(cell.original, "headline")), "."),
  );
}

function stepText(cell) {
  const phase = PHASES[cell.phase] ?? cell.phase;
  if (cell.step) return `Step ${showCount(cell.step[0] + 1)} of ${showCount(cell.step[1])}, ${phase}: ${cell.op}`;
  return cell.role === "param" ? "A parameter: it was learned, not computed here" : "Given, not computed";
}

function section(heading, ...children) {
  return h("section", null, h("h2", null, heading), ...children);
}

function formulaSection(cell) {
  if (!cell.math && !cell.formula) return null;
  const drawn = cell.math ? formula(cell.math, cell.formula) : h("code", null, cell.formula);
  return section("Its formula", h("div", { class: "formula", tabindex: "0", role: "group", "aria-label": "formula" }, drawn));
}

function numbersSection(cell) {
  if (!cell.line) return null;
  return section(
    "With its numbers",
    h("p", { class: "line number" }, "= ", pieces(cell.line), " = ", h("strong", null, show(cell.value, "line"))),
    cell.note && h("p", { class: "faint" }, visible(cell.note)),
    cell.terms.length > 0 && termsTable(cell),
  );
}

function termsTable(cell) {
  const hasRest = cell.folded > 0;
  const drawn = bars([...cell.terms.map(({ value }) => value), ...(hasRest ? [cell.rest] : [])]);
  const number = (value) => h("td", { class: "number" }, show(value, "line"));
  return h(
    "div",
    { class: "scroll" },
    h(
      "table",
      { class: "terms" },
      h("caption", null, hasRest ? "The largest terms, and the sum of the rest" : "Its terms"),
      h(
        "tbody",
        null,
        cell.terms.map((term, i) =>
          h(
            "tr",
            null,
            h("th", { scope: "row" }, whereOf(term.where)),
            h("td", { class: "line number" }, pieces(term.line)),
            write(h("td", { class: "number" }), show(term.value, "line")),
            h("td", null, drawn[i]),
          ),
        ),
      ),
      h(
        "tfoot",
        null,
        hasRest &&
          h(
            "tr",
            null,
            h("th", { scope: "row", colspan: 2 }, `${showCount(cell.folded)} smaller term${cell.folded === 1 ? "" : "s"}`),
            number(cell.rest),
            h("td", null, drawn.at(-1)),
          ),
        cell.total !== null &&
          h("tr", { class: "sum" }, h("th", { scope: "row", colspan: 2 }, "sum"), number(cell.total), h("td")),
      ),
    ),
  );
}

function whereOf(where) {
  return where.map(([axis, i, label], k) => [
    k > 0 && ", ",
    axis === "name" ? visible(String(i)) : `${axis}=${i}`,
    label !== null && label !== undefined && [" ", token(label)],
  ]);
}

function operandsSection(cell) {
  if (!cell.operands.length) return null;
  const washes = washesOf(cell);
  return section(
    "Follow it back",
    h(
      "ul",
      { class: "operands" },
      cell.operands.map((operand, i) => {
        const places = (operand.places ?? []).filter(({ label }) => label !== null && label !== undefined);
        const others = operand.others ?? [];
        return h(
          "li",
          { class: washes[i] ?? null },
          h(
            operand.opens ? "a" : "div",
            { class: "operand", href: operand.opens ? hashOf("why", operand.at) : null, data: { at: operand.at } },
            h(
              "span",
              { class: "what" },
              h("span", { class: "meaning" }, visible(operand.meaning ?? operand.symbol ?? "")),
              h("span", { class: "address" }, visible(operand.at), places.map(({ label }) => [" ", token(label)])),
            ),
            write(h("span", { class: "number" }), show(operand.value, "line")),
          ),
          others.length > 0 &&
            h("p", { class: "others" }, "also ", others.map(({ at, value }, k) => [k > 0 && ", ", numberLink(at, value, "table")])),
        );
      }),
    ),
  );
}

/** Returns the wash of each operand that stands in a window of its own. */
function washesOf(cell) {
  const found = {};
  cell.reads.forEach(({ operand }, i) => operand !== null && operand !== undefined && (found[operand] ??= WASHES[i % 3]));
  return found;
}

function waysOn(cell, page) {
  const button = (text, at) => at && h("a", { class: "button", href: hashOf("why", at) }, text);
  const twin = cell.role === "grad" ? "its value" : "its gradient";
  const uses = h("div", { class: "uses" });
  return section(
    "Go on",
    h(
      "div",
      { class: "buttons" },
      button("previous step", cell.previous),
      button("next step", cell.following),
      button(twin, cell.twin),
      h("button", { type: "button", onclick: () => showUses(uses, cell, page) }, "what reads it"),
      cell.can_flatten && h("a", { class: "button", href: hashOf("why", cell.at, "flatten") }, "all writers of this channel"),
      cell.is_flattened && h("a", { class: "button", href: hashOf("why", cell.at) }, "the last addition alone"),
      h("button", { type: "button", onclick: (event) => copyAddress(cell, event.target, page) }, "copy address"),
    ),
    uses,
  );
}

async function showUses(element, cell, page) {
  try {
    const { readers } = await page.ask("uses", { name: cell.name, at: cell.at });
    element.replaceChildren(
      h("p", { class: "faint" }, readers.length ? `Read by ${readers.length} step${readers.length === 1 ? "" : "s"}` : "Nothing reads it."),
      h(
        "ul",
        { class: "readers" },
        readers.map(({ name, op, meaning, at }) =>
          h("li", null, cellLink(at, visible(name)), h("span", { class: "faint" }, ` ${visible(meaning ?? op ?? "")}`)),
        ),
      ),
    );
    page.announce(`read by ${readers.length} steps`);
  } catch (error) {
    element.replaceChildren(page.fail(error, () => showUses(element, cell, page), cell.at));
  }
}

async function copyAddress(cell, element, page) {
  try {
    await navigator.clipboard.writeText(cell.at);
    page.announce(`copied ${cell.at}`);
    element.textContent = "copied";
  } catch {
    document.getSelection().selectAllChildren(document.querySelector(".title .address .number"));
    page.announce("the address is selected");
  }
}

/* ---- right column ---- */

function standsSection(cell, page) {
  const place = h("div", { class: "place-for-window" });
  const options = { focus: cell.stands.focus };
  return {
    section: section("Where it stands", place),
    settled: fill(place, cell.stands.window, options, page),
  };
}

function readsSection(cell, page) {
  if (!cell.reads.length) return { section: null, settled: null };
  const places = cell.reads.map(() => h("div", { class: "place-for-window" }));
  const settled = cell.reads.map(({ window, focus, marks }, i) =>
    fill(places[i], window, { focus, marks, wash: WASHES[i % 3] }, page),
  );
  return { section: section("What it reads", places), settled: Promise.all(settled) };
}

async function fill(place, window, options, page) {
  try {
    place.replaceChildren(await valueWindow(window, options, page));
  } catch (error) {
    place.replaceChildren(page.fail(error, () => fill(place, window, options, page), window));
  }
}
