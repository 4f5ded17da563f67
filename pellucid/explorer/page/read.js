/**
 * What comes next: the prompt, the likeliest tokens after a position, the target with its loss, the gradients.
 *
 * Routes: #read is the last position, #read/2 position 2. In the page: form#run with #prompt, #target, #backward,
 * #update, #lr; button #run-button, or #run-confirm where gradients take long; table.next with one row per token;
 * table.targets; table.gradients. Every number that opens has data-at.
 */

import { h } from "./dom.js";
import { hashOf, numberLink } from "./link.js";
import { show, showCount } from "./number.js";
import { token, visible } from "./token.js";

const NEXT_COUNTS = [8, 24, 64];
/** Gradients that take longer or hold more than this ask before they start. */
const LONG_GRADIENTS = { seconds: 2, bytes: 5e8 };

/** What stands in the form, kept while the screen is drawn again. */
let runDraft = null;
/** The position that is shown, for the keys. */
let shownPosition = { page: null, t: 0, length: 0 };

export const readScreen = {
  id: "read",
  title: "What comes next",
  needsTrace: false,
  actions: {
    token(step) {
      const t = shownPosition.t + step;
      if (shownPosition.page && t >= 0 && t < shownPosition.length) shownPosition.page.go(hashOf("read", t));
    },
  },
  async show(main, args, page) {
    main.append(h("h1", null, page.trace ? "What comes next" : "Give a prompt"), runForm(page) ?? "");
    if (!page.trace) return null;
    const { tokens, target, has_gradients: hasGradients } = page.trace;
    const t = /^\d+$/.test(args[0] ?? "") ? Math.min(Number(args[0]), tokens.length - 1) : tokens.length - 1;
    shownPosition = { page, t, length: tokens.length };
    page.position = t;
    const columns = h("div", { class: "columns" });
    main.append(columns);
    columns.append(await nextTokens(t === tokens.length - 1 ? null : t, NEXT_COUNTS[0], page));
    if (target === null && !hasGradients) return null;
    const side = h("div");
    columns.append(side);
    const parts = [target !== null && targetTokens(page), hasGradients && largestGradients(page)].filter(Boolean);
    const settled = Promise.all(parts).then((drawn) => side.append(...drawn));
    return { settled: settled.catch((error) => side.append(errorLine(error))) };
  },
};

/* ---- the likeliest tokens ---- */

async function nextTokens(t, count, page) {
  const { tokens, label, entropy, vocab } = await page.ask("next", { t, count: count === NEXT_COUNTS[0] ? null : count });
  const more = NEXT_COUNTS.find((n) => n > count && tokens.length === count && count < vocab);
  const section = h(
    "section",
    { "aria-labelledby": "next-heading" },
    h("h2", { id: "next-heading", class: "sentence" }, "After ", token(label ?? "", 24)),
    h("p", { class: "faint" }, "Entropy ", plainNumber(entropy, "line"), ` nats over ${showCount(vocab)} tokens`),
    h(
      "table",
      { class: "next rows" },
      h("thead", null, h("tr", null, ["rank", "token", "probability", "", "surprisal"].map(columnHeading))),
      h("tbody", null, tokens.map(nextRow)),
    ),
  );
  if (more && !page.isExported) {
    const button = h("button", { type: "button", class: "plain" }, `Show ${Math.min(more, vocab)} tokens`);
    button.addEventListener("click", async () => {
      const longer = await nextTokens(t, more, page);
      section.replaceWith(longer);
      longer.querySelectorAll("td a")[count]?.focus();
    });
    section.append(button);
  }
  return section;
}

function columnHeading(text) {
  return text ? h("th", { scope: "col", class: text }, text) : h("td", null);
}

function nextRow({ at, label, p, rank, surprisal }) {
  return h(
    "tr",
    null,
    h("td", { class: "faint number" }, rank + 1),
    h("th", { scope: "row" }, token(label ?? "", 24)),
    h("td", null, numberLink(at, p, "line")),
    h("td", { class: "share", "aria-hidden": "true" }, h("span", { style: { width: `${Math.max(p, 0.001) * 100}%` } })),
    h("td", { class: "faint number" }, show(surprisal, "table")),
  );
}

function plainNumber(value, kind) {
  return h("span", { class: "number" }, show(value, kind));
}

/* ---- target, gradients, update ---- */

async function targetTokens(page) {
  const { losses, targets, count, updates } = await page.ask("targets");
  if (!losses.length) return "";
  const after = updates === 1 ? "after the update" : `after ${updates} updates`;
  const twice = (title) => [title, updates > 0 && after].filter(Boolean).map((text) => h("th", { scope: "col" }, text));
  const links = (numbers) => numbers.map(({ at, value }) => h("td", null, numberLink(at, value, "line")));
  return h(
    "section",
    { "aria-labelledby": "target-heading" },
    h("h2", { id: "target-heading" }, "The target"),
    h(
      "table",
      { class: "targets rows" },
      h("thead", null, h("tr", null, h("th", { scope: "col" }, "after"), h("th", { scope: "col" }, "target"), twice("probability"))),
      h(
        "tbody",
        null,
        targets.map(({ after: before, label, probs }) =>
          h("tr", null, h("td", null, token(before ?? "")), h("th", { scope: "row" }, token(label ?? "")), links(probs)),
        ),
      ),
      h("tfoot", null, h("tr", null, h("th", { scope: "row", colspan: "2" }, "loss"), links(losses))),
    ),
    count > targets.length && h("p", { class: "faint" }, `the first ${targets.length} of ${showCount(count)} targets`),
  );
}

async function largestGradients(page) {
  const { gradients, count } = await page.ask("gradients");
  return h(
    "section",
    { "aria-labelledby": "gradients-heading" },
    h("h2", { id: "gradients-heading" }, "The largest gradients"),
    h("p", { class: "faint" }, `By norm, of ${showCount(count)} parameters`),
    h(
      "table",
      { class: "gradients rows" },
      h("thead", null, h("tr", null, ["parameter", "norm", "largest entry"].map(columnHeading))),
      h(
        "tbody",
        null,
        gradients.map(({ name, norm, at, value }) =>
          h(
            "tr",
            null,
            h("th", { scope: "row" }, h("a", { class: "name", href: hashOf("map", name) }, visible(name))),
            h("td", { class: "number" }, show(norm, "table")),
            h("td", null, numberLink(at, value, "table")),
          ),
        ),
      ),
    ),
  );
}

/* ---- the form ---- */

function runForm(page) {
  const { session, trace } = page;
  if (page.isExported || session.is_exported) return null;
  if (session.source === "trace") {
    return h("p", { class: "faint" }, "This trace is a finished run: open its model to run another prompt.");
  }
  runDraft ??= { prompt: trace?.prompt ?? "", target: trace?.target ?? "", backward: false, update: false, lr: "1" };
  const isText = session.has_tokenizer !== false;
  const prompt = h("textarea", { id: "prompt", rows: "1", required: true, spellcheck: "false" }, runDraft.prompt);
  const target = h("input", { id: "target", type: "text", autocomplete: "off", spellcheck: "false", value: runDraft.target });
  const backward = h("input", { id: "backward", type: "checkbox", checked: runDraft.backward });
  const update = h("input", { id: "update", type: "checkbox", checked: runDraft.update });
  const lr = h("input", { id: "lr", type: "text", inputmode: "decimal", size: "5", value: runDraft.lr });
  const button = h("button", { id: "run-button", type: "submit" }, "Run");
  const said = h("div", { class: "said", "aria-live": "polite" });
  const form = h(
    "form",
    { id: "run", "aria-label": "Run a prompt", novalidate: true },
    h("label", { for: "prompt" }, isText ? "Prompt" : "Token ids, separated by blanks"),
    h("div", { class: "ask" }, prompt, button),
    h(
      "p",
      { class: "presets" },
      h("span", { class: "faint" }, "For example"),
      (session.presets ?? []).map((text) =>
        h("button", { type: "button", class: "plain", onclick: () => ((prompt.value = text), submit(false)) }, visible(text)),
      ),
    ),
    h(
      "div",
      { class: "choices" },
      h("span", null, h("label", { for: "target" }, "Target"), " ", target),
      h("span", null, backward, " ", h("label", { for: "backward" }, "gradients")),
      h(
        "span",
        null,
        update,
        " ",
        h("label", { for: "update" }, "one SGD update, "),
        h("label", { for: "lr" }, "learning rate "),
        lr,
      ),
    ),
    said,
  );
  const read = () => {
    runDraft = {
      prompt: prompt.value,
      target: target.value,
      backward: backward.checked,
      update: update.checked,
      lr: lr.value,
    };
    return runDraft;
  };
  const submit = async (isConfirmed) => {
    const given = runRequest(read(), isText);
    if (given.problem) return complain(given.problem);
    if (!isConfirmed && given.backward && isLong(session.gradients)) return said.replaceChildren(...confirmation());
    button.disabled = true;
    form.setAttribute("aria-busy", "true");
    said.replaceChildren(h("p", { class: "faint" }, "Running…"));
    try {
      await page.run(given);
      page.announce(`The run is finished: ${page.trace.tokens.length} tokens, ${showCount(page.trace.values)} values.`);
      document.getElementById("prompt")?.focus({ preventScroll: true });
    } catch (error) {
      complain(error);
    } finally {
      button.disabled = false;
      form.removeAttribute("aria-busy");
    }
    return null;
  };
  const complain = (error) => said.replaceChildren(errorLine(error));
  const confirmation = () => {
    const { seconds, bytes } = session.gradients;
    return [
      h("p", null, `Gradients of this prompt take about ${Math.round(seconds)} s and ${showBytes(bytes)} of memory.`),
      h("button", { id: "run-confirm", type: "button", onclick: () => submit(true) }, "Run with gradients"),
      " ",
      h("button", { type: "button", class: "plain", onclick: () => (said.replaceChildren(), button.focus()) }, "Cancel"),
    ];
  };
  form.addEventListener("input", read);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    submit(false).then(() => document.getElementById("run-confirm")?.focus());
  });
  form.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    form.requestSubmit();
  });
  return form;
}

/** Returns the parameters of `run`, or the problem that the form can see itself. */
function runRequest({ prompt, target, backward, update, lr }, isText) {
  const ids = prompt.trim().split(/[\s,]+/).filter(Boolean);
  if (!isText && ids.some((id) => !/^\d+$/.test(id))) return { problem: new Error("Token ids are whole numbers.") };
  const rate = Number(lr.replace("−", "-"));
  if (update && (lr.trim() === "" || !Number.isFinite(rate))) return { problem: new Error(`${lr || "nothing"} is not a number.`) };
  if ((backward || update) && target === "") {
    return { problem: new Error("A loss needs a target: give the text that should follow.") };
  }
  return {
    ...(isText ? { prompt } : { ids: ids.map(Number) }),
    target: target === "" ? null : target,
    backward: backward || update || null,
    update: update ? "sgd" : null,
    lr: update ? rate : null,
  };
}

function isLong(estimate) {
  return Boolean(estimate) && (estimate.seconds > LONG_GRADIENTS.seconds || estimate.bytes > LONG_GRADIENTS.bytes);
}

function showBytes(bytes) {
  return bytes >= 1e9 ? `${Math.round(bytes / 1e8) / 10} GB` : `${Math.round(bytes / 1e6)} MB`;
}

function errorLine(error) {
  return h("p", { class: "error", role: "alert" }, visible(error.message), error.remedy && ` ${visible(error.remedy)}`);
}
