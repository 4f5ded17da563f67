/** Token text: blanks arrive as visible marks. */

import { h, visible } from "./dom.js";

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
