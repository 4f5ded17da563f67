/**
 * The page: routes, header, history, focus, live region.
 *
 * A screen is a module that exports one object, and a line in SCREENS below:
 *
 *   export const whyScreen = {
 *     id: "why",                       // its route is #why, #why/A, #why/A/B
 *     title: "Why",                    // its word in the navigation
 *     needsTrace: true,                // optional, true unless given: without a trace the first screen is shown
 *     actions: { layer(step, target) {} },   // optional: what the keys of keys.js do here; page is page
 *     async show(main, args, page) {   // draws into the empty element `main`; args are the parts of the route
 *       const answer = await page.ask("next", { count: 8 });
 *       main.append(h("h1", null, "What comes next"), …);   // the first h1 gets the focus
 *     },                               // may return { settled: promise } for parts that are drawn later
 *   };
 *
 * Whatever `show` throws is shown with Retry. `page` has:
 *   session                  the last answer to `session`
 *   trace                    the chosen entry of session.traces, null while there is none
 *   ask(name, given)         the answer to a question about the chosen trace (`trace` is added), kept
 *   post(name, given)        the same for questions that run or edit
 *   run(given)               runs a prompt, shows the progress, chooses the new trace; throws where it fails
 *   names()                  the answer to `names`
 *   go(hash, from)           opens a route; `from` is the element to which going back returns
 *   choose(id)               shows another trace (undo, redo: an edit's parent or child), on the same screen
 *   reload()                 asks for the session again and draws the header
 *   refresh()                draws the screen again
 *   walk(at)                 the addresses opened one after another up to this one
 *   announce(text)           says a text in the live region
 *   fail(error, retry)       makes the element that shows an error with Retry
 *   actions                  what the keys do on every screen
 */

import { ask, AskError, isExported, post, takeKey } from "./ask.js";
import { h } from "./dom.js";
import { listenToKeys, showKeys } from "./keys.js";
import { cellLink, hashOf, readHash } from "./link.js";
import { chooseDigits, chosenDigits, peek, show, showCount, toggleCovering, withHyphen } from "./number.js";
import { readScreen } from "./read.js";
import { searchBox } from "./search.js";
import { token, visible } from "./token.js";
import { whyScreen } from "./why.js";

const SCREENS = [readScreen, whyScreen];
const POLL_MS = 500;
const MOST_WALKED = 200;

const header = document.getElementById("header");
const main = document.getElementById("main");
const footer = document.getElementById("footer");
const live = document.getElementById("live");

let screen = null;
let turnNumber = 0;
let timer = null;
/** Pinned cells: {at, value}. */
const pins = [];

const page = {
  session: null,
  trace: null,
  isExported,
  ask: (name, given = {}) => ask(name, { trace: page.trace?.id, ...given }),
  post: (name, given = {}) => post(name, { trace: page.trace?.id, ...given }),
  names: () => ask("names", { trace: page.trace?.id }),
  run,
  go,
  choose,
  reload,
  refresh: () => route(true),
  walk,
  announce: (text) => (live.textContent = text),
  fail,
  actions: {
    search: () => document.getElementById("search")?.focus(),
    why: (_, target) => target.dataset?.at && go(hashOf("why", target.dataset.at), target),
    pin: (_, target) => pin(target.dataset?.at ?? screen?.here?.()),
    cover,
    keys: () => showKeys(findAction),
  },
};

function findAction(action) {
  return screen?.actions?.[action] ?? page.actions[action];
}

/* ---- the session ---- */

async function reload() {
  page.session = await ask("session");
  const { traces } = page.session;
  page.trace = traces.find(({ id }) => id === page.trace?.id) ?? traces.at(-1) ?? null;
  drawHeader();
  watch();
}

/** Asks for the session twice a second while something runs. */
function watch() {
  clearTimeout(timer);
  if (!page.session?.busy) return;
  timer = setTimeout(async () => {
    const before = page.trace?.id ?? null;
    try {
      await reload();
    } catch (error) {
      main.replaceChildren(fail(error, start));
      return;
    }
    const isNew = page.session.traces.length > 0 && before === null;
    if (isNew || (before === null && !page.session.busy)) route();
  }, POLL_MS);
}

async function run(given) {
  const answer = post("run", given);
  const wait = setInterval(() => ask("session").then((session) => ((page.session = session), drawHeader())).catch(() => null), POLL_MS);
  try {
    const { trace } = await answer;
    await reload();
    page.trace = page.session.traces.find(({ id }) => id === trace) ?? page.trace;
  } finally {
    clearInterval(wait);
    await reload().catch(() => null);
  }
  await route(true);
}

async function choose(id) {
  if (!page.session.traces.some((trace) => trace.id === id)) await reload();
  const found = page.session.traces.find((trace) => trace.id === id);
  if (!found) throw new AskError(`There is no trace ${id}.`, "refused");
  page.trace = found;
  drawHeader();
  await route(true);
}

/* ---- header and footer ---- */

function drawHeader() {
  const { session, trace } = page;
  const tokens = trace?.tokens ?? session.busy?.tokens ?? [];
  const isSearching = header.contains(document.activeElement) && document.activeElement.id;
  if (isSearching) {
    const status = header.querySelector(".status");
    if (status) return status.replaceWith(statusLine());
  }
  header.replaceChildren(
    h(
      "div",
      { class: "top" },
      h("a", { class: "model", href: "#read" }, visible(session.model.split("/").at(-1))),
      tokens.length > 0 && h("ol", { class: "chips", "aria-label": "Tokens" }, tokens.map(chip)),
      h("div", { class: "tools" }, trace && searchBox(page), digitsChoice(), keysButton()),
    ),
    statusLine(),
    h(
      "nav",
      { "aria-label": "Screens" },
      SCREENS.filter(isOffered).map(({ id, title }) =>
        h("a", { href: `#${id}`, data: { screen: id }, "aria-current": id === screen?.id ? "page" : null }, title),
      ),
    ),
    pinned(),
  );
  footer.replaceChildren(
    trace ? h("p", null, "Every number here stands in one trace: ", h("code", null, visible(trace.command))) : "",
  );
}

function isOffered(entry) {
  return page.trace || entry.needsTrace === false;
}

function chip({ label, id }, i) {
  return h("li", null, token(label, 24), h("span", { class: "place" }, `${i} · ${id}`));
}

function statusLine() {
  const { busy } = page.session;
  const text = busy
    ? `${busy.what}: ${busy.steps ? `step ${showCount(busy.step)} of ${showCount(busy.steps)}, ` : ""}${Math.round(busy.seconds)} s`
    : "";
  return h("p", { class: "status" }, text);
}

function digitsChoice() {
  const chosen = String(chosenDigits() ?? "");
  const option = (value, text) => h("option", { value, selected: value === chosen }, text);
  return h(
    "label",
    { class: "digits" },
    "Digits ",
    h(
      "select",
      {
        onchange: (event) => {
          chooseDigits(event.target.value);
          route(true);
        },
      },
      option("", "4 to 6"),
      ["2", "3", "4", "5", "6", "7", "8"].map((n) => option(n, n)),
      option("exact", "exact"),
    ),
  );
}

function keysButton() {
  return h("button", { type: "button", class: "plain", onclick: () => showKeys(findAction) }, "Keys ", h("kbd", null, "?"));
}

function pinned() {
  if (!pins.length) return "";
  return h(
    "ul",
    { class: "pins", "aria-label": "Pinned numbers" },
    h("li", { class: "faint" }, "Pinned"),
    pins.map(({ at, value }) => h("li", null, cellLink(at, visible(at)), value !== null && [" ", h("span", { class: "number" }, show(value, "table"))])),
  );
}

async function pin(at) {
  if (!at) return;
  const found = pins.findIndex((entry) => entry.at === at);
  if (found >= 0) pins.splice(found, 1);
  else pins.push({ at, value: await page.ask("cell", { at }).then(({ value }) => value, () => null) });
  page.announce(found >= 0 ? `${at} is not pinned any more` : `pinned ${at}`);
  drawHeader();
}

function cover() {
  page.announce(toggleCovering() ? "numbers are covered" : "numbers are shown");
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

let walked = [];

/** Returns the addresses from the first opened to this one; each entry of the history keeps its own. */
function walk(at) {
  const kept = history.state?.walk;
  if (kept?.at(-1) === at) walked = kept;
  else walked = walked.includes(at) ? walked.slice(0, walked.indexOf(at) + 1) : [...walked.slice(-MOST_WALKED), at];
  keepState({ walk: walked });
  return walked;
}

function keepState(more) {
  try {
    history.replaceState({ ...history.state, ...more }, "");
  } catch {
    return;
  }
}

/**
 * Draws the screen of the address bar; `isSame` keeps focus and scroll where they are. Once every part is drawn,
 * data-drawn says of which address: what measures or reads the page waits for it.
 */
async function route(isSame = false) {
  const number = ++turnNumber;
  delete main.dataset.drawn;
  let [id, ...args] = readHash(location.hash);
  if (id === "trace" && args[0]) {
    page.trace = page.session.traces.find((trace) => trace.id === args[0]) ?? page.trace;
    id = "";
  }
  const wanted = SCREENS.find((entry) => entry.id === id && isOffered(entry));
  screen = wanted ?? SCREENS[0];
  if (!wanted) args = [];
  if (screen.id !== "why") walked = [];
  const view = h("div", { class: `screen ${screen.id}` });
  main.setAttribute("aria-busy", "true");
  let later = null;
  try {
    if (page.session.failed && !page.trace) throw new AskError(page.session.failed.message, "refused");
    later = !page.trace && page.session.busy ? await showProgress(view) : await screen.show(view, args, page);
  } catch (error) {
    if (!(error instanceof AskError)) console.error(error);
    view.replaceChildren(fail(error, page.session.failed ? start : () => route(), args[0]));
  }
  if (number !== turnNumber) return;
  main.removeAttribute("aria-busy");
  const kept = isSame ? [main.contains(document.activeElement) ? document.activeElement : null, window.scrollY] : null;
  const key = kept?.[0] ? openedKey(kept[0]) : null;
  main.replaceChildren(view);
  drawHeader();
  const title = view.querySelector("h1")?.textContent ?? screen.title;
  document.title = `${title} · ${visible(page.session.model)}`;
  if (isSame) {
    window.scrollTo(0, kept[1]);
    if (key) restore(key, later, number);
  } else if (history.state?.seen) {
    if (!history.state.opened || !(await restore(history.state.opened, later, number))) focusHeading(view, false);
    if (number === turnNumber) window.scrollTo(0, history.state?.scroll ?? 0);
  } else {
    window.scrollTo(0, 0);
    if (turnNumber > 1) focusHeading(view, true);
  }
  keepState({ seen: true });
  await later?.settled;
  if (number === turnNumber) main.dataset.drawn = location.hash;
}

/** Returns an address and which of its numbers on the screen an element is. */
function openedKey(element) {
  const at = element.dataset.at;
  return at ? [at, numbersAt(at).indexOf(element)] : null;
}

function numbersAt(at) {
  return Array.from(main.querySelectorAll("[data-at]")).filter((element) => element.dataset.at === at);
}

/** Focuses the number that was opened; waits for the parts that are drawn later. */
async function restore([at, i], later, number) {
  const find = () => numbersAt(at)[i];
  if (!find()) await later?.settled;
  const element = number === turnNumber ? find() : null;
  element?.focus({ preventScroll: true });
  return Boolean(element);
}

function focusHeading(view) {
  const heading = view.querySelector("h1");
  if (!heading) return main.focus();
  heading.tabIndex = -1;
  heading.focus({ preventScroll: true });
}

/** Shows what runs, and below it the model's shape where a screen can show it without a trace. */
async function showProgress(view) {
  const tokens = page.session.busy.tokens ?? [];
  view.append(h("h1", null, `Computing the ${page.session.busy.what}`));
  view.append(h("p", { class: "faint" }, `${showCount(tokens.length)} tokens, ${visible(page.session.config ?? "")}`));
  const map = SCREENS.find(({ id }) => id === "map");
  if (!map) return null;
  const below = h("section");
  view.append(below);
  return map.show(below, [], page);
}

/** Makes the element that shows an error, what helps, and Retry. */
function fail(error, retry, at) {
  const isMissing = error.kind === "missing";
  const command = page.trace?.command?.replace("ADDRESS", at ? `'${at}'` : "ADDRESS");
  return h(
    "section",
    { class: "failure", role: "alert" },
    h("h1", null, isMissing ? "Not in this page" : "That did not work"),
    h("p", null, visible(error.message)),
    error.remedy && h("p", null, visible(error.remedy)),
    isMissing && command && h("p", null, "This command opens it: ", h("code", null, visible(command))),
    !isMissing && h("button", { type: "button", onclick: retry }, "Retry"),
  );
}

/* ---- start ---- */

async function start() {
  try {
    await reload();
  } catch (error) {
    main.replaceChildren(fail(error, start));
    return;
  }
  await route();
}

takeKey();
listenToKeys(findAction);
window.addEventListener("hashchange", () => (location.hash.startsWith("#key=") ? (takeKey(), start()) : page.session && route()));
document.addEventListener(
  "click",
  (event) => {
    if (peek(event.target)) {
      event.preventDefault();
      event.stopPropagation();
      return;
    }
    const link = event.target.closest?.("a[href^='#']");
    if (link) remember(link);
  },
  true,
);
document.addEventListener(
  "keydown",
  (event) => {
    if (event.key === "Enter" && peek(event.target)) {
      event.preventDefault();
      event.stopPropagation();
    }
  },
  true,
);
document.addEventListener("copy", (event) => {
  const text = document.getSelection()?.toString() ?? "";
  if (!text.includes("−")) return;
  event.clipboardData.setData("text/plain", withHyphen(text));
  event.preventDefault();
});
start();
