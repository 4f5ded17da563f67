/** Token text: blanks arrive as visible marks; what would turn or hide text is written as an escape. */

import { h } from "./dom.js";

const MOST_CHARACTERS = 12;
const HIDDEN = /[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}\u034f\u115f\u1160\u17b4\u17b5\u3164\uffa0\ufe00-\ufe0f]/gu;

/** Returns text in which control, bidirectional and invisible characters are written as \u202e. */
export function visible(text) {
  return text.replace(HIDDEN, (character) =>
    Array.from({ length: character.length }, (_, i) => character.charCodeAt(i).toString(16).padStart(4, "0"))
      .map((digits) => `\\u${digits}`)
      .join(""),
  );
}

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
