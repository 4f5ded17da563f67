/**
 * A window of a value as a table: one Tab stop, arrows move, Enter opens, and moving past an edge asks for
 * the neighboring window. Which cells a window has, and what they are called, comes with the answer.
 */

import { h } from "./dom.js";
import { hashOf } from "./link.js";
import { show, showCount, spell, write } from "./number.js";
import { token } from "./parts.js";

/**
 * Makes the window that begins at the address of its first cell. Options: `focus`, the [row, column] of the
 * framed cell; `marks`, the washed parts as [first row, last row, first column, last column], with `wash` "a",
 * "b" or "c"; `heat`, the magnitude of the darkest cell; `rows` and `cols` of a window; `title` for the caption.
 */
export async function valueWindow(at, options, page) {
  const view = { figure: h("div.window"), options, page, marks: null };
  await turn(view, at);
  const kept = page.recallWindow(at); // where the reader had moved before going back here
  if (kept) await tryTurn(view, kept);
  view.keep = (turned) => page.keepWindow(at, turned);
  return view.figure;
}

/** Fills a place with a window; an error there has its own Retry. */
export async function fillWindow(place, at, options, page) {
  try {
    place.replaceChildren(await valueWindow(at, options, page));
  } catch (error) {
    place.replaceChildren(page.fail(error, () => fillWindow(place, at, options, page), at));
  }
}

/** Draws the window at an address in place of the one that is shown. */
async function turn(view, at) {
  const { rows, cols } = view.options;
  const answer = await view.page.ask("value", { at, rows, cols });
  // an axis of one cell, of a single prompt or left by a mean, has no heading
  const named = (axis, size) => (axis === "1" || (axis === "b" && size === 1) ? null : axis);
  const row_axis = named(answer.row_axis, answer.row_size);
  view.answer = { ...answer, row_axis, col_axis: named(answer.col_axis, answer.col_size) };
  view.marks ??= spread(view.answer, view.options);
  draw(view);
}

/** Returns focus and marks as indices along the axes; a mark that the window's edge cut goes on beyond it. */
function spread({ rows, cols, up, down, left, right }, { focus, marks = [] }) {
  const first = (list, k, before) => (before && k === 0 ? -Infinity : list[k]?.i);
  const last = (list, k, after) => (after && k === list.length - 1 ? Infinity : list[k]?.i);
  return {
    focus: focus && [rows[focus[0]]?.i, cols[focus[1]]?.i],
    parts: marks.map(([r0, r1, c0, c1]) => ({
      top: first(rows, r0, up),
      bottom: last(rows, r1, down),
      left: first(cols, c0, left),
      right: last(cols, c1, right),
    })),
  };
}

/** Returns the classes of a washed cell: the wash, and the sides at which its part ends. */
function washClasses({ parts }, wash, row, col) {
  const isIn = ({ top, bottom, left, right }) => row >= top && row <= bottom && col >= left && col <= right;
  const part = parts.find(isIn);
  if (!part) return [];
  const sides = { top: row, bottom: row, left: col, right: col };
  const ends = Object.keys(sides).filter((side) => part[side] === sides[side]);
  return ["wash", wash, ...ends.map((side) => `edge-${side}`)];
}

function draw(view) {
  const { answer, figure } = view;
  const changed = new Set((answer.changed ?? []).map(([r, c]) => `${r},${c}`));
  view.cells = answer.numbers.map((numbers, r) =>
    numbers.map((value, c) => drawCell(view, value, r, c, changed.has(`${r},${c}`))),
  );
  view.here = [0, 0];
  view.cells.forEach((row, r) =>
    row.forEach((cell, c) => {
      if (cell.classList.contains("focus")) view.here = [r, c];
    }),
  );
  const corner = () => h("td.corner");
  const heads = answer.cols.map((col) => heading(col, answer.col_axis, "col"));
  const body = view.cells.map((row, r) =>
    h("tr", answer.row_axis ? heading(answer.rows[r], answer.row_axis, "row") : corner(), row),
  );
  const table = h(
    "table",
    {
      class: "grid",
      role: "grid",
      onclick: (event) => openAt(view, event.target.closest("td[data-at]")),
      onfocusin: (event) => settleOn(view, event.target),
      onkeydown: (event) => press(view, event),
    },
    h("caption.hidden", describe(answer)),
    answer.col_axis && h("thead", h("tr", corner(), heads)),
    h("tbody", body),
  );
  view.scroll = h("div.scroll", table);
  figure.replaceChildren(h("p.caption", caption(view)), view.scroll, ways(view));
  const start = view.cells[view.here[0]]?.[view.here[1]];
  if (!start) return;
  start.tabIndex = 0;
  requestAnimationFrame(() => center(view));
}

function drawCell({ answer, marks, options }, value, r, c, isChanged) {
  const [row, col] = [answer.rows[r].i, answer.cols[c].i];
  const isFocus = marks.focus && marks.focus[0] === row && marks.focus[1] === col;
  const classes = [
    ...washClasses(marks, options.wash ?? "a", row, col),
    isFocus && "focus",
    isChanged && "changed",
    options.heat && "heat",
  ];
  const cell = h("td", {
    class: classes.filter(Boolean).join(" ") || null,
    tabindex: "-1",
    data: { at: answer.at.replace("{row}", row).replace("{col}", col) },
    "aria-current": isFocus ? "true" : null,
    title: isChanged ? "changed by the edit" : null,
  });
  if (options.heat) cell.style.setProperty("--heat", Math.min(Math.abs(value) / options.heat, 1) || 0);
  return write(cell, show(value, "table"));
}

function heading({ i, label }, axis, scope) {
  const name = label ? `${axis} ${i} ${label}` : null;
  return h("th", { scope, "aria-label": name }, `${axis}=${i}`, label && [" ", token(label)]);
}

function caption({ answer, options }) {
  const place = ({ axis, i, label }) => [` ${axis}=${i}`, label && [" ", token(label)]];
  const part = (list, size, noun) =>
    list.length < size && h("span.faint", ` · ${list.length} of ${showCount(size)} ${noun}`);
  return [
    h("span.name", options.title ?? answer.name),
    answer.fixed.length > 0 && [" at", answer.fixed.map(place)],
    part(answer.rows, answer.row_size, "rows"),
    part(answer.cols, answer.col_size, "columns"),
    answer.is_turned && h("span.faint", " · transposed"),
  ];
}

function describe(answer) {
  const fixed = answer.fixed.map(({ axis, i, label }) => `${axis} ${label || i}`);
  return [answer.meaning || answer.name, ...fixed].join(", ");
}

const SIDES = [
  ["left", "←", "columns before"],
  ["right", "→", "columns after"],
  ["up", "↑", "rows above"],
  ["down", "↓", "rows below"],
];

/** Makes the buttons to the neighboring windows, for a reader without a keyboard. */
function ways(view) {
  const button = ([side, arrow, label]) => {
    const move = async () => {
      await tryTurn(view, view.answer[side]);
      const again = view.figure.querySelector(`[data-side=${side}]`);
      (again ?? view.figure.querySelector("td[tabindex='0']"))?.focus();
    };
    const properties = { "aria-label": label, title: label, data: { side }, onclick: move };
    return h("button", properties, arrow);
  };
  return h("div.ways", SIDES.filter(([side]) => view.answer[side]).map(button));
}

/** Turns to the window at an address; returns whether there is one. */
async function tryTurn(view, at) {
  if (!at) return false;
  try {
    await turn(view, at);
    view.keep?.(at);
    return true;
  } catch (error) {
    view.figure.querySelector(".error")?.remove();
    view.figure.append(h("p.error", { role: "alert" }, error.message));
    return false;
  }
}

/* ---- keys ---- */

const MOVES = {
  ArrowUp: [-1, 0, "up"],
  ArrowDown: [1, 0, "down"],
  ArrowLeft: [0, -1, "left"],
  ArrowRight: [0, 1, "right"],
};

function press(view, event) {
  if (event.altKey || event.metaKey || event.shiftKey) return;
  const [height, width] = [view.cells.length, view.cells[0].length];
  const isFar = event.ctrlKey;
  if (MOVES[event.key] && !isFar) step(view, ...MOVES[event.key]);
  else if (event.key === "Home") moveTo(view, isFar ? 0 : view.here[0], 0);
  else if (event.key === "End") moveTo(view, isFar ? height - 1 : view.here[0], width - 1);
  else if (event.key === "Enter" && !isFar) openAt(view, event.target.closest("td[data-at]"));
  else return;
  event.preventDefault();
}

async function step(view, down, right, side) {
  const [r, c] = [view.here[0] + down, view.here[1] + right];
  if (view.cells[r]?.[c]) return moveTo(view, r, c);
  const [row, col] = [view.answer.rows[view.here[0]].i + down, view.answer.cols[view.here[1]].i + right];
  if (!(await tryTurn(view, view.answer[side]))) return;
  const find = (list, i) => Math.max(list.findIndex((entry) => entry.i === i), 0);
  moveTo(view, find(view.answer.rows, row), find(view.answer.cols, col));
}

function moveTo(view, r, c) {
  const cell = view.cells[r][c];
  cell.focus({ preventScroll: true });
  bringIntoView(view.scroll, cell);
  cell.scrollIntoView({ block: "nearest", inline: "nearest" });
  view.page.announce(speak(view.answer, r, c));
}

/** Makes the focused cell the table's one Tab stop. */
function settleOn(view, target) {
  view.cells.forEach((row, r) => {
    const c = row.indexOf(target);
    if (c < 0) return;
    view.cells[view.here[0]][view.here[1]].tabIndex = -1;
    view.here = [r, c];
    target.tabIndex = 0;
  });
}

function openAt(view, cell) {
  if (cell) view.page.go(hashOf("why", cell.dataset.at), cell);
}

/** Returns what a screen reader says of a cell: "t ·on, s ·cat, 3.802". */
function speak({ row_axis, col_axis, rows, cols, numbers }, r, c) {
  const name = (axis, { i, label }) => axis && `${axis} ${label || i}`;
  const parts = [name(row_axis, rows[r]), name(col_axis, cols[c]), spell(numbers[r][c], "table")];
  return parts.filter(Boolean).join(", ");
}

/** Scrolls a table sideways, where the focus is out of view, so that a whole column follows the headings. */
function center({ scroll, cells, here: [r, c] }) {
  if (cells[r][c].offsetLeft + cells[r][c].offsetWidth <= scroll.clientWidth) return;
  const room = (scroll.clientWidth - cells[r][0].offsetLeft - cells[r][c].offsetWidth) / 2;
  const first = cells[r].find((cell) => cell.offsetLeft >= cells[r][c].offsetLeft - Math.max(room, 0));
  scroll.scrollLeft = first.offsetLeft - cells[r][0].offsetLeft;
}

/** Scrolls a table sideways until a cell stands free of the row headings. */
function bringIntoView(scroll, cell) {
  const left = cell.offsetLeft - cell.parentElement.firstElementChild.offsetWidth;
  const right = cell.offsetLeft + cell.offsetWidth;
  if (left < scroll.scrollLeft) scroll.scrollLeft = left;
  else if (right > scroll.scrollLeft + scroll.clientWidth) scroll.scrollLeft = right - scroll.clientWidth;
}
