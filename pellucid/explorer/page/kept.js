/** What the reader chose, kept by the browser; a frame without storage keeps it until it is closed. */

const memory = new Map();

/** Returns a kept text, or null. */
export function recall(name) {
  try {
    return localStorage.getItem(`pellucid.${name}`);
  } catch {
    return memory.get(name) ?? null;
  }
}

/** Keeps a text under a name. */
export function keep(name, text) {
  try {
    localStorage.setItem(`pellucid.${name}`, text);
  } catch {
    memory.set(name, text);
  }
}
