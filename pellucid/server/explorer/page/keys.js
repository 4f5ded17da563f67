/** Every key in one table. A screen or the page performs an action; a key without one does nothing. */

import { h } from "./dom.js";

/** [key, action, argument, what it does]. */
const KEYS = [
  ["/", "search", null, "search for an address"],
  ["w", "why", null, "why: open the focused number"],
  [" ", "step", 1, "next step"],
  ["Shift+ ", "step", -1, "previous step"],
  ["f", "twin", "forward", "from a gradient to its value"],
  ["b", "twin", "backward", "from a value to its gradient"],
  ["[", "layer", -1, "previous layer"],
  ["]", "layer", 1, "next layer"],
  ["{", "head", -1, "previous head"],
  ["}", "head", 1, "next head"],
  [",", "token", -1, "previous token"],
  [".", "token", 1, "next token"],
  ["e", "edit", null, "edit the number"],
  ["p", "pin", null, "pin the number, or unpin it"],
  ["c", "cover", null, "cover the numbers; a click or Enter uncovers one"],
  ["?", "keys", null, "list of keys"],
];
const TABLE_KEYS = [
  ["Arrows", "move in a table, and past its edge"],
  ["Home End", "first and last cell of a row"],
  ["Ctrl+Home Ctrl+End", "first and last cell of the table"],
  ["Enter", "open the number"],
  ["Esc", "close, or cancel"],
];
const EDIT_KEYS = [
  ["Ctrl+Z", "undo the edit"],
  ["Ctrl+Shift+Z", "make the edit again"],
];
const NAMES = { " ": "Space", "Shift+ ": "Shift+Space" };

/**
 * Performs the action of each key; `find(action)` returns its function on this screen, or undefined.
 */
export function listenToKeys(find) {
  document.addEventListener("keydown", (event) => {
    const target = event.target;
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
    if (target.closest("input, textarea, select, dialog[open], [contenteditable]")) return;
    const key = event.key === " " && event.shiftKey ? "Shift+ " : event.key;
    if (event.key === " " && target.closest("a, button, summary")) return;
    const row = KEYS.find(([name]) => name === key);
    const action = row && find(row[1]);
    if (!action) return;
    event.preventDefault();
    action(row[2], target);
  });
}

/** Shows the keys whose action `find` knows on this screen. */
export function showKeys(find) {
  const rows = [
    ...KEYS.filter(([, action]) => find(action)).map(([key, , , what]) => [NAMES[key] ?? key, what]),
    ...TABLE_KEYS,
    ...(find("edit") ? EDIT_KEYS : []),
  ];
  const dialog = h(
    "dialog",
    { class: "keys", "aria-labelledby": "keys-heading", onclose: () => dialog.remove() },
    h("h2", { id: "keys-heading" }, "Keys"),
    h(
      "table",
      h("tbody", rows.map(([names, what]) => h("tr", keyNames(names), h("td", what)))),
    ),
    h("button", { onclick: () => dialog.close() }, "Close"),
  );
  document.body.append(dialog);
  dialog.showModal();
}

function keyNames(names) {
  return h("th", { scope: "row" }, names.split(" ").map((name) => [h("kbd", name), " "]));
}
