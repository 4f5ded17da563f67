/**
 * Attention: every head as a small picture; the chosen one with its pattern, its scores and its tokens in words.
 *
 * Route: #attention/LAYER/HEAD. In the page: table.heads (role grid, one Tab stop) with td[data-layer][data-head];
 * .readout says the focused head in numbers; section.chosen holds the windows and table.attended, one row per query.
 */

import { h } from "./dom.js";
import { valueWindow } from "./grid.js";
import { hashOf, numberLink } from "./link.js";
import { show, showCount } from "./number.js";
import { token, visible } from "./token.js";

const NARROW = window.matchMedia("(max-width: 640px)");
const SCHEMES = ["(prefers-color-scheme: dark)", "print"].map((query) => window.matchMedia(query));
const READOUT_MS = 80;
const HEAD_MOVES = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

/** The table that is shown: {heads, layer, head, page, view, figure}. */
let shownHeads = null;

export const attentionScreen = {
  id: "attention",
  title: "Attention",
  actions: {
    layer: (step) => stepHead(step, 0),
    head: (step) => stepHead(0, step),
  },
  async show(main, args, page) {
    const heads = await page.ask("heads");
    const [layer, head] = [
      placeOf(args[0], heads.layers),
      placeOf(args[1], heads.heads),
    ];
    const figure = h("div", { class: "figure" });
    const view = h("section", { class: "chosen" });
    main.append(
      h("h1", null, "Where each head attends"),
      h(
        "p",
        { class: "faint" },
        `${showCount(heads.layers)} layers × ${showCount(heads.heads)} heads: queries down, keys across; `,
        "the stronger the ink, the larger the share",
        heads.is_pooled && `; each field is the largest share of several positions`,
      ),
      figure,
      h("p", { class: "readout" }, h("span", { class: "faint" }, "Point at a head, or focus it, to read its numbers; a click or Enter shows all of them.")),
      view,
    );
    shownHeads = { heads, layer, head, page, view, figure };
    drawHeads();
    return { settled: showHead() };
  },
};

function placeOf(text, count) {
  return /^\d+$/.test(text ?? "") ? Math.min(Number(text), count - 1) : 0;
}

/* ---- the small pictures ---- */

/** Draws all heads: layers across and heads down, or the other way round on a narrow screen. */
function drawHeads() {
  const { heads, figure } = shownHeads;
  const isTall = NARROW.matches && heads.layers > heads.heads;
  const [rows, cols] = isTall ? [heads.layers, heads.heads] : [heads.heads, heads.layers];
  const layerName = (l) => layerOf(heads.patterns[l]);
  const rowName = isTall ? layerName : (i) => `h${i}`;
  const colName = isTall ? (i) => `h${i}` : layerName;
  const cells = Array.from({ length: rows }, (_, r) =>
    Array.from({ length: cols }, (_, c) => headCell(...(isTall ? [r, c] : [c, r]))),
  );
  const table = h(
    "table",
    { class: `heads${isTall ? " tall" : ""}`, role: "grid", "aria-label": "Attention heads", style: { "--columns": String(cols) } },
    h("thead", null, h("tr", null, h("td"), Array.from({ length: cols }, (_, c) => h("th", { scope: "col" }, colName(c))))),
    h("tbody", null, cells.map((row, r) => h("tr", null, h("th", { scope: "row" }, rowName(r)), row))),
  );
  figure.replaceChildren(table);
  paintHeads();
  markChosen();
  roamHeads(table, cells);
}

/** Returns the layer in a pattern's name: not every layer need have one. */
function layerOf(name) {
  return /blocks\.(\d+)\./.exec(name)?.[1] ?? name;
}

function headCell(layer, head) {
  const { heads } = shownHeads;
  return h(
    "td",
    { tabindex: "-1", data: { layer, head }, "aria-label": `layer ${layerOf(heads.patterns[layer])}, head ${head}` },
    h("canvas", { width: heads.cols, height: heads.rows, "aria-hidden": "true" }),
  );
}

/** Paints one ink, as strong as each share, on the paper that shows through. */
function paintHeads() {
  const { heads, figure } = shownHeads;
  const ink = getComputedStyle(document.documentElement).getPropertyValue("--heat-ink").trim().split(/\s+/).map(Number);
  const size = heads.rows * heads.cols;
  const pictures = heads.pictures.map((text) => atob(text));
  for (const cell of figure.querySelectorAll("td[data-layer]")) {
    const context = cell.firstElementChild.getContext("2d");
    const image = context.createImageData(heads.cols, heads.rows);
    const [shares, start] = [pictures[cell.dataset.layer], cell.dataset.head * size];
    for (let i = 0; i < size; i += 1) {
      image.data.set([ink[0], ink[1], ink[2], shares.charCodeAt(start + i)], 4 * i);
    }
    context.putImageData(image, 0, 0);
  }
}

function markChosen() {
  const { figure, layer, head } = shownHeads;
  for (const cell of figure.querySelectorAll("td[data-layer]")) {
    const isChosen = Number(cell.dataset.layer) === layer && Number(cell.dataset.head) === head;
    cell.setAttribute("aria-selected", String(isChosen));
    cell.tabIndex = isChosen ? 0 : -1;
  }
}

function roamHeads(table, cells) {
  const placeIn = (cell) => {
    const r = cells.findIndex((row) => row.includes(cell));
    return [r, cells[r].indexOf(cell)];
  };
  const focusOn = (r, c) => {
    table.querySelector("td[tabindex='0']").tabIndex = -1;
    cells[r][c].tabIndex = 0;
    cells[r][c].focus();
  };
  table.addEventListener("keydown", (event) => {
    const cell = event.target.closest("td[data-layer]");
    if (!cell || event.altKey || event.metaKey) return;
    const [r, c] = placeIn(cell);
    const [bottom, right] = [cells.length - 1, cells[0].length - 1];
    const move = HEAD_MOVES[event.key];
    if (move) focusOn(Math.max(0, Math.min(bottom, r + move[0])), Math.max(0, Math.min(right, c + move[1])));
    else if (event.key === "Home") focusOn(event.ctrlKey ? 0 : r, 0);
    else if (event.key === "End") focusOn(event.ctrlKey ? bottom : r, right);
    else if (event.key === "Enter") {
      chooseHead(cell).then(() => shownHeads.view.querySelector("h2").focus());
    } else return;
    event.preventDefault();
    event.stopPropagation();
  });
  table.addEventListener("click", (event) => {
    const cell = event.target.closest("td[data-layer]");
    if (cell) chooseHead(cell).then(() => bringHeadIntoView());
  });
  const read = (event) => {
    const cell = event.target.closest?.("td[data-layer]");
    if (cell) readHead(cell);
  };
  table.addEventListener("focusin", read);
  table.addEventListener("pointerover", read);
}

let readoutTimer = null;

/** Says a head in numbers while it has the focus or the pointer: where its last query looks. */
function readHead(cell) {
  clearTimeout(readoutTimer);
  readoutTimer = setTimeout(async () => {
    const { heads, page } = shownHeads;
    const [layer, head] = [Number(layerOf(heads.patterns[cell.dataset.layer])), Number(cell.dataset.head)];
    const line = cell.closest(".screen")?.querySelector(".readout");
    if (!line) return;
    const name = `Layer ${layer}, head ${head}: `;
    try {
      const query = (await page.ask("attention", { layer, head })).queries.at(-1);
      const keys = query.keys.map(({ label, value }, i) => [i > 0 && ", ", token(label ?? ""), ` ${show(value, "table")}`]);
      line.replaceChildren(name, token(query.label ?? ""), " attends to ", ...keys.flat().filter(Boolean));
    } catch (error) {
      line.replaceChildren(name, visible(error.message));
    }
    if (cell === document.activeElement) page.announce(line.textContent);
  }, READOUT_MS);
}

/* ---- the chosen head ---- */

function stepHead(layers, heads) {
  if (!shownHeads?.figure.isConnected) return;
  const { layer, head } = shownHeads;
  const cell = shownHeads.figure.querySelector(`td[data-layer="${layer + layers}"][data-head="${head + heads}"]`);
  if (cell) chooseHead(cell);
}

/** Shows another head below; the address bar follows, the pictures stay. */
async function chooseHead(cell) {
  [shownHeads.layer, shownHeads.head] = [Number(cell.dataset.layer), Number(cell.dataset.head)];
  const { page, layer, head } = shownHeads;
  history.replaceState(history.state, "", hashOf("attention", layer, head));
  markChosen();
  await showHead();
  page.announce(`${cell.getAttribute("aria-label")} is shown`);
}

/** On a small screen the chosen head stands below the pictures, out of sight. */
function bringHeadIntoView() {
  const heading = shownHeads.view.firstElementChild;
  if (heading.getBoundingClientRect().bottom > window.innerHeight) heading.scrollIntoView({ block: "start" });
}

async function showHead() {
  const { heads, layer, head, page, view } = shownHeads;
  const number = Number(layerOf(heads.patterns[layer]));
  const heading = h("h2", { tabindex: "-1", class: "sentence" }, `Layer ${number}, head ${head}`);
  const [pattern, before, text] = [0, 1, 2].map(() => h("div"));
  const parts = h("div", { class: "columns even" }, h("div", null, pattern, text), before);
  try {
    const answer = await page.ask("attention", { layer: number, head });
    const at = (name) => `${name}[h=${head}]`;
    const windows = [
      fillPart(pattern, () => valueWindow(at(answer.pattern), { heat: 1, rows: 16 }, page), page),
      ...answer.before.map((name) => {
        const part = h("div");
        before.append(part);
        return fillPart(part, () => valueWindow(at(name), { rows: 16 }, page), page);
      }),
    ];
    text.append(attendedTable(answer, number, head, page));
    await Promise.all(windows);
  } catch (error) {
    parts.replaceChildren(page.fail(error, showHead));
  }
  if (shownHeads.layer === layer && shownHeads.head === head) view.replaceChildren(heading, parts);
}

async function fillPart(part, make, page) {
  try {
    part.replaceChildren(await make());
  } catch (error) {
    part.replaceChildren(page.fail(error, () => fillPart(part, make, page)));
  }
}

/** Makes the text: each query with the keys that it attends to most. */
function attendedTable(answer, layer, head, page) {
  const place = h("div", { class: "window" });
  const draw = ({ queries, up, down, length }) => {
    const turnTo = async (t) => draw(await page.ask("attention", { layer, head, t }));
    const way = (t, arrow, label) =>
      t !== null && h("button", { type: "button", "aria-label": label, onclick: () => turnTo(t).catch((e) => page.announce(e.message)) }, arrow);
    place.replaceChildren(
      h(
        "table",
        { class: "attended" },
        h("caption", null, h("span", { class: "name" }, "From token to token"), queries.length < length && h("span", { class: "faint" }, ` · ${queries.length} of ${showCount(length)} queries`)),
        h("tbody", null, queries.map(attendedRow)),
      ),
      h("div", { class: "ways" }, way(up, "↑", "queries before"), way(down, "↓", "queries after")),
    );
  };
  draw(answer);
  return place;
}

function attendedRow({ t, label, keys, folded, rest }) {
  return h(
    "tr",
    null,
    h("th", { scope: "row" }, h("span", { class: "axis" }, `t=${t} `), token(label ?? ""), " →"),
    h(
      "td",
      null,
      keys.map(({ label: key, at, value }) => [h("span", { class: "key" }, token(key ?? ""), " ", numberLink(at, value, "table")), " "]),
      folded > 0 && h("span", { class: "faint" }, `${showCount(folded)} more ${show(rest, "table")}`),
    ),
  );
}

for (const scheme of SCHEMES) scheme.addEventListener("change", () => shownHeads?.figure.isConnected && paintHeads());
NARROW.addEventListener("change", () => shownHeads?.figure.isConnected && drawHeads());
