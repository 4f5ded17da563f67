/** What stands around a screen: model, tokens, search, choices, navigation, pinned numbers, command. */

import { h, visible } from "./dom.js";
import { editStrip } from "./edit.js";
import { cellLink, hashOf } from "./link.js";
import { chooseDigits, chosenDigits, show, showCount, write } from "./number.js";
import { shorten, token } from "./parts.js";
import { searchBox } from "./search.js";

const header = document.getElementById("header");
const footer = document.getElementById("footer");
/** Addresses of the pinned numbers. */
const pins = [];
let drawnOf = "";

/** Draws header and footer where something changed; the focus stays on the same link, button or choice. */
export function drawHeader(page) {
  const { session, trace } = page;
  const of = JSON.stringify([session.traces, trace?.id, session.busy?.tokens, pins, chosenDigits()]);
  if (of !== drawnOf && !header.querySelector("input:focus")) {
    drawnOf = of;
    const find = () => Array.from(header.querySelectorAll("a, button, select"));
    const focused = find().indexOf(document.activeElement);
    header.replaceChildren(...headerParts(page));
    find()[focused]?.focus();
    footer.replaceChildren(...footerParts(page));
    markCurrent(page);
  }
  drawProgress(page);
}

function headerParts(page) {
  const { session, trace } = page;
  const tokens = (trace?.tokens ?? session.busy?.tokens ?? []).map((entry, i) => chip(entry, i, trace));
  const offered = page.screens.filter((entry) => isOffered(entry, page));
  const parts = [
    h(
      "div.top",
      h("a.model", { href: "#read" }, session.model.split("/").at(-1)),
      tokens.length > 0 && h("ol.chips", { "aria-label": "Tokens" }, tokens),
      h(
        "div.tools",
        trace && searchBox(page),
        traceChoice(page),
        digitsChoice(page),
        h("button.plain", { onclick: page.actions.keys }, "Keys ", h("kbd", "?")),
      ),
    ),
    h("p.progress"),
    h("nav", { "aria-label": "Screens" }, offered.map(screenLink)),
    pins.length > 0 && h("div.pins", h("h2", "Pinned"), h("ul", pins.map((at) => pinned(at, page)))),
    editStrip(page),
  ];
  return parts.filter(Boolean);
}

function footerParts({ session, trace }) {
  const { about } = session;
  return [
    trace?.command ? h("p", "Every number here stands in one trace: ", h("code", trace.command)) : "",
    about ? h("p.checksum", `Pellucid ${about.version}, trace ${about.checksum}`) : "",
  ];
}

/** Whether a screen can be shown: without a trace, only one that needs none. */
export function isOffered(entry, page) {
  return page.trace || entry.needsTrace === false;
}

/** Marks the screen, and the token after which it reads. */
export function markCurrent(page) {
  const mark = (link, isCurrent) => {
    if (isCurrent) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  };
  header.querySelectorAll("nav a").forEach((link) => mark(link, link.dataset.screen === page.screen?.id));
  const position = page.screen?.id === "read" ? page.position : null;
  header.querySelectorAll(".chips a").forEach((link, i) => mark(link, i === position));
}

/** Writes what runs into the screen's own place for it, or into the header's. */
function drawProgress({ session: { busy } }) {
  const step = busy?.steps ? `step ${showCount(busy.step)} of ${showCount(busy.steps)}, ` : "";
  const text = busy ? `${visible(busy.what)}: ${step}${Math.round(busy.seconds)} s` : "";
  const places = Array.from(document.querySelectorAll(".progress"));
  places.forEach((place, i) => (place.textContent = i === places.length - 1 ? text : ""));
}

function screenLink({ id, title }) {
  return h("a", { href: `#${id}`, data: { screen: id } }, title);
}

function chip({ label, id }, i, isLink) {
  const parts = [token(label, 24), h("span.place", `${i} · ${id}`)];
  return h("li", isLink ? h("a", { href: hashOf("read", i) }, parts) : parts);
}

function choice(label, chosen, options, onchange) {
  const option = ([value, text]) => h("option", { value, selected: value === chosen }, text);
  const change = (event) => onchange(event.target.value);
  return h("label", `${label} `, h("select", { onchange: change }, options.map(option)));
}

function traceChoice(page) {
  const { traces } = page.session;
  if (traces.length < 2) return null;
  const name = ({ id, prompt, tokens, edits }) => {
    const edited = edits.length ? `, ${edits.length} edit${edits.length > 1 ? "s" : ""}` : "";
    return `${id}: ${shorten(prompt ?? tokens.map(({ label }) => label).join(""), 20)}${edited}`;
  };
  return choice("Trace", page.trace.id, traces.map((trace) => [trace.id, name(trace)]), page.choose);
}

function digitsChoice(page) {
  const counts = ["2", "3", "4", "5", "6", "7", "8"].map((n) => [n, n]);
  const options = [["", "4 to 6"], ...counts, ["exact", "exact"]];
  return choice("Digits", String(chosenDigits() ?? ""), options, (text) => {
    chooseDigits(text);
    page.refresh();
  });
}

/** Makes a pinned number: what it is in the chosen trace. */
function pinned(at, page) {
  const number = h("span.number");
  const fill = ({ value }) => write(number, show(value, "table"));
  page.ask("cell", { at }).then(fill, () => number.append("not in this trace"));
  return h("li", cellLink(at, at), " ", number);
}

/** Pins a number, or unpins it. */
export function pin(at, page) {
  if (!at) return;
  const found = pins.indexOf(at);
  if (found >= 0) pins.splice(found, 1);
  else pins.push(at);
  page.announce(found >= 0 ? `${at} is no longer pinned` : `${at} is pinned`);
  drawHeader(page);
}
