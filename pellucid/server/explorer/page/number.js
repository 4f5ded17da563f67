/** Numbers as text: the digits that `pellucid explain` prints. Nothing is computed but the rounding. */

import { h } from "./dom.js";

/** Significant digits of each kind of place, unless the reader chose a number of digits. */
const DIGITS = { headline: 6, line: 5, table: 4 };
const SPECIAL = { inf: "∞", "-inf": "-∞", nan: "nan" };
const COVER = "?";

/**
 * Returns a number with this many significant digits, as Python's "%.{digits}g"; "exact" has the fewest
 * digits that read back as the same number.
 *
 * `toPrecision` rounds ties away from zero and Python rounds them to even (1.03125 is 1.0312), so the decimal
 * expansion is rounded here: a tie has few digits, and 101 of them show it.
 * @param {number|string} value a number, or "inf", "-inf", "nan"
 * @param {number|"exact"} digits
 */
export function format(value, digits) {
  if (typeof value === "string") return SPECIAL[value] ?? value;
  if (!Number.isFinite(value)) return SPECIAL[String(value).toLowerCase().replace("infinity", "inf")];
  if (value === 0) return "0";
  const sign = value < 0 ? "-" : "";
  if (digits === "exact") {
    const [mantissa, exponent] = Math.abs(value).toExponential().split("e");
    return sign + place(mantissa.replace(".", ""), Number(exponent), 16);
  }
  const [mantissa, exponent] = Math.abs(value).toExponential(100).split("e");
  const all = mantissa.replace(".", "");
  const [kept, carried] = round(all.slice(0, digits), all.slice(digits));
  return sign + place(kept, Number(exponent) + carried, digits);
}

/** Rounds digits by those that follow, half to even; 1 where a carry made the number a digit longer. */
function round(kept, rest) {
  const half = "5".padEnd(rest.length, "0");
  if (rest < half || (rest === half && "02468".includes(kept.at(-1)))) return [kept, 0];
  const nines = kept.length - kept.replace(/9+$/, "").length;
  if (nines === kept.length) return ["1".padEnd(kept.length, "0"), 1];
  const last = kept.length - nines - 1;
  return [kept.slice(0, last) + String(Number(kept[last]) + 1) + "0".repeat(nines), 0];
}

/** Places the point among digits d.ddd · 10^exponent: below 10^-4 and from 10^most on with an exponent. */
function place(digits, exponent, most) {
  if (exponent < -4 || exponent >= most) {
    const mantissa = digits.replace(/0+$/, "");
    const text = mantissa.length > 1 ? `${mantissa[0]}.${mantissa.slice(1)}` : mantissa;
    return `${text}e${exponent < 0 ? "-" : "+"}${String(Math.abs(exponent)).padStart(2, "0")}`;
  }
  if (exponent < 0) return `0.${"0".repeat(-exponent - 1)}${digits.replace(/0+$/, "")}`;
  const whole = digits.slice(0, exponent + 1).padEnd(exponent + 1, "0");
  const rest = digits.slice(exponent + 1).replace(/0+$/, "");
  return rest ? `${whole}.${rest}` : whole;
}

/** Returns text with U+2212 for each minus sign, as it stands on the screen. */
export function withMinus(text) {
  return text.replaceAll("-", "−");
}

/** Returns text with an ASCII minus sign, as it is copied. */
export function withHyphen(text) {
  return text.replaceAll("−", "-");
}

/** The reader's choice, in a frame that keeps nothing. */
let digitsText = "";

/** Returns the number of digits that the reader chose: 2 to 8, "exact", or null for each place's own. */
export function chosenDigits() {
  let text = digitsText;
  try {
    text = localStorage.getItem("pellucid.digits");
  } catch {}
  return text === "exact" ? text : /^[2-8]$/.test(text ?? "") ? Number(text) : null;
}

/** Keeps the reader's choice: "2" to "8", "exact", or "" for each place's own number of digits. */
export function chooseDigits(text) {
  digitsText = text;
  try {
    localStorage.setItem("pellucid.digits", text);
  } catch {}
}

/** Returns a number as it stands on the screen in a "headline", a "line" or a "table". */
export function show(value, kind) {
  return withMinus(format(value, chosenDigits() ?? DIGITS[kind]));
}

/** Returns a number without its sign, where the sign is part of the text before it. */
export function showMagnitude(value, kind) {
  return show(value, kind).replace(/^−/, "");
}

/** Returns a count with separators: 49,152. */
export function showCount(count) {
  return String(count).replace(/\B(?=(\d{3})+$)/g, ",");
}

let isCovering = false;
const covered = new WeakMap();

/** Covers the numbers that are drawn from now on, or not; returns which. */
export function toggleCovering() {
  isCovering = !isCovering;
  return isCovering;
}

/** Returns what a screen reader says of a number. */
export function spell(value, kind) {
  return isCovering ? "covered" : show(value, kind);
}

/** Writes a number's text into an element, or a cover that `peek` takes away. */
export function write(element, text) {
  if (!isCovering) element.append(text);
  else {
    covered.set(element, text);
    element.classList.add("covered");
    element.append(h("span", { "aria-label": "covered", role: "img" }, COVER));
  }
  return element;
}

/** Takes the cover off the number that holds a node; returns whether there was one. */
export function peek(node) {
  const element = node instanceof Element ? node.closest(".covered") : null;
  if (!element) return false;
  element.classList.remove("covered");
  element.replaceChildren(covered.get(element));
  return true;
}
