/**
 * Map: the model as a tree of its values, with shapes, norms and gradients; each value opens as a window.
 *
 * Route: #map/PREFIX, where PREFIX is a branch (blocks.5), a value (blocks.5.attn.q), its gradient (d.…) or either
 * after an update (…@1). In the page: ul.tree; button[data-branch] and button[data-name] with aria-expanded.
 */

import { h } from "./dom.js";
import { changedNames } from "./edit.js";
import { fillWindow } from "./grid.js";
import { glossaryRow, hashOf } from "./link.js";
import { show, showCount } from "./number.js";
import { visible } from "./token.js";

/** Values outside the blocks, by the words that they begin with. */
const BRANCHES = [
  ["embed", /^(embed|position|ids|angles|mask|segment|same_segment|head_channels|directions|bias_)/],
  ["blocks", /^blocks\.\d+\./],
  ["final_norm", /^final_norm/],
  ["unembed", /^(unembed|logits|probs)/],
  ["loss", /^(loss|lse|nll|target|counted|class_weights|weighted|neg_log|uniform|smoothed|cross_|z_)/],
  ["other values", /^/],
];
/** A model with fewer values than this is shown with all its branches open. */
const FEW_VALUES = 40;

export const mapScreen = {
  id: "map",
  title: "Map",
  needsTrace: false,
  async show(main, [prefix = ""], page) {
    const names = await page.names();
    const wanted = partsOfName(prefix || "blocks.0");
    const tree = makeTree(names, wanted.pass);
    const open = tree.count <= FEW_VALUES ? tree.branches : tree.branches.filter(({ id }) => isUnder(wanted.base, id));
    const list = h("ul", { class: tree.gradients.size ? "tree" : "tree no-gradients" });
    const opened = [];
    const context = { names, page, tree, changed: changedNames(page), hasGradients: tree.gradients.size > 0 };
    for (const branch of tree.branches) {
      const { item, openBranch } = branchItem(branch, context);
      list.append(item);
      if (open.includes(branch)) opened.push(openBranch());
    }
    main.append(
      h(main.matches(".screen") ? "h1" : "h2", null, "The model, value by value"),
      h("p", { class: "faint" }, visible(page.session.config ?? ""), ` · ${showCount(page.session.parameters ?? 0)} parameters`),
      passChoice(names, wanted, page) ?? "",
      columnTitles(context),
      list,
    );
    const target = prefix && list.querySelector(`button[data-name="${CSS.escape(withPass(wanted.base, wanted.pass))}"]`);
    if (target) opened.push(target.openValue(wanted));
    return { settled: Promise.all(opened) };
  },
};

/* ---- the tree ---- */

/** Returns the parts of d.BASE.via.USER@PASS. */
function partsOfName(name) {
  const [, d, base, via, pass] = /^(d\.)?(.+?)(?:\.via\.(.+?))?(?:@(\d+))?$/.exec(name);
  return { isGradient: Boolean(d), base, via: via ?? null, pass: Number(pass ?? 0) };
}

function withPass(base, pass) {
  return pass ? `${base}@${pass}` : base;
}

function isUnder(name, branch) {
  return name === branch || name.startsWith(`${branch}.`) || branchOf(name) === branch;
}

function branchOf(name) {
  const [id] = BRANCHES.find(([, pattern]) => pattern.test(name));
  return id === "blocks" ? name.split(".").slice(0, 2).join(".") : id;
}

/** Returns the branches in program order, each with its values; the gradients and other names by value. */
function makeTree({ values, aliases }, pass) {
  const branches = new Map();
  const gradients = new Map();
  const others = new Map();
  for (const [name, shape, role, op, step] of values) {
    const parts = partsOfName(name);
    if (parts.pass !== pass) continue;
    if (parts.isGradient) {
      const key = withPass(parts.base, pass);
      if (!gradients.has(key)) gradients.set(key, []);
      gradients.get(key).push({ name, via: parts.via });
      continue;
    }
    const id = branchOf(parts.base);
    if (!branches.has(id)) branches.set(id, { id, values: [], parameters: 0 });
    const branch = branches.get(id);
    branch.values.push({ name, base: parts.base, shape, role, op, step });
    if (role === "param" || (role === "update" && !/\.[mv]$/.test(parts.base))) {
      branch.parameters += shape.reduce((product, size) => product * size, 1);
    }
  }
  for (const [name, target] of Object.entries(aliases)) others.set(target, [...(others.get(target) ?? []), name]);
  const order = BRANCHES.map(([id]) => id);
  const rank = ({ id }) => order.indexOf(id.startsWith("blocks.") ? "blocks" : id);
  const sorted = [...branches.values()].sort((a, b) => rank(a) - rank(b));
  return { branches: sorted, gradients, others, count: sorted.reduce((n, branch) => n + branch.values.length, 0) };
}

/** Returns a block's values as parts in program order: attn with its values, attn_out, mlp, … */
function partsOfBranch({ id, values }) {
  if (!id.startsWith("blocks.")) return [{ title: null, values: values.map((value) => ({ ...value, leaf: value.name })) }];
  const parts = new Map();
  values.forEach((value, i) => {
    const [first, ...more] = value.name.slice(id.length + 1).split(".");
    const title = more.length ? first : null;
    const key = title ?? value.name;
    if (!parts.has(key)) parts.set(key, { title, values: [], place: values.length + i });
    const part = parts.get(key);
    part.values.push({ ...value, leaf: title ? more.join(".") : first });
    if (value.role !== "param" && value.role !== "update") part.place = Math.min(part.place, i);
  });
  return [...parts.values()].sort((a, b) => a.place - b.place);
}

function branchItem(branch, context) {
  const inner = h("ul", { hidden: true });
  const counted = [`${showCount(branch.values.length)} value${branch.values.length === 1 ? "" : "s"}`];
  if (branch.parameters) counted.push(`${showCount(branch.parameters)} parameters`);
  const button = h(
    "button",
    { type: "button", class: "branch", "aria-expanded": "false", data: { branch: branch.id }, onclick: () => toggle() },
    visible(branch.id),
  );
  let settled = null;
  const openBranch = () => {
    button.setAttribute("aria-expanded", "true");
    inner.hidden = false;
    settled ??= fillBranch(inner, branch, context);
    return settled;
  };
  const toggle = () => {
    if (inner.hidden) return openBranch();
    inner.hidden = true;
    button.setAttribute("aria-expanded", "false");
    return null;
  };
  return { item: h("li", null, h("div", { class: "row" }, button, h("span", { class: "faint" }, counted.join(" · "))), inner), openBranch };
}

/** Lists the values of a branch, then asks for their norms. */
async function fillBranch(list, branch, context) {
  const rows = new Map();
  for (const part of partsOfBranch(branch)) {
    const items = part.values.map((value) => valueItem(value, context, rows));
    if (part.title) list.append(h("li", null, h("div", { class: "row" }, h("span", { class: "part" }, part.title)), h("ul", null, items)));
    else list.append(...items);
  }
  if (context.page.trace) await fillNorms(branch, rows, context.page);
}

async function fillNorms(branch, rows, page) {
  const write = (totals) => {
    for (const [name, { norm, min_at: at }] of Object.entries(totals)) {
      const element = rows.get(name);
      if (element) element.replaceChildren(show(norm, "table"));
      if (element && at) rows.delete(name);
    }
  };
  if (branch.id.startsWith("blocks.")) {
    for (const under of [branch.id, `d.${branch.id}`]) {
      if ([...rows.keys()].some((name) => name.startsWith(under))) {
        await page.ask("total", { under }).then(({ totals }) => write(totals), () => null);
      }
    }
  }
  for (const name of [...rows.keys()]) await page.ask("total", { name }).then(({ totals }) => write(totals), () => null);
}

/* ---- one value ---- */

function columnTitles({ hasGradients, page }) {
  const titles = ["value", "symbol", "shape", page.trace && "norm", hasGradients && "norm of its gradient", page.trace && "step"];
  return h("div", { class: hasGradients ? "row titles" : "row titles no-gradients", "aria-hidden": "true" }, titles.map((text) => h("span", null, text || "")));
}

function valueItem(value, context, rows) {
  const { names, tree, page, changed } = context;
  const about = names.about[glossaryRow(value.name)] ?? {};
  const gradient = (tree.gradients.get(value.name) ?? []).find(({ via }) => via === null);
  const norm = h("span", { class: "number" });
  const gradientNorm = h("span", { class: "number" });
  if (page.trace) rows.set(value.name, norm);
  if (gradient) rows.set(gradient.name, gradientNorm);
  const panel = h("div", { class: "panel", hidden: true });
  const button = h(
    "button",
    {
      type: "button",
      class: "name",
      "aria-expanded": "false",
      disabled: !page.trace,
      title: about.meaning ? visible(about.meaning) : null,
      data: { name: value.name },
      onclick: () => (panel.hidden ? button.openValue(partsOfName(value.name)) : close()),
    },
    visible(value.leaf),
  );
  const close = () => {
    panel.hidden = true;
    button.setAttribute("aria-expanded", "false");
  };
  button.openValue = async (wanted) => {
    panel.hidden = false;
    button.setAttribute("aria-expanded", "true");
    const items = valuePanel(value, about, wanted, context);
    panel.replaceChildren(...items.filter(Boolean));
    const places = Array.from(panel.querySelectorAll(".place-for-window"));
    await Promise.all(places.map((place) => fillWindow(place, place.dataset.value, {}, page)));
  };
  const labelled = (label, element) => h("span", null, h("span", { class: "hidden" }, ` ${label} `), element);
  return h(
    "li",
    null,
    h(
      "div",
      { class: "row" },
      h("span", null, button, changed.has(value.name) && h("span", { class: "faint" }, " changed")),
      h("span", { class: "symbol" }, symbol(about.symbol)),
      h("span", { class: "shape" }, shapeText(value.shape, about.axes)),
      labelled("norm", norm),
      gradient ? labelled("norm of its gradient", gradientNorm) : h("span"),
      h("span", { class: "number faint" }, value.step === null || value.step === undefined ? "" : showCount(value.step + 1)),
    ),
    panel,
  );
}

function valuePanel(value, about, wanted, { names, tree }) {
  const gradients = tree.gradients.get(value.name) ?? [];
  const parts = gradients.filter(({ via }) => via !== null);
  const shown = gradients.find(({ via }) => via === (wanted.isGradient ? wanted.via : null));
  const others = tree.others.get(value.name) ?? [];
  const step = value.op ? `step ${showCount(value.step + 1)} of ${showCount(names.steps)}: ${value.op}` : value.role === "param" ? "a parameter" : "given";
  return [
    h("p", null, visible(about.meaning ?? value.name), h("span", { class: "faint" }, ` · ${step}`)),
    others.length > 0 && h("p", { class: "faint" }, "other names: ", h("code", null, others.map(visible).join(", "))),
    h("div", { class: shown ? "columns even" : null }, placeForWindow(value.name), shown && placeForWindow(shown.name)),
    parts.length > 0 &&
      h(
        "p",
        { class: "faint" },
        "parts of its gradient: ",
        parts.map(({ name, via }, i) => [i > 0 && ", ", h("a", { href: hashOf("map", name) }, h("code", null, `via ${visible(via)}`))]),
      ),
  ];
}

function placeForWindow(name) {
  return h("div", { class: "place-for-window", data: { value: name } });
}

/** Makes a symbol with what follows its underscore as an index. */
function symbol(text = "") {
  const [letter, ...index] = visible(text).split("_");
  return [letter, index.length > 0 && h("sub", null, index.join("_"))];
}

/** Returns the sizes with their axes, without those of size 1: "4 t × 576 c". */
function shapeText(shape, axes = []) {
  const sizes = shape.map((size, i) => `${showCount(size)}${axes[i] && axes[i] !== "1" ? ` ${axes[i]}` : ""}`);
  return sizes.filter((_, i) => shape[i] !== 1).join(" × ") || "1 number";
}

/** Makes the choice between the first forward pass and those after updates. */
function passChoice({ values }, wanted, page) {
  const passes = [...new Set(values.map(([name]) => partsOfName(name).pass))].sort((a, b) => a - b);
  if (passes.length < 2) return null;
  const text = (pass) => (pass === 0 ? "the first forward pass" : pass === 1 ? "after the first update" : `after update ${pass}`);
  const option = (pass) => h("option", { value: String(pass), selected: pass === wanted.pass }, text(pass));
  return h(
    "p",
    { class: "pass" },
    h("label", { for: "pass" }, "Values of "),
    h("select", { id: "pass", onchange: (event) => page.go(hashOf("map", withPass(wanted.base, Number(event.target.value)))) }, passes.map(option)),
  );
}
