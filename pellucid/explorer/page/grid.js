/**
 * A window of a value as a table: one Tab stop, arrows move, Enter opens, and moving past an edge asks for the
 * neighboring window. Which cells a window has, and what they are called, comes with the answer.
 */

import { h } from "./dom.js";
import { hashOf } from "./link.js";
import { show, showCount, write } from "./number.js";
import { token, visible } from "./token.js";

/**
 * What a window may show beside its numbers.
 * @typedef {Object} WindowOptions
 * @property {[number, number]|null} [focus] the framed cell, as [row, column] of the first window
 * @property {[number, number, number, number]|null} [marks] first and last row, first and last column that are washed
 * @property {"a"|"b"|"c"} [wash] the wash and border of the marks
 * @property {number} [heat] the magnitude of the darkest cell; without it the cells have no heat
 * @property {number} [rows] rows of a window
 * @property {number} [cols] columns of a window
 * @property {string} [title] what stands above the table in place of the value's name
 */

/**
 * Makes the window that begins at an address, and asks for its numbers.
 * @param {string} at the address of the window's first cell
 * @param {WindowOptions} options
 * @param {any} page
 */
export async function valueWindow(at, options, page) {
  const { rows, cols } = options;
  const figure = h("div", { class: "window" });
  const first = await page.ask("value", { at, rows, cols });
  const marks = spread(first, options);
  draw(figure, first, marks, options, page);
  return figure;
}

/** Returns the marks and the focus as indices along the axes; a mark that was cut at the window's edge goes on. */
function spread(answer, { focus, marks }) {
  const index = (list, position) => list[position]?.i ?? null;
  const found = { row: null, col: null, rows: null, cols: null };
  if (focus) [found.row, found.col] = [index(answer.rows, focus[0]), index(answer.cols, focus[1])];
  if (marks) {
    const [top, bottom, left, right] = marks;
    const end = (list, position, edge, beyond) => (beyond && position === edge ? null : index(list, position));
    found.rows = [
      end(answer.rows, top, 0, answer.up),
      end(answer.rows, bottom, answer.rows.length - 1, answer.down),
    ];
    found.cols = [
      end(answer.cols, left, 0, answer.left),
      end(answer.cols, right, answer.cols.length - 1, answer.right),
    ];
  }
  return found;
}

function isWithin(range, i) {
  return range !== null && (range[0] === null || i >= range[0]) && (range[1] === null || i <= range[1]);
}

function draw(figure, answer, marks, options, page) {
  const isChanged = new Set((answer.changed ?? []).map(([r, c]) => `${r},${c}`));
  const cells = answer.numbers.map((numbers, r) =>
    numbers.map((value, c) => {
      const [row, col] = [answer.rows[r], answer.cols[c]];
      const isMarked = isWithin(marks.rows, row.i) && isWithin(marks.cols, col.i);
      const isFocus = marks.row === row.i && marks.col === col.i;
      const names = [isMarked && `wash ${options.wash ?? "a"}`, isFocus && "focus", isChanged.has(`${r},${c}`) && "changed"];
      const cell = h("td", {
        class: names.filter(Boolean).join(" ") || null,
        tabindex: "-1",
        data: { at: cellAddress(answer, row.i, col.i) },
        "aria-current": isFocus ? "true" : null,
        title: isChanged.has(`${r},${c}`) ? "changed by the edit" : null,
        style: options.heat ? { "--heat": String(Math.min(Math.abs(value) / options.heat, 1) || 0) } : null,
      });
      if (options.heat) cell.classList.add("heat");
      return write(cell, show(value, "table"));
    }),
  );
  const table = h(
    "table",
    { class: "grid", role: "grid" },
    h("caption", { class: "hidden" }, describe(answer)),
    answer.col_axis &&
      h("thead", null, h("tr", null, h("td", { class: "corner" }), answer.cols.map((col) => heading(col, answer.col_axis, "col")))),
    h(
      "tbody",
      null,
      cells.map((row, r) =>
        h("tr", null, answer.row_axis ? heading(answer.rows[r], answer.row_axis, "row") : h("td", { class: "corner" }), row),
      ),
    ),
  );
  const scroll = h("div", { class: "scroll" }, table);
  figure.replaceChildren(h("p", { class: "caption" }, caption(answer, options)), scroll, ways(figure, answer, marks, options, page) ?? "");
  roam(figure, answer, cells, marks, options, page);
  const focus = table.querySelector("td.focus");
  if (focus) requestAnimationFrame(() => bringIntoView(scroll, focus));
}

/** Returns the address of a cell: the answer's template with both indices. */
function cellAddress(answer, row, col) {
  return answer.at.replace("{row}", row).replace("{col}", col);
}

function heading({ i, label }, axis, scope) {
  return h(
    "th",
    { scope, "aria-label": label === null || label === undefined ? null : `${axis} ${i} ${visible(label)}` },
    h("span", { class: "axis" }, `${axis}=${i}`),
    label !== null && label !== undefined && [" ", token(label)],
  );
}

function caption(answer, options) {
  const fixed = (answer.fixed ?? []).map(({ axis, i, label }) => `${axis}=${i}${label ? ` ${visible(label)}` : ""}`);
  const parts = [];
  if (answer.row_axis && answer.rows.length < answer.row_size) {
    parts.push(`${answer.rows.length} of ${showCount(answer.row_size)} rows`);
  }
  if (answer.col_axis && answer.cols.length < answer.col_size) {
    parts.push(`${answer.cols.length} of ${showCount(answer.col_size)} columns`);
  }
  const transposed = answer.is_turned ? ["transposed"] : [];
  return [
    h("span", { class: "name" }, options.title ?? visible(answer.name)),
    fixed.length > 0 && ` at ${fixed.join(", ")}`,
    [...parts, ...transposed].map((part) => h("span", { class: "faint" }, ` · ${part}`)),
  ];
}

function describe(answer) {
  const fixed = (answer.fixed ?? []).map(({ axis, i, label }) => `${axis} ${label ? visible(label) : i}`);
  return [visible(answer.meaning ?? answer.name), ...fixed].join(", ");
}

const WAYS = [
  ["left", "←", "columns before"],
  ["right", "→", "columns after"],
  ["up", "↑", "rows above"],
  ["down", "↓", "rows below"],
];

/** Makes the buttons to the neighboring windows, for a reader without a keyboard. */
function ways(figure, answer, marks, options, page) {
  const found = WAYS.filter(([side]) => answer[side]);
  if (!found.length) return null;
  return h(
    "div",
    { class: "ways" },
    found.map(([side, arrow, label]) =>
      h(
        "button",
        {
          type: "button",
          "aria-label": `${label} of ${visible(answer.name)}`,
          onclick: async () => {
            if (await turn(figure, answer[side], marks, options, page)) {
              figure.querySelector(`.ways button[data-side=${side}]`)?.focus() ?? figure.querySelector("td[tabindex='0']").focus();
            }
          },
          data: { side },
        },
        arrow,
      ),
    ),
  );
}

/** Draws the window at another address in place of this one; returns its answer, null where that failed. */
async function turn(figure, at, marks, options, page) {
  try {
    const answer = await page.ask("value", { at, rows: options.rows, cols: options.cols });
    draw(figure, answer, marks, options, page);
    return answer;
  } catch (error) {
    page.announce(error.message);
    figure.append(h("p", { class: "error" }, error.message));
    return null;
  }
}

const MOVES = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

/** Makes the table one Tab stop in which arrows move. */
function roam(figure, answer, cells, marks, options, page) {
  const [height, width] = [cells.length, cells[0].length];
  let here = [0, 0];
  cells.forEach((row, r) => row.forEach((cell, c) => cell.classList.contains("focus") && (here = [r, c])));
  cells[here[0]][here[1]].tabIndex = 0;
  const moveTo = (r, c) => {
    cells[here[0]][here[1]].tabIndex = -1;
    here = [r, c];
    cells[r][c].tabIndex = 0;
    cells[r][c].focus({ preventScroll: true });
    bringIntoView(figure.querySelector(".scroll"), cells[r][c]);
    cells[r][c].scrollIntoView({ block: "nearest", inline: "nearest" });
    page.announce(speak(answer, r, c));
  };
  const step = async (dr, dc) => {
    const [r, c] = [here[0] + dr, here[1] + dc];
    if (r >= 0 && r < height && c >= 0 && c < width) return moveTo(r, c);
    const side = dr < 0 ? "up" : dr > 0 ? "down" : dc < 0 ? "left" : "right";
    if (!answer[side]) return;
    const [row, col] = [answer.rows[here[0]].i + dr, answer.cols[here[1]].i + dc];
    const next = await turn(figure, answer[side], marks, options, page);
    if (next) figure.querySelector("table").dispatchEvent(new CustomEvent("enter", { detail: [row, col] }));
  };
  const nearest = (list, i) => list.reduce((best, { i: at }, k) => (Math.abs(at - i) < Math.abs(list[best].i - i) ? k : best), 0);
  const table = figure.querySelector("table");
  table.addEventListener("enter", ({ detail: [row, col] }) => moveTo(nearest(answer.rows, row), nearest(answer.cols, col)));
  table.addEventListener("click", (event) => {
    const at = event.target.closest("td[data-at]")?.dataset.at;
    if (at) page.go(hashOf("why", at), event.target.closest("td"));
  });
  table.addEventListener("focusin", (event) => {
    cells.forEach((row, r) => row.forEach((cell, c) => cell === event.target && (cells[here[0]][here[1]].tabIndex = -1, here = [r, c], cell.tabIndex = 0)));
  });
  table.addEventListener("keydown", (event) => {
    if (event.altKey || event.metaKey) return;
    const all = event.ctrlKey;
    if (MOVES[event.key] && !all) step(...MOVES[event.key]);
    else if (event.key === "Home") moveTo(all ? 0 : here[0], 0);
    else if (event.key === "End") moveTo(all ? height - 1 : here[0], width - 1);
    else if (event.key === "Enter" && !all) page.go(hashOf("why", event.target.dataset.at), event.target);
    else return;
    event.preventDefault();
    event.stopPropagation();
  });
}

/** Returns what a screen reader says of a cell: "query ·on, key ·cat, 3.8021". */
function speak(answer, r, c) {
  const name = (axis, { i, label }) => (axis ? [`${axis} ${label ? visible(label) : i}`] : []);
  const [row, col] = [answer.rows[r], answer.cols[c]];
  return [...name(answer.row_axis, row), ...name(answer.col_axis, col), show(answer.numbers[r][c], "table")].join(", ");
}

/** Scrolls a table sideways until a cell stands free of the row headings. */
function bringIntoView(scroll, cell) {
  const head = cell.parentElement.firstElementChild.offsetWidth;
  const [left, right] = [cell.offsetLeft - head, cell.offsetLeft + cell.offsetWidth];
  if (left < scroll.scrollLeft) scroll.scrollLeft = left;
  else if (right > scroll.scrollLeft + scroll.clientWidth) scroll.scrollLeft = right - scroll.clientWidth;
}
