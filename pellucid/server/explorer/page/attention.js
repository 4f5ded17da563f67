/**
 * Attention: every head as a small picture; the chosen one with its pattern, its scores and its tokens.
 *
 * Route: #attention/LAYER/HEAD. In the page: table.heads, a grid of td[data-layer][data-head] with one Tab
 * stop; .readout says the focused head in numbers; section.chosen holds the windows and table.attended.
 */

import { h, visible } from "./dom.js";
import { fillWindow } from "./grid.js";
import { hashOf, numberLink } from "./link.js";
import { show, showCount } from "./number.js";
import { plainTable, rowHeading, token } from "./parts.js";

const NARROW = matchMedia("(max-width: 640px)");
const SCHEMES = ["(prefers-color-scheme: dark)", "print"].map((query) => matchMedia(query));
const READOUT_MS = 80;
const HINT = "Point at a head, or focus it, to read its numbers; a click or Enter shows all of them.";

/** What is shown: {heads, layer, head, page, figure, readout, view}; layer counts the patterns. */
let gallery = null;
let readoutTimer = null;

export const attentionScreen = {
  id: "attention",
  title: "Attention",
  actions: { layer: (step) => stepHead(step, 0), head: (step) => stepHead(0, step) },
  async show(main, args, page) {
    const heads = await page.ask("heads");
    const place = (text, count) => (/^\d+$/.test(text) ? Math.min(Number(text), count - 1) : 0);
    const [layer, head] = [place(args[0], heads.layers), place(args[1], heads.heads)];
    const [figure, view] = [h("div"), h("section.chosen")];
    const readout = h("p.readout", h("span.faint", HINT));
    const pooled = heads.is_pooled ? "; each field is the largest share of several positions" : "";
    main.append(
      h("h1", "Where each head attends"),
      h(
        "p.faint",
        `${countOf(heads.layers, "layer")} × ${countOf(heads.heads, "head")} · queries down, keys across · `,
        `stronger ink, larger share${pooled}`,
      ),
      figure,
      readout,
      view,
    );
    gallery = { heads, layer, head, page, figure, readout, view };
    drawHeads();
    return { settled: showHead() };
  },
};

/* ---- the small pictures ---- */

function countOf(count, word) {
  return `${showCount(count)} ${word}${count === 1 ? "" : "s"}`;
}

/** Returns the number of a layer: not every block need have a pattern. */
function blockOf(layer) {
  return Number(/blocks\.(\d+)/.exec(gallery.heads.patterns[layer])[1]);
}

/** Draws all heads: layers across and heads down, or the other way round on a narrow screen. */
function drawHeads() {
  const { layers, heads } = gallery.heads;
  const isTall = NARROW.matches && layers > heads;
  const list = (count, make) => Array.from({ length: count }, (_, i) => make(i));
  const [rows, cols] = isTall ? [layers, heads] : [heads, layers];
  const [rowName, colName] = isTall ? [blockOf, (i) => `h${i}`] : [(i) => `h${i}`, blockOf];
  const cells = list(rows, (r) => list(cols, (c) => (isTall ? headCell(r, c) : headCell(c, r))));
  const table = h(
    "table.heads",
    { role: "grid", "aria-label": "Attention heads", style: { "--columns": String(cols) } },
    h("thead", h("tr", h("td"), list(cols, (c) => h("th", { scope: "col" }, colName(c))))),
    h("tbody", cells.map((row, r) => h("tr", rowHeading(rowName(r)), row))),
  );
  gallery.figure.replaceChildren(table);
  paintHeads();
  markHead();
  roamHeads(table, cells);
}

function headCell(layer, head) {
  const { rows, cols } = gallery.heads;
  const name = `layer ${blockOf(layer)}, head ${head}`;
  const canvas = h("canvas", { width: cols, height: rows, "aria-hidden": "true" });
  return h("td", { tabindex: "-1", data: { layer, head }, "aria-label": name }, canvas);
}

function headCells() {
  return gallery.figure.querySelectorAll("td[data-layer]");
}

/** Paints one ink, as strong as each share, on the paper that shows through. */
function paintHeads() {
  if (!gallery) return;
  const { rows, cols, pictures } = gallery.heads;
  const style = getComputedStyle(document.documentElement);
  const ink = style.getPropertyValue("--heat-ink").trim().split(" ").map(Number);
  const bytes = pictures.map((text) => atob(text));
  for (const cell of headCells()) {
    const context = cell.firstElementChild.getContext("2d");
    const image = context.createImageData(cols, rows);
    const { layer, head } = cell.dataset;
    for (let i = 0; i < rows * cols; i += 1) {
      for (let c = 0; c < 3; c += 1) image.data[4 * i + c] = ink[c];
      image.data[4 * i + 3] = bytes[layer].charCodeAt(head * rows * cols + i);
    }
    context.putImageData(image, 0, 0);
  }
}

function markHead() {
  for (const cell of headCells()) {
    const { layer, head } = cell.dataset;
    const isChosen = Number(layer) === gallery.layer && Number(head) === gallery.head;
    cell.setAttribute("aria-selected", String(isChosen));
    cell.tabIndex = isChosen ? 0 : -1;
  }
}

/** Makes the table one Tab stop: arrows move, Enter goes to the head's numbers. */
function roamHeads(table, cells) {
  const within = (i, count) => Math.max(0, Math.min(count - 1, i));
  const moveTo = (r, c) => {
    table.querySelector("[tabindex='0']").tabIndex = -1;
    const cell = cells[within(r, cells.length)][within(c, cells[0].length)];
    cell.tabIndex = 0;
    cell.focus();
  };
  table.addEventListener("keydown", (event) => {
    const cell = event.target;
    const r = cells.findIndex((row) => row.includes(cell));
    if (r < 0 || event.altKey || event.metaKey) return;
    const [c, all] = [cells[r].indexOf(cell), event.ctrlKey];
    const moves = {
      ArrowUp: () => moveTo(r - 1, c),
      ArrowDown: () => moveTo(r + 1, c),
      ArrowLeft: () => moveTo(r, c - 1),
      ArrowRight: () => moveTo(r, c + 1),
      Home: () => moveTo(all ? 0 : r, 0),
      End: () => moveTo(all ? Infinity : r, Infinity),
      Enter: () => chooseHead(cell).then(() => gallery.view.firstElementChild.focus()),
    };
    if (!moves[event.key]) return;
    moves[event.key]();
    event.preventDefault();
    event.stopPropagation();
  });
  const onCell = (act) => (event) => {
    const cell = event.target.closest("td[data-layer]");
    if (cell) act(cell);
  };
  table.addEventListener("click", onCell((cell) => chooseHead(cell).then(bringHeadIntoView)));
  table.addEventListener("focusin", onCell(readHead));
  table.addEventListener("pointerover", onCell(readHead));
}

/** Says a head in numbers while it has the focus or the pointer: where its last query attends. */
function readHead(cell) {
  clearTimeout(readoutTimer);
  readoutTimer = setTimeout(async () => {
    const { page, readout } = gallery;
    const [layer, head] = [blockOf(cell.dataset.layer), Number(cell.dataset.head)];
    try {
      const { queries } = await page.ask("attention", { layer, head });
      const { label, keys } = queries.at(-1);
      const share = (key) => [", ", token(key.label ?? ""), ` ${show(key.value, "table")}`];
      const shares = keys.flatMap(share).slice(1);
      const name = `Layer ${layer}, head ${head}: `;
      readout.replaceChildren(name, token(label ?? ""), " attends to ", ...shares);
    } catch (error) {
      readout.replaceChildren(visible(error.message));
    }
    if (cell === document.activeElement) page.announce(readout.textContent);
  }, READOUT_MS);
}

/* ---- the chosen head ---- */

function stepHead(layers, heads) {
  const [layer, head] = [gallery.layer + layers, gallery.head + heads];
  const cell = gallery.figure.querySelector(`[data-layer="${layer}"][data-head="${head}"]`);
  if (cell) chooseHead(cell);
}

/** Shows another head below; the address bar follows, the pictures stay. */
async function chooseHead(cell) {
  Object.assign(gallery, { layer: Number(cell.dataset.layer), head: Number(cell.dataset.head) });
  history.replaceState(history.state, "", hashOf("attention", gallery.layer, gallery.head));
  markHead();
  await showHead();
  gallery.page.announce(`${cell.getAttribute("aria-label")} is shown`);
}

/** On a small screen the chosen head stands below the pictures, out of sight. */
function bringHeadIntoView() {
  const heading = gallery.view.firstElementChild;
  if (heading.getBoundingClientRect().bottom > innerHeight) heading.scrollIntoView();
}

async function showHead() {
  const { head, page, view } = gallery;
  const layer = blockOf(gallery.layer);
  const heading = h("h2", { tabindex: "-1", class: "sentence" }, `Layer ${layer}, head ${head}`);
  const answer = await page.ask("attention", { layer, head }).catch((error) => error);
  if (answer instanceof Error) {
    view.replaceChildren(heading, page.fail(answer, showHead));
    return;
  }
  const names = [answer.pattern, ...answer.before];
  const places = names.map(() => h("div.window"));
  const text = h("div.window");
  drawAttended(text, answer, { layer, head }, page);
  const [first, ...rest] = places;
  const parts = h("div.columns.even", h("div", first, text), h("div", rest));
  const options = (i) => ({ heat: i ? null : 1, rows: 16 });
  await Promise.all(names.map((name, i) => fillWindow(places[i], `${name}[h=${head}]`, options(i), page)));
  const isShown = gallery.view === view && gallery.head === head && blockOf(gallery.layer) === layer;
  if (!isShown) return;
  const hadFocus = view.contains(document.activeElement);
  view.replaceChildren(heading, parts);
  if (hadFocus) heading.focus({ preventScroll: true });
}

/** Draws the head in words: each query with the keys that it attends to most. */
function drawAttended(place, { queries, up, down, length }, given, page) {
  const faint = (text) => h("span.faint", text);
  const way = (t, arrow, label) => {
    const turned = () => page.ask("attention", { ...given, t });
    const onclick = async () => drawAttended(place, await turned(), given, page);
    return t !== null && h("button", { "aria-label": label, onclick }, arrow);
  };
  const key = ({ label, at, value }) => [
    h("span.key", token(label ?? ""), " ", numberLink(at, value, "table")),
    " ",
  ];
  const rows = queries.map(({ t, label, keys, folded, rest }) => [
    rowHeading(h("span.axis", `t=${t} `), token(label ?? ""), " →"),
    [keys.map(key), folded > 0 && h("span.key.faint", `${showCount(folded)} more ${show(rest, "table")}`)],
  ]);
  const part = queries.length < length && faint(` · ${queries.length} of ${showCount(length)} queries`);
  const table = plainTable("attended", [], rows);
  table.prepend(h("caption", h("strong", "From token to token"), part));
  const ways = [way(up, "↑", "queries before"), way(down, "↓", "queries after")];
  place.replaceChildren(table, h("div.ways", ways));
}

for (const scheme of SCHEMES) scheme.addEventListener("change", paintHeads);
NARROW.addEventListener("change", () => gallery?.figure.isConnected && drawHeads());
