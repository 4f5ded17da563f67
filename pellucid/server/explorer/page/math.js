/** Formulas: nested lists ["mfrac", {}, …] become MathML elements; only known elements and attributes do. */

import { mathml } from "./dom.js";

const ELEMENTS = new Set(
  (
    "math mrow mi mo mn mtext mspace msub msup msubsup munder mover munderover mfrac msqrt mroot " +
    "mstyle mpadded mtable mtr mtd"
  ).split(" "),
);
const ATTRIBUTES = new Set(
  (
    "displaystyle scriptlevel mathvariant stretchy fence separator form largeop movablelimits " +
    "lspace rspace width linethickness accent"
  ).split(" "),
);

/** Makes a formula; `text` is its reading. */
export function formula(nested, text) {
  const element = mathElement(nested);
  element.setAttribute("displaystyle", "true"); // display="block" would center it
  if (text) element.setAttribute("aria-label", text);
  return element;
}

function mathElement(nested) {
  if (/^[\u2061-\u2064]$/.test(nested)) return new Text(nested); // invisible times and its kin
  if (!Array.isArray(nested)) return String(nested);
  const [tag, attributes, ...children] = nested;
  const known = Object.entries(attributes ?? {}).filter(([name]) => ATTRIBUTES.has(name));
  return mathml(ELEMENTS.has(tag) ? tag : "mrow", Object.fromEntries(known), ...children.map(mathElement));
}
