/** The search box for addresses: suggestions from the names of the trace, the arrows choose, Enter opens. */

import { h } from "./dom.js";
import { glossaryRow, hashOf } from "./link.js";

const MOST_SUGGESTIONS = 10;

/** Makes the search box. */
export function searchBox(page) {
  const list = h("ul", { id: "suggestions", role: "listbox", "aria-label": "Addresses", hidden: true });
  const input = h("input", {
    id: "search",
    type: "text",
    role: "combobox",
    autocomplete: "off",
    autocapitalize: "off",
    spellcheck: "false",
    placeholder: "name or address ( / )",
    "aria-label": "Address of a number",
    "aria-controls": "suggestions",
    "aria-expanded": "false",
    "aria-autocomplete": "list",
  });
  let chosen = -1;
  let found = [];
  const close = () => {
    list.hidden = true;
    chosen = -1;
    input.setAttribute("aria-expanded", "false");
    input.removeAttribute("aria-activedescendant");
  };
  const open = (text) => {
    if (!text.trim()) return;
    close();
    input.value = "";
    input.blur();
    page.go(hashOf("why", text.trim()));
  };
  const choose = (i) => {
    const options = Array.from(list.children);
    options[chosen]?.removeAttribute("aria-selected");
    chosen = options.length ? (i + options.length) % options.length : -1;
    options[chosen]?.setAttribute("aria-selected", "true");
    options[chosen]?.scrollIntoView({ block: "nearest" });
    if (chosen >= 0) input.setAttribute("aria-activedescendant", options[chosen].id);
  };
  const take = (event, name) => {
    event.preventDefault();
    open(name);
  };
  const suggest = async () => {
    const text = input.value.trim().toLowerCase();
    const { values, about } = await page.names();
    if (input.value.trim().toLowerCase() !== text) return;
    const isLike = ([name]) => name.toLowerCase().includes(text);
    const rank = ([name]) => (name === text ? 0 : name.startsWith(text) ? 1 : 2);
    found = text && !text.includes("[") ? values.filter(isLike).sort((a, b) => rank(a) - rank(b)) : [];
    found = found.slice(0, MOST_SUGGESTIONS);
    close();
    list.replaceChildren(
      ...found.map(([name, shape], i) =>
        h(
          "li",
          { id: `suggestion-${i}`, role: "option", onmousedown: (event) => take(event, name) },
          h("span.number", name, h("small", ` ${shape.join(" × ")}`)),
          h("span.faint", about[glossaryRow(name)]?.meaning ?? ""),
        ),
      ),
    );
    list.hidden = list.children.length === 0;
    input.setAttribute("aria-expanded", String(!list.hidden));
  };
  input.addEventListener("input", () => suggest().catch(close));
  input.addEventListener("blur", close);
  input.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown") choose(chosen + 1);
    else if (event.key === "ArrowUp") choose(chosen < 0 ? -1 : chosen - 1);
    else if (event.key === "Enter") open(found[chosen]?.[0] ?? input.value);
    else if (event.key === "Escape") list.hidden ? input.blur() : close();
    else return;
    event.preventDefault();
  });
  return h("div.search", input, list);
}
