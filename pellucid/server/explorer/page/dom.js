/**
 * Elements. Text only ever becomes a text node: nothing here, and nothing on the page, parses markup. What
 * would turn or hide text is written as an escape.
 */

const SVG = "http://www.w3.org/2000/svg";
const MATHML = "http://www.w3.org/1998/Math/MathML";
const HIDDEN = /[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}\u034f\u115f\u1160\u17b4\u17b5\u3164\uffa0\ufe00-\ufe0f]/gu;

/** Returns text in which control, bidirectional and invisible characters are written as \u202e. */
export function visible(text) {
  return text.replace(HIDDEN, (character) =>
    Array.from({ length: character.length }, (_, i) => character.charCodeAt(i).toString(16).padStart(4, "0"))
      .map((digits) => `\\u${digits}`)
      .join(""),
  );
}

/**
 * Makes an HTML element: h("p.faint", { id: "x" }, "text", [more, null]). The properties may be left out; one
 * that begins with "on" is a listener, `data` and `style` are objects, null and false are left out, true is
 * the empty attribute. Children are nodes, texts, null, or lists of them.
 * @param {string} tag with its class after a point
 * @returns {HTMLElement}
 */
export function h(tag, ...rest) {
  const [name, ...classes] = tag.split(".");
  const element = document.createElement(name);
  if (name === "button") element.type = "button";
  if (classes.length) element.className = classes.join(" ");
  const hasProperties = rest[0] && rest[0].constructor === Object;
  return build(element, hasProperties ? rest[0] : null, hasProperties ? rest.slice(1) : rest);
}

/** Makes an SVG element, as `h` does. */
export function svg(tag, properties, ...children) {
  return build(document.createElementNS(SVG, tag), properties, children);
}

/** Makes a MathML element, as `h` does. */
export function mathml(tag, properties, ...children) {
  return build(document.createElementNS(MATHML, tag), properties, children);
}

function build(element, properties, children) {
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    const text = /^(title|aria-label)$/.test(name) ? visible(value) : value;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "data") Object.assign(element.dataset, value);
    else if (name === "style") {
      for (const [key, setting] of Object.entries(value)) element.style.setProperty(key, setting);
    } else element.setAttribute(name, value === true ? "" : text);
  }
  const isThere = (child) => child !== null && child !== undefined && child !== false;
  const nodes = children.flat(Infinity).filter(isThere);
  element.append(...nodes.map((child) => (typeof child === "string" ? visible(child) : child)));
  return element;
}
