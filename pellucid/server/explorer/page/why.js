/** Why: one number, its formula, its numbers, where it stands, what it reads, and where each came from. */

import { h } from "./dom.js";
import { fillWindow, valueWindow } from "./grid.js";
import { cellLink, hashOf, numberLink } from "./link.js";
import { formula } from "./math.js";
import { show, showCount, spell, write } from "./number.js";
import { bars, pieces, token } from "./parts.js";

const WASHES = ["a", "b", "c"];
const MOST_CRUMBS = 6;
const MOST_TERMS = 128;
const PHASES = { fwd: "forward", bwd: "backward", upd: "update" };

/** The shown cell and its page, for the keys. */
let current = null;
let currentPage = null;

export const whyScreen = {
  id: "why",
  title: "Why",
  here: () => current?.at,
  actions: {
    step: (direction) => openCell(direction > 0 ? current?.following : current?.previous),
    twin: (phase) => openCell((current?.role === "grad") === (phase === "forward") ? current?.twin : null),
    layer: (direction) => openCell(neighborLayer(direction)),
    head: (direction) => openCell(neighborPlace("h", direction)),
    token: (direction) => openCell(neighborPlace("t", direction)),
  },

  async show(main, [address, ...options], page) {
    currentPage = page;
    current = null;
    const at = address || (await findFirstCell(page));
    if (!at.includes("[") && (await isTable(at, page))) return showValue(main, at, page);
    const cell = await page.ask("cell", { at, flatten: options.includes("flatten") || null });
    current = cell;
    const parts = [headOf, formulaOf, arithmeticOf, operandsOf].map((part) => part(cell, page));
    const stands = windowsSection("Where it stands", [cell.stands], page);
    const reads = cell.reads.length ? windowsSection("What it reads", cell.reads, page) : null;
    main.append(
      crumbs(page.walk(cell.at)),
      h(
        "div.columns",
        h("div.left", parts, onwardSection(cell, page)),
        h("div.right", stands.section, reads?.section),
      ),
    );
    page.announce(spellCell(cell));
    return { settled: Promise.all([stands.settled, reads?.settled]) };
  },
};

/** Returns the address of the likeliest next token, where a reader begins. */
async function findFirstCell(page) {
  const { tokens } = await page.ask("next");
  return tokens[0].at;
}

/** Whether a name without an index means a whole table of numbers. */
async function isTable(name, page) {
  const { values } = await page.names();
  return values.some(([known, shape]) => known === name && shape.some((size) => size !== 1));
}

/** Shows a value: its first window. */
async function showValue(main, name, page) {
  const [table, { meaning, shape }] = await Promise.all([
    valueWindow(name, {}, page),
    page.ask("value", { at: name }),
  ]);
  const size = shape.map(showCount).join(" × ");
  main.append(
    h("h1", meaning || name),
    h("p.address", `${name} · ${size}`),
    h("section", table),
  );
}

function openCell(at) {
  if (at) currentPage.go(hashOf("why", at));
}

function neighborLayer(direction) {
  const found = /\bblocks\.(\d+)\./.exec(current?.at ?? "");
  const layer = found ? Number(found[1]) + direction : -1;
  if (layer < 0 || layer >= currentPage.session.layers) return null;
  return current.at.replace(found[0], `blocks.${layer}.`);
}

function neighborPlace(axis, direction) {
  const found = current?.places.find((place) => place.axis === axis);
  const i = found ? found.i + direction : -1;
  if (i < 0 || i >= found?.size) return null;
  return current.at.replace(new RegExp(`([[,]${axis}=)\\d+`), `$1${i}`);
}

function spellCell(cell) {
  const place = ({ axis, i, label, about }) => `${about ?? axis} ${label || i}`;
  return [cell.meaning || cell.name, ...cell.places.map(place), spell(cell.value, "line")].join(", ");
}

function plural(count, noun) {
  return `${showCount(count)} ${noun}${count === 1 ? "" : "s"}`;
}

function section(heading, ...children) {
  return h("section", h("h2", heading), ...children);
}

/* ---- left column ---- */

function crumbs(walk) {
  if (walk.length < 2) return "";
  const shown = walk.slice(-MOST_CRUMBS);
  const before = walk.length - shown.length;
  const last = shown.pop();
  return h(
    "nav",
    { class: "crumbs", "aria-label": "Numbers on the way here" },
    h(
      "ol",
      before > 0 && h("li.faint", `${before} before`),
      shown.map((at) => h("li", cellLink(at, at))),
      h("li", { "aria-current": "page" }, last),
    ),
  );
}

function headOf(cell, page) {
  const places = cell.places.filter(({ label }) => label);
  return h(
    "div.head",
    h("h1", cell.meaning || cell.name),
    write(h("p.headline.number", { data: { at: cell.at } }), show(cell.value, "headline")),
    cell.token && h("p", "The token ", token(cell.token, 24)),
    h(
      "p.address",
      h("span.number", cell.at),
      places.map(({ axis, i, label }) => h("span.place", `${axis}=${i} `, token(label, 24))),
    ),
    h("p.faint", stepText(cell)),
    editText(cell, page),
  );
}

function stepText(cell) {
  const [i, count] = cell.step ?? [];
  const phase = PHASES[cell.phase] ?? cell.phase;
  if (cell.step) return `Step ${showCount(i + 1)} of ${showCount(count)}, ${phase}: ${cell.op}`;
  return cell.role === "param" ? "A parameter: learned, not computed in this trace" : "Given, not computed";
}

function editText(cell, page) {
  const { edited, original } = cell;
  if (edited) {
    const number = numberLink(edited.at, edited.value, "headline");
    return h("p.edited", "Set by you; its formula gives ", number, ".");
  }
  if (original === null || original === undefined) return null;
  const number = h("span.number", show(original, "headline"));
  const isGiven = page.trace.edits.some(({ at }) => at === cell.at);
  return h("p.edited", isGiven ? "Set by you; before, " : "Changed by an edit; before it, ", number, ".");
}

function formulaOf(cell) {
  if (!cell.math) return null;
  const properties = { class: "formula", tabindex: "0", role: "group", "aria-label": "Formula" };
  return section("Its formula", h("div", properties, formula(cell.math, cell.formula)));
}

function arithmeticOf(cell, page) {
  if (!cell.line || cell.edited) return null;
  const isSum = cell.line.every((piece) => piece === "-" || piece.kind === "total");
  const result = write(h("strong"), show(cell.value, "line"));
  const count = cell.terms.length + cell.folded;
  return section(
    "With its numbers",
    isSum
      ? h("p.line", `the sum of ${plural(count, "term")}: `, h("span.number", result))
      : h("p.line.number", "= ", pieces(cell.line), " = ", result),
    cell.note && h("p.faint", cell.note),
    cell.terms.length > 0 && h("div.scroll", termsTable(cell)),
    cell.folded > 0 && !page.isExported && moreButton(cell, page),
  );
}

function termsTable(cell) {
  const rest = cell.folded > 0 ? [cell.rest] : [];
  const drawn = bars([...cell.terms.map(({ value }) => value), ...rest]);
  const row = (head, line, value, bar) =>
    h(
      "tr",
      h("th", { scope: "row", colspan: line ? null : 2 }, head),
      line && h("td.line.number", line),
      write(h("td.number"), show(value, "line")),
      h("td", bar),
    );
  return h(
    "table.terms",
    h("caption", rest.length ? "The largest terms, and the sum of the others" : "Its terms"),
    h(
      "tbody",
      cell.terms.map((term, i) => row(whereOf(term.where), pieces(term.line), term.value, drawn[i])),
    ),
    h(
      "tfoot",
      rest.map((value) => row(plural(cell.folded, "smaller term"), null, value, drawn.at(-1))),
      cell.total !== null && row("sum", null, cell.total, null),
    ),
  );
}

/** Makes the button that shows as many terms as one answer has. */
function moreButton(cell, page) {
  const count = Math.min(cell.terms.length + cell.folded, MOST_TERMS);
  const showMore = async ({ target }) => {
    try {
      const more = await page.ask("cell", { at: cell.at, flatten: cell.is_flattened || null, top: count });
      target.previousElementSibling.replaceChildren(termsTable(more));
      target.remove();
    } catch (error) {
      target.replaceWith(page.fail(error, page.refresh));
    }
  };
  return h("button", { onclick: showMore }, `show ${plural(count, "term")}`);
}

function whereOf(where) {
  return where.map(([axis, i, label], k) => [
    k > 0 && ", ",
    axis === "name" ? String(i) : `${axis}=${i}`,
    label && [" ", token(label)],
  ]);
}

function operandsOf(cell) {
  if (!cell.operands.length) return null;
  const washes = {};
  cell.reads.forEach(({ operand }, i) => (washes[operand] ??= WASHES[i % WASHES.length]));
  return section(
    "Follow it back",
    h("ul.operands", cell.operands.map((operand, i) => operandRow(operand, washes[i]))),
  );
}

function operandRow({ at, value, meaning, symbol, places, opens, others }, wash) {
  const labels = (places ?? []).filter(({ label }) => label).map(({ label }) => [" ", token(label)]);
  const also = (others ?? []).map((other, k) => [k > 0 && ", ", numberLink(other.at, other.value, "table")]);
  return h(
    "li",
    { class: wash },
    h(
      opens ? "a" : "div",
      { class: "operand", href: opens ? hashOf("why", at) : null, data: { at } },
      h(
        "span.what",
        h("span.meaning", meaning || symbol || ""),
        h("span.address", at, labels),
      ),
      write(h("span.number"), show(value, "line")),
    ),
    also.length > 0 && h("p.others", "also ", also),
  );
}

function onwardSection(cell, page) {
  const to = (text, ...parts) => parts[0] && h("a.button", { href: hashOf("why", ...parts) }, text);
  const button = (text, onclick) => h("button", { onclick }, text);
  const uses = h("div.uses");
  const all = cell.role === "grad" ? "all terms" : "all writers of this channel";
  return h(
    "section",
    { "aria-label": "Ways on" },
    h(
      "div.buttons",
      to("previous step", cell.previous),
      to("next step", cell.following),
      to(cell.role === "grad" ? "its value" : "its gradient", cell.twin),
      button("what reads it", () => showUses(uses, cell, page)),
      cell.can_edit && page.actions.edit && button("edit", () => page.actions.edit(null, document.body)),
      cell.can_flatten && !cell.is_flattened && to(all, cell.at, "flatten"),
      cell.is_flattened && to("the last addition alone", cell.at),
      button("copy address", (event) => copyAddress(cell, event.target, page)),
    ),
    uses,
  );
}

async function showUses(element, cell, page) {
  try {
    const { readers } = await page.ask("uses", { name: cell.name, at: cell.at });
    const text = readers.length ? `Read by ${plural(readers.length, "step")}` : "No step reads it";
    const about = ({ op, meaning }) => h("span.faint", meaning || op || "");
    const entry = (reader) => h("li", cellLink(reader.at, reader.name), " ", about(reader));
    element.replaceChildren(h("p.faint", text), h("ul", readers.map(entry)));
    page.announce(text);
    element.querySelector("a")?.focus();
  } catch (error) {
    element.replaceChildren(page.fail(error, () => showUses(element, cell, page), cell.at));
  }
}

async function copyAddress(cell, button, page) {
  try {
    await navigator.clipboard.writeText(cell.at);
    button.textContent = "copied";
    page.announce(`copied ${cell.at}`);
  } catch {
    document.getSelection().selectAllChildren(document.querySelector(".head .address .number"));
    page.announce("the address is selected");
  }
}

/* ---- right column ---- */

/** Makes a section of windows; each is drawn when its numbers arrive. */
function windowsSection(heading, windows, page) {
  const places = windows.map(() => h("div"));
  const settled = windows.map(({ window, focus, marks, more_marks: more }, i) => {
    const wash = WASHES[i % WASHES.length];
    return fillWindow(places[i], window, { focus, marks: marks ? [marks, ...(more ?? [])] : [], wash }, page);
  });
  return { section: section(heading, places), settled: Promise.all(settled) };
}
