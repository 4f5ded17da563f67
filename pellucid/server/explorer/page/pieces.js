/** A line of pieces: texts, and numbers that open. A sign is always part of a text. */

import { h } from "./dom.js";
import { numberLink } from "./link.js";
import { showMagnitude, withMinus } from "./number.js";

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
