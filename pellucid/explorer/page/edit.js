/**
 * Editing: a number is given in place, the run is computed again with it, and a strip says what it did.
 *
 * An edited trace is the child of the trace it was made from, so undo, redo and reset choose another trace. In the
 * page: input.edit while a number is given, .edit-problem below it; #edits is the strip with #undo, #redo, #reset
 * and the list .changes.
 */

import { h } from "./dom.js";
import { cellLink } from "./link.js";
import { format, show, showCount, withHyphen } from "./number.js";
import { visible } from "./token.js";

/** What each edit of this page did, by the trace that it made. */
const editResults = new Map();
let isListOpen = false;

/** Whether the numbers of the chosen trace can be given. */
export function canEdit(page) {
  return !page.isExported && !page.session?.is_exported && Boolean(page.trace?.is_editable);
}

/** Puts an input with the exact number in the place of an element with data-at. */
export async function startEdit(element, page) {
  const at = element?.dataset.at;
  if (!at || !canEdit(page) || document.querySelector("input.edit")) return;
  let cell;
  try {
    cell = await page.ask("cell", { at });
  } catch (error) {
    return page.announce(error.message);
  }
  if (!cell.can_edit) return refuse(element, cell.why_not ?? `${at} cannot be edited.`, page);
  const input = h("input", {
    class: "edit number",
    type: "text",
    inputmode: "text",
    autocomplete: "off",
    spellcheck: "false",
    "aria-label": `New value of ${visible(at)}`,
    "aria-describedby": "edit-problem",
    value: format(cell.value, "exact"),
  });
  input.size = Math.max(8, input.value.length);
  const problem = h("span", { id: "edit-problem", class: "edit-problem error", role: "alert" });
  const kept = Array.from(element.childNodes);
  const isPlain = element.matches("td, p");
  const holder = h("span", { class: "edit-place" }, input, problem);
  const close = () => {
    if (!holder.isConnected) return;
    if (isPlain) element.replaceChildren(...kept);
    else element.hidden = false;
    holder.remove();
    element.focus({ preventScroll: true });
  };
  if (isPlain) element.replaceChildren(holder);
  else {
    element.hidden = true;
    element.after(holder);
  }
  const apply = async () => {
    const value = readNumber(input.value);
    if (value === null) {
      problem.textContent = `${input.value.trim() || "An empty text"} is not a number; write for example 0.5 or -1e-3.`;
      input.setAttribute("aria-invalid", "true");
      return;
    }
    input.readOnly = true;
    try {
      const answer = await page.post("edit", { at, value });
      editResults.set(answer.trace, answer);
      close();
      await page.choose(answer.trace);
      settleFocus(page);
      page.announce(answer.sentence);
    } catch (error) {
      input.readOnly = false;
      problem.textContent = error.message;
    }
  };
  holder.addEventListener("click", (event) => event.stopPropagation());
  input.addEventListener("keydown", (event) => {
    event.stopPropagation();
    if (event.key === "Enter") apply();
    else if (event.key === "Escape") close();
    else return;
    event.preventDefault();
  });
  input.addEventListener("blur", () => setTimeout(() => !input.readOnly && document.activeElement !== input && close(), 120));
  input.focus();
  input.select();
}

/** Returns a finite number, or null. A minus may be either sign, and a comma is not a point. */
function readNumber(text) {
  const plain = withHyphen(text.trim());
  return /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i.test(plain) && Number.isFinite(Number(plain)) ? Number(plain) : null;
}

function refuse(element, reason, page) {
  document.querySelector(".edit-problem")?.remove();
  const said = h("span", { class: "edit-problem error" }, visible(reason));
  (element.matches("td") ? element : element.parentElement).append(said);
  page.announce(reason);
  setTimeout(() => said.remove(), 6000);
}

function settleFocus() {
  if (document.activeElement && document.activeElement !== document.body) return;
  const heading = document.querySelector("main h1");
  if (!heading) return;
  heading.tabIndex = -1;
  heading.focus({ preventScroll: true });
}

/* ---- the strip ---- */

/** Makes the strip of an edited trace, or of one whose edit was undone; null where there is nothing to say. */
export function editStrip(page) {
  const { trace } = page;
  const next = trace && childOf(page);
  if (!trace || (!trace.edits?.length && !next) || page.isExported) return null;
  const result = editResults.get(trace.id);
  return h(
    "section",
    { id: "edits", "aria-label": "Edits" },
    h(
      "div",
      { class: "strip" },
      h("p", null, result ? visible(result.sentence) : whatIsSet(trace)),
      h(
        "div",
        { class: "buttons" },
        result && listButton(result),
        wayButton("undo", "Undo", trace.parent, page),
        wayButton("redo", "Redo", next, page),
        wayButton("reset", "Reset", trace.parent && rootOf(page), page),
      ),
    ),
    result && changesList(result),
  );
}

function whatIsSet({ edits }) {
  if (!edits?.length) return "No number is set.";
  const { at, value } = edits.at(-1);
  const more = edits.length > 1 ? `, and ${edits.length - 1} before it` : "";
  return [cellLink(at, visible(at)), " is set to ", h("span", { class: "number" }, show(value, "line")), `${more}.`];
}

function listButton({ changed_count: count }) {
  return h(
    "button",
    {
      type: "button",
      "aria-expanded": String(isListOpen),
      "aria-controls": "changes",
      onclick: (event) => {
        isListOpen = !isListOpen;
        event.target.setAttribute("aria-expanded", String(isListOpen));
        document.getElementById("changes").hidden = !isListOpen;
      },
    },
    `${showCount(count)} value${count === 1 ? "" : "s"} changed`,
  );
}

function changesList({ changed, changed_count: count }) {
  return h(
    "div",
    { id: "changes", class: "scroll", hidden: !isListOpen },
    h(
      "table",
      { class: "changes rows" },
      h("caption", { class: "faint" }, count > changed.length ? `The first ${changed.length}` : "In program order"),
      h("thead", null, h("tr", null, h("th", { scope: "col" }, "value"), h("th", { scope: "col" }, "largest change"))),
      h(
        "tbody",
        null,
        changed.map(({ name, most, at }) =>
          h("tr", null, h("th", { scope: "row" }, cellLink(at, visible(name))), h("td", { class: "number" }, show(most, "table"))),
        ),
      ),
    ),
  );
}

function wayButton(id, text, to, page) {
  return h("button", { id, type: "button", disabled: !to, onclick: () => chooseEdit(id, to, page) }, text);
}

/** Returns the newest trace that an edit made of this one. */
function childOf({ session, trace }) {
  return session.traces.filter(({ parent }) => parent === trace.id).at(-1)?.id ?? null;
}

function rootOf({ session, trace }) {
  let found = trace;
  for (let above = found; above; above = session.traces.find(({ id }) => id === above.parent)) found = above;
  return found.id;
}

const EDIT_WORDS = { undo: "The edit is undone.", redo: "The edit is made again.", reset: "All edits are undone." };

async function chooseEdit(id, to, page) {
  if (!to) return;
  try {
    await page.choose(to);
    page.announce([EDIT_WORDS[id], id === "redo" ? editResults.get(to)?.sentence : ""].join(" "));
  } catch (error) {
    page.announce(error.message);
  }
  const button = document.getElementById(id);
  (button?.disabled ? document.querySelector("#edits button:enabled") : button)?.focus();
  settleFocus();
}

/** Returns the names of the values that the chosen trace's last edit changed. */
export function changedNames(page) {
  return new Set((editResults.get(page.trace?.id)?.changed ?? []).map(({ name }) => name));
}

/** Listens to Ctrl+Z and Ctrl+Shift+Z outside of inputs. */
export function listenToUndo(page) {
  document.addEventListener("keydown", (event) => {
    if (!(event.ctrlKey || event.metaKey) || event.altKey || event.key.toLowerCase() !== "z") return;
    if (event.target.closest("input, textarea, select, [contenteditable]") || !page.trace || page.isExported) return;
    event.preventDefault();
    if (event.shiftKey) chooseEdit("redo", childOf(page), page);
    else chooseEdit("undo", page.trace.parent, page);
  });
}
