/**
 * Map: the model as a tree of its values, with shapes, norms and gradients; each value opens as a window.
 *
 * Route: #map/PREFIX, where PREFIX is a branch (blocks.5), a value (blocks.5.attn.q), its gradient (d.…), or
 * any of them after an update (…@1). In the page: ul.tree with button[data-branch] and button[data-name].
 */

import { h } from "./dom.js";
import { changedNames } from "./edit.js";
import { fillWindow } from "./grid.js";
import { glossaryRow, hashOf } from "./link.js";
import { show, showCount } from "./number.js";

/** The branches in order, and the words that the names of their values begin with. */
const BRANCHES = [
  ["embed", /^(embed|position|ids|angles|mask|segment|same_segment|head_channels|directions|bias_)/],
  ["blocks", /^blocks\.\d+/],
  ["final_norm", /^final_norm/],
  ["unembed", /^(unembed|logits|probs)/],
  ["loss", /^(loss|lse|nll|target|counted|class_weights|weighted|neg_log|uniform|smoothed|cross_|z_)/],
  ["other values", /^/],
];
/** A trace with fewer values than this is shown with all its branches open. */
const FEW_VALUES = 100;

export const mapScreen = {
  id: "map",
  title: "Map",
  needsTrace: false,
  async show(main, [prefix = ""], page) {
    const names = await page.names();
    const { config = "", parameters = 0 } = page.session;
    const wanted = partsOfName(prefix || "blocks.0");
    const tree = { names, page, changed: changedNames(page), ...makeTree(names, wanted.pass) };
    const isOpen = ({ id }) => names.values.length <= FEW_VALUES || branchOf(wanted.base) === id;
    const branches = tree.branches.map((branch) => branchItem(branch, tree));
    const kind = tree.gradients.size ? "" : " no-gradients";
    const columns = ["value", "symbol", "shape", "norm", kind ? "" : "norm of its gradient", "step"];
    const titles = columns.map((text) => h("span", text));
    main.append(
      h(main.matches(".screen") ? "h1" : "h2", "The model, value by value"),
      h("p.faint", `${config} · ${showCount(parameters)} parameters`),
      passChoice(names, wanted, page) || "",
      h("div", { class: `row titles${kind}`, "aria-hidden": "true" }, titles),
      h("ul", { class: `tree${kind}` }, branches.map(({ item }) => item)),
    );
    const opened = branches.map((branch, i) => isOpen(tree.branches[i]) && branch.open());
    const target = tree.open.get(withPass(wanted.base, wanted.pass));
    if (target) opened.push(target(wanted));
    return { settled: Promise.all(opened) };
  },
};

/* ---- names ---- */

/** Returns the parts of d.BASE.via.USER@PASS. */
function partsOfName(name) {
  const [, d, base, via = null, pass] = /^(d\.)?(.+?)(?:\.via\.(.+?))?(?:@(\d+))?$/.exec(name);
  return { isGradient: Boolean(d), base, via, pass: Number(pass ?? 0) };
}

function withPass(base, pass) {
  return pass ? `${base}@${pass}` : base;
}

function branchOf(name) {
  const [id, pattern] = BRANCHES.find(([known, words]) => known === name || words.test(name));
  return id === "blocks" ? pattern.exec(name)[0] : id;
}

/** Returns the branches with the values of one pass, and the gradients and other names of each value. */
function makeTree({ values, aliases }, pass) {
  const [branches, gradients, others] = [new Map(), new Map(), new Map()];
  const add = (map, key, entry) => map.set(key, [...(map.get(key) ?? []), entry]);
  for (const [name, shape, role, op, step] of values) {
    const { isGradient, base, via, pass: of } = partsOfName(name);
    if (of !== pass) continue;
    if (isGradient) add(gradients, withPass(base, pass), { name, via });
    else add(branches, branchOf(base), { name, base, shape, role, op, step });
  }
  for (const [name, target] of Object.entries(aliases)) add(others, target, name);
  const rank = ([id]) => BRANCHES.findIndex(([known]) => id.startsWith(known));
  const ranked = [...branches].sort((a, b) => rank(a) - rank(b));
  const sorted = ranked.map(([id, inside]) => ({ id, values: inside }));
  return { branches: sorted, gradients, others, open: new Map() };
}

/** Returns the parts of a block in program order: attn_norm with its values, attn, attn_out, … */
function partsOfBranch({ id, values }) {
  const parts = new Map();
  const pattern = id.startsWith("blocks") ? /^blocks\.\d+\.(?:(.+?)\.)?(.+)$/ : /^()(.+)$/;
  values.forEach((value, i) => {
    const [, title, leaf] = pattern.exec(value.name);
    const key = title || value.name;
    if (!parts.has(key)) parts.set(key, { title, values: [], place: title ? values.length : i });
    parts.get(key).values.push({ ...value, leaf });
    if (value.op) parts.get(key).place = Math.min(parts.get(key).place, i);
  });
  return [...parts.values()].sort((a, b) => a.place - b.place);
}

/** Makes the choice between the first forward pass and those after updates. */
function passChoice({ values }, { base, pass }, page) {
  const passes = [...new Set(values.map(([name]) => partsOfName(name).pass))].sort((a, b) => a - b);
  const text = (k) => (k ? `after update ${k}` : "in the first forward pass");
  const option = (k) => h("option", { value: k, selected: k === pass }, text(k));
  const choose = ({ target }) => page.go(hashOf("map", withPass(base, Number(target.value))));
  const select = h("select", { id: "pass", onchange: choose }, passes.map(option));
  return passes.length > 1 && h("p", h("label", "Values ", select));
}

/* ---- branches and values ---- */

/** Makes a button that opens and closes what `fill` draws once. */
function opener(properties, text, inner, fill) {
  let settled = null;
  const set = (isOpen) => {
    inner.hidden = !isOpen;
    button.setAttribute("aria-expanded", String(isOpen));
  };
  const open = (...given) => {
    set(true);
    if (!settled || given.length) settled = fill(...given);
    return settled;
  };
  const onclick = () => (inner.hidden ? open() : set(false));
  const button = h("button", { "aria-expanded": "false", onclick, ...properties }, text);
  return { button, open };
}

function branchItem(branch, tree) {
  const inner = h("ul", { hidden: true });
  const { id, values } = branch;
  const fill = () => fillBranch(inner, branch, tree);
  const { button, open } = opener({ class: "branch", data: { branch: id } }, id, inner, fill);
  const isParameter = ({ role, base }) => role === "param" || (role === "update" && !/\.[mv]$/.test(base));
  const size = ({ shape }) => shape.reduce((product, length) => product * length, 1);
  const parameters = values.filter(isParameter).reduce((sum, value) => sum + size(value), 0);
  const counted = parameters ? ` · ${showCount(parameters)} parameters` : "";
  const count = h("span.faint", `${values.length} values${counted}`);
  return { open, item: h("li", h("div.row", button, count), inner) };
}

/** Lists the values of a branch, then asks for their norms. */
async function fillBranch(list, branch, tree) {
  const norms = new Map();
  for (const { title, values } of partsOfBranch(branch)) {
    const items = values.map((value) => valueItem(value, tree, norms));
    const row = title && h("div.row.part", title);
    list.append(...(title ? [h("li", row, h("ul", items))] : items));
  }
  if (!tree.page.trace) return;
  const fill = async (given) => {
    const { totals } = await tree.page.ask("total", given).catch(() => ({ totals: {} }));
    for (const [name, { norm }] of Object.entries(totals)) {
      norms.get(name)?.append(show(norm, "table"));
      norms.delete(name);
    }
  };
  if (branch.id.startsWith("blocks")) {
    await fill({ under: branch.id });
    if (tree.gradients.size) await fill({ under: `d.${branch.id}` });
  }
  for (const name of [...norms.keys()]) await fill({ name });
}

function valueItem(value, tree, norms) {
  const { name, shape, step } = value;
  const { page, names } = tree;
  const about = names.about[glossaryRow(name)] ?? {};
  const norm = (label, of) => {
    const element = h("span.number");
    if (of && page.trace) norms.set(of, element);
    return h("span", of && page.trace && h("span.hidden", ` ${label} `), element);
  };
  const panel = h("div.panel", { hidden: true });
  const { button, open } = opener(
    { class: "name", disabled: !page.trace, data: { name } },
    value.leaf,
    panel,
    (wanted = partsOfName(name)) => fillPanel(panel, value, about, wanted, tree),
  );
  tree.open.set(name, open);
  const at = Number.isInteger(step) && showCount(step + 1);
  const [letter, ...index] = (about.symbol ?? "").split("_");
  return h(
    "li",
    h(
      "div.row",
      h("span", button, tree.changed.has(name) && " changed"),
      h("span.symbol", letter, index.length > 0 && h("sub", index.join("_"))),
      h("span", shapeText(shape, about.axes)),
      norm("norm", name),
      norm("norm of its gradient", gradientOf(name, null, tree)),
      h("span", at && h("span.hidden", " step "), h("span.number.faint", at)),
    ),
    panel,
  );
}

/** Returns the name of a value's gradient, or of its part through a user; it may be another name of one. */
function gradientOf(name, user, { names, gradients }) {
  const other = `d.${name}`;
  const found = gradients.get(name)?.find(({ via }) => via === user)?.name;
  return found ?? (user === null && names.aliases[other] ? other : undefined);
}

/** Draws a value's meaning, its window, and beside it the window of its gradient. */
function fillPanel(panel, { name, role, op, step }, about, wanted, tree) {
  const { page, names, gradients, others } = tree;
  const parts = (gradients.get(name) ?? []).filter(({ via }) => via !== null);
  const shown = [name, gradientOf(name, wanted.via, tree)].filter(Boolean);
  const places = shown.map(() => h("div.window"));
  const given = role === "param" ? "a parameter" : "given";
  const origin = op ? `step ${showCount(step + 1)} of ${showCount(names.steps)}: ${op}` : given;
  const link = (part) => h("a", { href: hashOf("map", part.name) }, h("code", ` ${part.via}`));
  const also = others.get(name) ?? [];
  panel.replaceChildren(
    h("p", about.meaning || name, h("span.faint", ` · ${origin}`)),
    also.length ? h("p.faint", "Other names: ", h("code", also.join(", "))) : "",
    h("div", { class: shown.length > 1 ? "columns even" : null }, places),
    parts.length ? h("p.faint", "Parts of its gradient, through", parts.map(link)) : "",
  );
  return Promise.all(shown.map((at, i) => fillWindow(places[i], at, {}, page)));
}

/** Returns the sizes with their axes, without those of size 1: "4 t × 576 c". */
function shapeText(shape, axes = []) {
  const sizes = shape.map((size, i) => `${showCount(size)}${/^[a-z]/.test(axes[i]) ? ` ${axes[i]}` : ""}`);
  return sizes.filter((_, i) => shape[i] !== 1).join(" × ") || "one number";
}
