/**
 * The page: routes, history, focus, live region. CONTRIBUTING.md says how a screen is written, and what `page` has.
 */

import { ask, AskError, isExported, keepKey, post, takeKey } from "./ask.js";
import { attentionScreen } from "./attention.js";
import { h, visible } from "./dom.js";
import { canEdit, listenToUndo, startEdit } from "./edit.js";
import { drawHeader, isOffered, markCurrent, pin } from "./header.js";
import { listenToKeys, showKeys } from "./keys.js";
import { hashOf, readHash } from "./link.js";
import { mapScreen } from "./map.js";
import { peek, toggleCovering, withHyphen } from "./number.js";
import { readScreen } from "./read.js";
import { whyScreen } from "./why.js";

const SCREENS = [readScreen, whyScreen, mapScreen, attentionScreen];
const POLL_MS = 200;
const MOST_WALKED = 200;
const FAILURES = {
  missing: "Not in this page",
  lost: "No answer",
  refused: "This cannot be shown",
  locked: "The server asks for its key",
};

const main = document.getElementById("main");
const live = document.getElementById("live");

let drawing = 0;
let timer = null;
let isRunning = false;
/** Addresses opened one after another; each entry of the history keeps its own. */
let walked = [];

const page = {
  screens: SCREENS,
  screen: null,
  session: null,
  trace: null,
  isExported,
  ask: (name, given = {}) => ask(name, { trace: page.trace?.id, ...given }),
  post: (name, given = {}) => post(name, { trace: page.trace?.id, ...given }),
  names: () => page.ask("names"),
  run,
  go,
  choose,
  reload,
  refresh: () => route(true),
  walk,
  recallWindow: (at) => history.state?.windows?.[at],
  keepWindow: (at, turned) => keepState({ windows: { ...history.state?.windows, [at]: turned } }),
  announce: (text) => (live.textContent = visible(text)),
  fail,
  actions: {
    search: () => document.getElementById("search")?.focus(),
    why: (_, target) => target.dataset?.at && go(hashOf("why", target.dataset.at), target),
    pin: (_, target) => pin(target.dataset?.at ?? page.screen?.here?.(), page),
    cover,
    get edit() {
      const place = (target) => target.closest("[data-at]") ?? main.querySelector(".headline[data-at]");
      return canEdit(page) ? (_, target) => startEdit(place(target), page) : undefined;
    },
    keys: () => showKeys(findAction),
  },
};

function findAction(action) {
  return page.screen?.actions?.[action] ?? page.actions[action];
}

/* ---- the session ---- */

async function reload() {
  page.session = await ask("session");
  const { traces } = page.session;
  page.trace = traces.find(({ id }) => id === page.trace?.id) ?? traces.at(-1) ?? null;
  drawHeader(page);
  clearTimeout(timer);
  if (page.session.busy) timer = setTimeout(poll, POLL_MS);
}

/** Asks for the session while something runs; draws the first trace when it is there. */
async function poll() {
  const hadTrace = page.trace !== null;
  try {
    await reload();
  } catch (error) {
    return showFailure(error);
  }
  if (!hadTrace && !isRunning && (page.trace || !page.session.busy)) route();
}

async function run(given, question = "run") {
  isRunning = true;
  timer = setTimeout(poll, POLL_MS);
  try {
    const { trace, note } = await post(question, given);
    await choose(trace);
    if (note) main.querySelector("h1").after(h("p", note));
  } finally {
    isRunning = false;
    await reload();
  }
}

async function choose(id) {
  if (!page.session.traces.some((trace) => trace.id === id)) await reload();
  const found = page.session.traces.find((trace) => trace.id === id);
  if (!found) throw new AskError(`There is no trace ${id}.`, "refused");
  page.trace = found;
  drawHeader(page);
  await route(true);
}

/** Draws the screen of the address bar; of #trace/tr_ID, an answer of the server, when its tokens were run. */
async function showHash() {
  const [id, answer] = readHash(location.hash);
  if (id !== "trace" || !answer?.startsWith("tr_")) return route();
  main.replaceChildren(...progress());
  return run({ answer }, "open").catch(showFailure);
}

/* ---- actions ---- */

function cover() {
  const isCovered = document.documentElement.classList.toggle("covering", toggleCovering());
  page.announce(isCovered ? "the numbers are covered" : "the numbers are shown");
  route(true);
}

/* ---- routes ---- */

function go(hash, from = document.activeElement) {
  remember(from);
  if (location.hash === hash) route();
  else location.hash = hash;
}

/** Writes into the history which number was opened, so that going back returns to it. */
function remember(element) {
  keepState({ opened: element ? openedKey(element) : null, scroll: window.scrollY });
}

function keepState(more) {
  try {
    history.replaceState({ ...history.state, ...more }, "");
  } catch {
    return; // a frame without a history of its own
  }
}

function walk(at) {
  const kept = history.state?.walk;
  const place = walked.indexOf(at);
  if (kept?.at(-1) === at) walked = kept;
  else walked = place >= 0 ? walked.slice(0, place + 1) : [...walked.slice(-MOST_WALKED), at];
  keepState({ walk: walked });
  return walked;
}

/**
 * Draws the screen of the address bar; with `isSame`, focus and scroll stay where they are. Once every part
 * is drawn, data-drawn says of which address: what measures or reads the page waits for it.
 */
async function route(isSame = false) {
  const number = ++drawing;
  delete main.dataset.drawn;
  const [screen, args] = readRoute();
  page.screen = screen;
  if (screen !== whyScreen) walked = [];
  const view = h("div", { class: `screen ${screen.id}` });
  main.setAttribute("aria-busy", "true");
  let drawn = null;
  try {
    drawn = !page.trace && page.session.busy ? await showProgress(view) : await screen.show(view, args, page);
    const { failed } = page.session;
    if (!page.trace && failed) view.prepend(fail(new AskError(failed.message, "refused"), start));
  } catch (error) {
    if (!(error instanceof AskError)) console.error(error);
    showFailure(error, view, args[0]);
  }
  if (number !== drawing) return;
  const hadFocus = main.contains(document.activeElement);
  const held = hadFocus ? openedKey(document.activeElement) : null;
  const scroll = isSame ? window.scrollY : history.state?.scroll ?? 0;
  main.removeAttribute("aria-busy");
  main.replaceChildren(view);
  drawHeader(page);
  markCurrent(page);
  const title = view.querySelector("h1")?.textContent ?? screen.title;
  document.title = `${title} · ${visible(page.session.model)}`;
  const isBack = !isSame && history.state?.seen === true;
  const opened = isSame ? held : isBack ? history.state.opened : null;
  keepState({ seen: true });
  window.scrollTo(0, scroll);
  const isRestored = opened && (await restore(opened, drawn, number));
  const isMoved = isSame ? hadFocus : number > 1;
  if (!isRestored && isMoved && number === drawing) focusHeading(view);
  await drawn?.settled;
  if (number !== drawing) return;
  if (opened) window.scrollTo(0, scroll);
  main.dataset.drawn = location.hash;
}

/** Returns the screen and its arguments; #trace/ID chooses a trace and shows the first screen. */
function readRoute() {
  const [id, ...args] = readHash(location.hash);
  const trace = id === "trace" && page.session.traces.find((entry) => entry.id === args[0]);
  if (trace && trace !== page.trace) {
    page.trace = trace;
    drawHeader(page);
  }
  const found = SCREENS.find((entry) => entry.id === id && isOffered(entry, page));
  return found ? [found, args] : [SCREENS[0], []];
}

/** Returns an address, and which of its numbers on the screen an element is. */
function openedKey(element) {
  const at = element.dataset.at;
  return at ? [at, numbersAt(at).indexOf(element)] : null;
}

function numbersAt(at) {
  return Array.from(main.querySelectorAll("[data-at]")).filter((element) => element.dataset.at === at);
}

/** Focuses the number that was opened; waits for the parts that are drawn later. */
async function restore([at, i], drawn, number) {
  if (!numbersAt(at)[i]) await drawn?.settled;
  const element = number === drawing ? numbersAt(at)[i] : null;
  element?.focus({ preventScroll: true });
  return Boolean(element);
}

function focusHeading(view) {
  const heading = view.querySelector("h1") ?? main;
  heading.tabIndex = -1;
  heading.focus({ preventScroll: true });
}

/** Makes what `drawHeader` fills while something runs. */
const progress = () => [h("h1", "Computing the trace"), h("p.progress.faint")];

/** Shows what runs, and below it the model's map, which needs no trace. */
async function showProgress(view) {
  const below = h("section");
  view.append(...progress(), below);
  return mapScreen.show(below, [], page);
}

function fail(error, retry, at) {
  const isMissing = error.kind === "missing";
  const quoted = at && `'${at.replaceAll("'", "'\\''")}'`; // whatever a link says, a shell takes it as one word
  const command = page.trace?.command?.replace("ADDRESS", () => quoted || "ADDRESS");
  const again = ({ target }) => ((target.textContent = "Retrying…"), retry());
  return h(
    "div",
    { class: "failure", role: "alert" },
    h("p", error.message),
    error.remedy && h("p", error.remedy),
    isMissing && command && h("p", "This command shows it: ", h("code", command)),
    error.kind === "locked" ? keyForm() : !isMissing && h("button", { onclick: again }, "Retry"),
  );
}

function keyForm() {
  const key = h("input", { type: "password" });
  const open = (event) => (event.preventDefault(), keepKey(key.value), start());
  return h("form.ask", { onsubmit: open }, h("label", "Key ", key), h("button", { type: "submit" }, "Open"));
}

function showFailure(error, view = main, at) {
  view.replaceChildren(h("h1", FAILURES[error.kind] ?? FAILURES.refused), fail(error, start, at));
}

/* ---- start ---- */

async function start() {
  try {
    await reload();
  } catch (error) {
    return showFailure(error);
  }
  await showHash();
}

function onHashChange() {
  if (location.hash.startsWith("#key=")) {
    takeKey();
    start();
  } else if (page.session) showHash();
}

/** Uncovers a number in place of opening it. */
function uncover(event) {
  if (!peek(event.target)) return false;
  event.preventDefault();
  event.stopPropagation();
  return true;
}

function onClick(event) {
  if (uncover(event)) return;
  const link = event.target.closest("a[href^='#']");
  if (!link) return;
  if (link.hash === "#main") {
    event.preventDefault();
    main.focus();
  } else if (location.protocol === "about:") {
    event.preventDefault(); // a notebook's frame: links there begin at the notebook's address
    go(link.getAttribute("href"), link);
  } else remember(link);
}

function onCopy(event) {
  const text = document.getSelection()?.toString() ?? "";
  if (!text.includes("−")) return;
  event.clipboardData.setData("text/plain", withHyphen(text));
  event.preventDefault();
}

history.scrollRestoration = "manual";
takeKey();
listenToKeys(findAction);
listenToUndo(page);
window.addEventListener("hashchange", onHashChange);
document.addEventListener("click", onClick, true);
document.addEventListener("keydown", (event) => event.key === "Enter" && uncover(event), true);
document.addEventListener("copy", onCopy);
start();
