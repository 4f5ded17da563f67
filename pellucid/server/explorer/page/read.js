/**
 * What comes next: the prompt, the likeliest tokens after a position, the target with its loss, gradients.
 *
 * Routes: #read is the last position, #read/2 is position 2. In the page: form#run with #prompt, #target,
 * #backward, #update, #lr; #run-button, and #run-confirm where gradients take long; table.next with one row
 * per token; table.targets; table.gradients. Every number that opens has data-at.
 */

import { ask } from "./ask.js";
import { h } from "./dom.js";
import { hashOf, numberLink } from "./link.js";
import { show, showCount } from "./number.js";
import { plainTable, rowHeading, token } from "./parts.js";

const NEXT_COUNTS = [8, 24, 64];

/** What stands in the form, kept while the screen is drawn again. */
let draft = null;
/** The position that is shown, for the keys. */
let reading = null;

export const readScreen = {
  id: "read",
  title: "What comes next",
  needsTrace: false,
  actions: {
    token: (step) => {
      const t = reading?.t + step;
      if (t >= 0 && t < reading.length) reading.page.go(hashOf("read", t));
    },
  },
  async show(main, [place], page) {
    const { trace } = page;
    main.append(h("h1", trace ? "What comes next" : "Give a prompt"), runForm(page) ?? "");
    if (!trace) return null;
    const last = trace.tokens.length - 1;
    const t = /^\d+$/.test(place ?? "") ? Math.min(Number(place), last) : last;
    reading = { page, t, length: last + 1 };
    page.position = t;
    const side = h("div");
    main.append(h("div.columns", await nextTokens(t === last ? null : t, 0, page), side));
    const parts = trace.has_target || trace.has_gradients ? [targetTokens(page)] : [];
    if (trace.has_gradients) parts.push(largestGradients(page));
    const drawn = parts.map((part) => part.catch(errorLine));
    return { settled: Promise.all(drawn).then((made) => side.append(...made)) };
  },
};

function titled(title, ...children) {
  return h("section", h("h2", title), ...children);
}

async function nextTokens(t, size, page) {
  const answer = await page.ask("next", { t, count: size ? NEXT_COUNTS[size] : null });
  const { tokens, label, entropy, vocab } = answer;
  const count = Math.min(NEXT_COUNTS[size + 1] ?? 0, vocab);
  const more = async () => {
    const longer = await nextTokens(t, size + 1, page);
    section.replaceWith(longer);
    longer.querySelectorAll("td a")[NEXT_COUNTS[size]].focus();
  };
  const faint = (text) => h("td.faint.number", text);
  const section = h(
    "section",
    h("h2.sentence", "After ", token(label ?? "", 24)),
    page.trace.prompts > 1 && h("p.faint", `The first of ${page.trace.prompts} prompts: the next is b=1`),
    h("p.faint", `Entropy ${show(entropy, "line")} nats over ${showCount(vocab)} tokens; surprisal in nats`),
    plainTable(
      "next",
      ["rank", "token", "probability", "", "surprisal"],
      tokens.map(({ at, label: text, p, rank, surprisal }) => [
        faint(rank + 1),
        rowHeading(token(text ?? "", 24)),
        numberLink(at, p, "line"),
        h("span.share", { style: { width: `${p * 100}%` } }),
        faint(show(surprisal, "table")),
      ]),
    ),
    count > tokens.length && !page.isExported && h("button", { onclick: more }, `Show ${count} tokens`),
  );
  return section;
}

async function targetTokens(page) {
  const { losses, targets, count, updates } = await page.ask("targets");
  const after = updates > 1 ? `after ${updates} updates` : "after the update";
  const links = (numbers) => numbers.map(({ at, value }) => numberLink(at, value, "line"));
  return titled(
    "The target",
    plainTable(
      "targets",
      ["after", "target", "probability", ...(updates ? [after] : [])],
      targets.map(({ after: before, label, probs }) => [
        token(before ?? ""),
        rowHeading(token(label ?? "")),
        ...links(probs),
      ]),
      [rowHeading("loss"), "", ...links(losses)],
    ),
    count > targets.length && h("p.faint", `${targets.length} of ${showCount(count)} targets`),
  );
}

async function largestGradients(page) {
  const { gradients, count } = await page.ask("gradients");
  return titled(
    "The largest gradients",
    h("p.faint", `By norm, of ${showCount(count)} parameters`),
    plainTable(
      "gradients",
      ["parameter", "norm", "largest entry"],
      gradients.map(({ name, norm, at, value }) => [
        rowHeading(h("a", { href: hashOf("map", `d.${name}`) }, h("code", name))),
        h("span.number", show(norm, "table")),
        numberLink(at, value, "table"),
      ]),
    ),
  );
}

/* ---- the form ---- */

function runForm(page) {
  const { session, trace } = page;
  if (page.isExported) return null;
  if (session.source === "trace") {
    return h("p.faint", "A trace is a finished run: open its model to run another prompt.");
  }
  const isText = session.has_tokenizer !== false;
  draft ??= { prompt: trace?.prompt ?? "", target: trace?.target ?? "", lr: String(trace?.lr ?? 1) };
  draft.backward ??= trace?.has_gradients;
  draft.update ??= trace?.update === "sgd";
  const plain = { autocomplete: "off", spellcheck: "false" };
  const text = (id) => h("input", { id, type: "text", ...plain, value: draft[id] });
  const box = (id) => h("input", { id, type: "checkbox", checked: draft[id] });
  const label = (id, words) => h("label", { for: id }, words);
  const rows = String(Math.min(6, Math.ceil((draft.prompt.length + 1) / 60)));
  const prompt = h("textarea", { id: "prompt", rows, spellcheck: "false" });
  prompt.value = draft.prompt; // as it is: a line break stays one
  const said = h("div.said", { "aria-live": "polite" });
  const preset = (words) => h("button", { onclick: () => ((prompt.value = words), submit()) }, words);
  const form = h(
    "form",
    { id: "run", "aria-label": "Run a prompt", novalidate: true },
    label("prompt", isText ? "Prompt" : "Token ids, separated by blanks"),
    h("div.ask", prompt, h("button", { id: "run-button", type: "submit" }, "Run")),
    h("p.presets", h("span.faint", "For example"), session.presets.map(preset)),
    h(
      "div.choices",
      h("span", label("target", "Target"), text("target")),
      h("span", box("backward"), label("backward", "gradients")),
      h("span", box("update"), label("update", "one SGD update,"), label("lr", "learning rate"), text("lr")),
    ),
    said,
  );
  const read = () => {
    for (const { id, type, checked, value } of form.elements) {
      draft[id] = type === "checkbox" ? checked : value;
    }
  };
  const submit = async (isConfirmed = false) => {
    read();
    try {
      const given = runRequest(draft, isText);
      const cost = given.backward && !isConfirmed ? await gradientCost(given, session.gradients) : null;
      if (cost) return confirm(cost);
      form.setAttribute("aria-busy", "true");
      said.replaceChildren(h("p.faint", "Running…"));
      await page.run(given);
      const { tokens, values } = page.trace;
      page.announce(`The run is finished: ${tokens.length} tokens, ${showCount(values)} values.`);
      document.getElementById("prompt")?.focus({ preventScroll: true });
    } catch (error) {
      said.replaceChildren(errorLine(error));
    }
    form.removeAttribute("aria-busy");
    return null;
  };
  const confirm = (found) => {
    const seconds = Math.ceil(found.seconds);
    const gigabytes = Math.ceil(found.bytes / 1e8) / 10;
    const run = h("button", { id: "run-confirm", onclick: () => submit(true) }, "Run with gradients");
    const cancel = h("button", { onclick: () => (said.replaceChildren(), prompt.focus()) }, "Cancel");
    const cost = `Gradients of this prompt take about ${seconds} s and ${gigabytes} GB of memory.`;
    said.replaceChildren(h("p", cost), h("div.buttons", run, cancel));
    run.focus();
  };
  form.addEventListener("input", read);
  form.addEventListener("submit", (event) => (event.preventDefault(), submit()));
  form.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) submit();
  });
  return form;
}

/** Returns what gradients of a prompt take; of the last one, where it is not a short text. */
function gradientCost({ prompt, target }, last) {
  if (!target || !prompt) return target && last;
  return ask("tokens", { text: prompt + target }).then(({ gradients }) => gradients, () => last);
}

/** Returns the parameters of `run`; what is wrong with the others, the session says. */
function runRequest({ prompt, target, backward, update, lr }, isText) {
  const idsOf = (text) => text.split(/[\s,[\]]+/).filter(Boolean);
  const rate = Number(lr.replace("−", "-") || "none");
  if (update && !Number.isFinite(rate)) throw new Error(`The learning rate must be a number, not “${lr}”.`);
  return {
    ...(isText ? { prompt } : { ids: idsOf(prompt).map(Number) }),
    target: target && !isText ? `[${idsOf(target).join(", ")}]` : target || null,
    backward: backward || update,
    ...(update ? { update: "sgd", lr: rate } : {}),
  };
}

function errorLine(error) {
  const text = error.remedy ? `${error.message} ${error.remedy}` : error.message;
  return h("p.error", { role: "alert" }, text);
}
