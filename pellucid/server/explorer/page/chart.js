/** Bars: length is the magnitude, to the left of the common zero and hatched where the number is negative. */

import { svg } from "./dom.js";

const WIDTH = 96;
const HEIGHT = 11;

/** Makes one bar per number, all on one scale; null where a number is not finite. */
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
