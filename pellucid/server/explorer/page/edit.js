/**
 * Editing: a number is given in place, the run is computed again with it, and a strip says what it did.
 *
 * An edited trace is the child of the trace it was made from, so undo, redo and reset choose another trace.
 * In the page: input.edit while a number is given, .edit-problem beside it; #edits is the strip with #undo,
 * #redo, #reset and table.changes.
 */

import { h, visible } from "./dom.js";
import { cellLink } from "./link.js";
import { format, show, showCount, withHyphen } from "./number.js";
import { plainTable, rowHeading } from "./parts.js";

const EDIT_WORDS = {
  undo: ["Undo", "The edit is undone."],
  redo: ["Redo", "The edit is made again."],
  reset: ["Reset", "All edits are undone."],
};
const REFUSAL_MS = 6000;
/** What each edit of this page did, by the trace that it made. */
const editResults = new Map();

/** Whether the numbers of the chosen trace can be given. */
export function canEdit(page) {
  return !page.isExported && Boolean(page.trace?.is_editable);
}

/** Puts an input with the exact number in the place of an element with data-at. */
export async function startEdit(element, page) {
  const at = element?.dataset.at;
  if (!at || document.querySelector("input.edit")) return;
  const cell = await page.ask("cell", { at }).catch(({ message }) => ({ why_not: message }));
  document.querySelector(".edit-problem")?.remove();
  const problem = h("span", { id: "edit-problem", class: "edit-problem error", role: "alert" });
  const below = element.closest(".window") ?? element.parentElement; // a table that scrolls would clip it
  if (!cell.can_edit) {
    problem.textContent = visible(cell.why_not);
    below.append(problem);
    setTimeout(() => problem.remove(), REFUSAL_MS);
    return;
  }
  const text = format(cell.value, "exact");
  const input = h("input", {
    class: "edit number",
    type: "text",
    autocomplete: "off",
    spellcheck: "false",
    size: Math.max(8, text.length),
    value: text,
    "aria-label": `New value of ${at}`,
    "aria-describedby": "edit-problem",
  });
  const place = h("span.edit-place", input);
  const kept = element.matches("td, p") ? Array.from(element.childNodes) : null;
  if (kept) element.replaceChildren(place);
  else {
    element.hidden = true;
    element.after(place);
  }
  let isOpen = true;
  const close = () => {
    if (!isOpen) return;
    isOpen = false; // taking the input away blurs it, which closes again
    place.remove();
    problem.remove();
    if (kept) element.replaceChildren(...kept);
    element.hidden = false;
    element.focus({ preventScroll: true });
    keepFocus();
  };
  const apply = async () => {
    try {
      const value = readNumber(input.value);
      input.readOnly = true;
      problem.textContent = "Computing…";
      const answer = await page.post("edit", { at, value });
      editResults.set(answer.trace, answer);
      close();
      await page.choose(answer.trace);
      keepFocus();
      page.announce(answer.sentence);
    } catch (error) {
      input.readOnly = false;
      problem.textContent = visible(error.message);
      input.setAttribute("aria-invalid", "true");
    }
  };
  below.append(problem);
  place.addEventListener("click", (event) => event.stopPropagation());
  input.addEventListener("keydown", (event) => {
    event.stopPropagation();
    if (event.key === "Enter") apply();
    else if (event.key === "Escape") close();
    else return;
    event.preventDefault();
  });
  input.addEventListener("blur", () => input.readOnly || close());
  input.focus();
  input.select();
}

/** Returns the number that a text writes; either minus sign will do. */
function readNumber(text) {
  const plain = withHyphen(text.trim());
  const isNumber = /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i.test(plain);
  if (isNumber && Number.isFinite(Number(plain))) return Number(plain);
  throw new Error(`“${text}” is not a number; write for example 0.5 or -1e-3.`);
}

function keepFocus() {
  if (document.activeElement !== document.body) return;
  const heading = document.querySelector("main h1");
  heading?.setAttribute("tabindex", "-1");
  heading?.focus({ preventScroll: true });
}

/* ---- the strip ---- */

/** Makes the strip of an edited trace, or of one whose edit was undone; else null. */
export function editStrip(page) {
  const { trace } = page;
  const to = trace && canEdit(page) ? waysOfEdits(page) : {};
  if (!to.undo && !to.redo) return null;
  const result = editResults.get(trace.id);
  const button = ([id, [text]]) =>
    h("button", { id, disabled: !to[id], onclick: () => chooseEdit(id, page) }, text);
  return h(
    "section",
    { id: "edits", "aria-label": "Edits" },
    h("p", result ? result.sentence : describeEdits(trace)),
    h("div.buttons", Object.entries(EDIT_WORDS).map(button)),
    result && changesOf(result),
  );
}

/** Returns the traces that undo, redo and reset choose: the parent, the newest child, the first. */
function waysOfEdits({ session: { traces }, trace }) {
  let first = trace;
  while (first.parent) first = traces.find(({ id }) => id === first.parent) ?? { id: first.parent };
  const redo = traces.filter(({ parent }) => parent === trace.id).at(-1);
  return { undo: trace.parent, redo: redo?.id, reset: trace.parent && first.id };
}

function describeEdits({ edits }) {
  if (!edits.length) return "The edits are undone.";
  const set = ({ at, value }) => [cellLink(at, at), ` is set to ${show(value, "line")}. `];
  return edits.map(set);
}

function changesOf({ changed, changed_count: count }) {
  const some = changed.length < count ? `; the first ${changed.length}` : "";
  const rows = changed.map(({ name, most, at }) => [
    rowHeading(cellLink(at, h("code", name))),
    h("span.number", show(most, "table")),
  ]);
  return h(
    "details",
    h("summary", `${showCount(count)} value${count === 1 ? "" : "s"} changed${some}`),
    plainTable("changes", ["value", "largest change"], rows),
  );
}

async function chooseEdit(id, page) {
  const to = waysOfEdits(page)[id];
  if (!to) return;
  const isButton = document.activeElement.id === id;
  try {
    await page.choose(to);
    page.announce([EDIT_WORDS[id][1], editResults.get(to)?.sentence].filter(Boolean).join(" "));
  } catch (error) {
    page.announce(error.message);
  }
  const next = document.querySelector(`#${id}:enabled`) ?? document.querySelector("#edits button:enabled");
  if (isButton) next?.focus({ preventScroll: true });
  keepFocus();
}

/** Returns the names of the values that the chosen trace's edit changed. */
export function changedNames(page) {
  return new Set((editResults.get(page.trace?.id)?.changed ?? []).map(({ name }) => name));
}

/** Listens to Ctrl+Z and Ctrl+Shift+Z outside of inputs. */
export function listenToUndo(page) {
  document.addEventListener("keydown", (event) => {
    if (!(event.ctrlKey || event.metaKey) || event.altKey || event.key.toLowerCase() !== "z") return;
    if (event.target.closest("input, textarea, select") || !page.trace || !canEdit(page)) return;
    event.preventDefault();
    chooseEdit(event.shiftKey ? "redo" : "undo", page);
  });
}
