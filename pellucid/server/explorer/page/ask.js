/**
 * Questions to the session. The only module that knows whether the page is live or exported: an exported page
 * holds its answers in <script type="application/json" id="answers"> under their question strings.
 */

const MOST_ANSWERS = 400;

/** A question without an answer: "missing" in an exported page, "refused", "locked" without the key, "lost". */
export class AskError extends Error {
  constructor(message, kind, remedy = null) {
    super(message);
    this.kind = kind;
    this.remedy = remedy;
  }
}

const embedded = readEmbedded();
const answers = new Map();

function readEmbedded() {
  const element = document.getElementById("answers");
  return element ? new Map(Object.entries(JSON.parse(element.textContent))) : null;
}

/** Whether this page is a file with its answers, which cannot run or edit anything. */
export const isExported = embedded !== null;

/** Takes the key out of the address bar: #key=… or #key=…&why/…; it is kept for this tab only. */
export function takeKey() {
  const found = /^#key=([^&]*)&?(.*)$/.exec(location.hash);
  if (!found) return;
  keepKey(found[1]);
  history.replaceState(null, "", location.pathname + location.search + (found[2] ? `#${found[2]}` : ""));
}

/** Keeps the key for this tab. */
export function keepKey(key) {
  sessionStorage.setItem("pellucid.key", key);
}

function readKey() {
  try {
    return sessionStorage.getItem("pellucid.key");
  } catch {
    return null;
  }
}

/** Returns NAME?k=v&k=v with sorted keys: the address of a question, and its name in an exported page. */
export function questionString(name, given = {}) {
  const pairs = Object.keys(given)
    .filter((key) => given[key] !== null && given[key] !== undefined)
    .sort()
    .map((key) => `${encodeURIComponent(key)}=${encodeURIComponent(String(given[key]))}`);
  return pairs.length ? `${name}?${pairs.join("&")}` : name;
}

/** Returns the answer to a question; one about a trace that was answered before is not asked again. */
export function ask(name, given = {}) {
  const question = questionString(name, given);
  if (embedded) {
    return embedded.has(question)
      ? Promise.resolve(embedded.get(question))
      : Promise.reject(new AskError("This number is not in this page.", "missing"));
  }
  if (!given.trace) return send(question, {}); // what is said of a trace stays; anything else may change
  if (!answers.has(question)) {
    const answer = send(question, {});
    answers.set(question, answer);
    answer.catch(() => answers.delete(question));
    if (answers.size > MOST_ANSWERS) answers.delete(answers.keys().next().value);
  }
  return answers.get(question);
}

/** Posts a question that runs, edits or computes for long. */
export function post(name, given = {}) {
  if (embedded) return Promise.reject(new AskError("A page in a file runs nothing.", "missing"));
  const body = JSON.stringify(given, (_, value) => (value === null ? undefined : value));
  return send(name, { method: "POST", headers: { "Content-Type": "application/json" }, body });
}

async function send(question, options) {
  const key = readKey();
  const headers = { ...options.headers, ...(key ? { Authorization: `Bearer ${key}` } : {}) };
  let response;
  let answer;
  try {
    response = await fetch(`/api/${question}`, { ...options, headers, cache: "no-store" });
    answer = await response.json();
  } catch {
    const fact = response ? `It answered ${response.status} without a message.` : "The server does not answer.";
    throw new AskError(fact, "lost", "Is Pellucid still running in its terminal?");
  }
  if (response.ok) return answer;
  const { message, remedy } = answer?.error ?? {};
  const kind = response.status === 401 ? "locked" : "refused";
  throw new AskError(message ?? `The server answered ${response.status}.`, kind, remedy);
}
