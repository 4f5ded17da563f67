/** Links to a cell, and numbers that are links. The address bar is the state: #why/probs[t=3,v=253]. */

import { h } from "./dom.js";
import { show, write } from "./number.js";

/** Returns the hash of a screen: readable, and read back by `readHash`. */
export function hashOf(screen, ...parts) {
  const readable = (part) => encodeURIComponent(part).replace(/%(5B|5D|3D|2C|40|3A)/g, decodeURIComponent);
  return `#${[screen, ...parts.map(String)].map(readable).join("/")}`;
}

/** Returns the parts of a hash. */
export function readHash(hash) {
  return hash
    .replace(/^#/, "")
    .split("/")
    .map((part) => {
      try {
        return decodeURIComponent(part);
      } catch {
        return part;
      }
    });
}

/** Makes a link to the Why of an address. */
export function cellLink(at, ...children) {
  return h("a", { href: hashOf("why", at), data: { at } }, ...children);
}

/** Makes a number that opens: a link with its text in a "headline", a "line" or a "table". */
export function numberLink(at, value, kind, text = show(value, kind)) {
  return write(h("a.number", { href: hashOf("why", at), data: { at } }), text);
}

/** Returns the name under which the glossary describes a value: blocks.L.attn.q@k. */
export function glossaryRow(name) {
  return name.replace(/\bblocks\.\d+\./g, "blocks.L.").replace(/(@|\bupdate )\d+\b/g, "$1k");
}
