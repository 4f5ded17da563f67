/** Plain tables: column headings, rows whose first heading names them, a foot. */

import { h } from "./dom.js";

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
