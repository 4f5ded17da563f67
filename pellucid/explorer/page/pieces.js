/** A line of pieces: texts, and numbers that open. A sign is always part of a text. */

import { h } from "./dom.js";
import { numberLink } from "./link.js";
import { showMagnitude, withMinus } from "./number.js";

/** Makes the nodes of a line; a number after "^" stands raised. */
export function pieces(line) {
  const nodes = [];
  let isRaised = false;
  let sign = "";
  for (const piece of line) {
    if (typeof piece === "string") {
      const found = /^(.*)\^(-?)$/s.exec(piece);
      isRaised = found !== null;
      sign = found ? found[2] : "";
      nodes.push(withMinus(found ? found[1] : piece));
    } else {
      const node = pieceNumber(piece);
      nodes.push(isRaised ? h("sup", withMinus(sign), node) : node);
      isRaised = false;
    }
  }
  return nodes;
}

function pieceNumber(piece) {
  const text = showMagnitude(piece.value, "line");
  if (piece.at) return numberLink(piece.at, piece.value, "line", text);
  return h("span", { class: piece.kind ? `number ${piece.kind}` : "number" }, text);
}
