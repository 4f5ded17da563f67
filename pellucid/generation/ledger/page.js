"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const panel = document.getElementById("panel");
const tokens = [...document.querySelectorAll(".t[role=option]")];
let selected = -1;

function make(name, kind, text) {
  const made = document.createElement(name);
  if (kind) made.className = kind;
  if (text !== undefined) made.textContent = text;
  return made;
}

function number(value, digits) {
  if (value === null) return "";
  if (typeof value === "string") return value.replace("inf", "∞").replace("-", "−");
  if (value !== 0 && Math.abs(value) < 1e-4) return value.toExponential(1).replace("-", "−");
  return value.toFixed(digits).replace("-", "−");
}

// The numbers of one token, the chain as steps, the interval of u, and the candidates.
function show(place) {
  const [choice, step] = tokens[place].dataset.at.split(" ").map(Number);
  const token = data.choices[choice][step];
  const how = make("section", "how"), who = make("section");
  how.append(make("h4", "", "chain"), chain(token));
  who.append(make("h4", "", "candidates after every sampler"));
  if (token.u !== null) who.append(...strip(token));
  who.append(table(token));
  for (const text of token.notes) who.append(make("p", "note faint", text));
  panel.replaceChildren(head(place, choice, step, token), numbers(token), how, who);
  panel.hidden = false;
  document.getElementById("explain").textContent =
    `pellucid explain ${data.file} --token ${step + 1}${data.choices.length > 1 ? ` --choice ${choice}` : ""}`;
}

function head(place, choice, step, token) {
  const heading = make("h3");
  heading.append(make("span", "token", data.texts[token.text]));
  const which = data.choices.length > 1 ? `choice ${choice}, ` : "";
  heading.append(make("span", "faint", `${which}token ${step + 1}, id ${token.id}`));
  const nav = make("nav");
  for (const [sign, label, by] of [["←", "the token before", -1], ["→", "the next token", 1]]) {
    const button = nav.appendChild(make("button", "", sign));
    button.setAttribute("aria-label", label);
    button.addEventListener("click", () => {
      select(place + by, false);
      panel.querySelectorAll("nav button")[by < 0 ? 0 : 1].focus();  // the panel is made anew
    });
  }
  heading.append(nav);
  return heading;
}

function numbers(token) {
  const list = make("dl", "numbers");
  const rows = [["p after the samplers", number(token.p, 4)], ["the model's own p", number(token.own, 4)],
    ["rank", token.rank.toLocaleString("en")], ["surprisal", `${number(token.surprisal, 3)} nats`],
    ["entropy", `${number(token.entropy, 3)} nats`], ["u", token.u === null ? "not drawn" : number(token.u, 4)]];
  for (const [word, value] of rows) {
    const row = list.appendChild(make("div"));
    row.append(make("dt", "", word), make("dd", "", value));
  }
  return list;
}

function chain(token) {
  const list = make("ol", "chain");
  list.append(make("li", "", `${data.vocabulary.toLocaleString("en")} logits`));
  data.chain.forEach((text, i) => {
    const item = list.appendChild(make("li", "", text));
    const removed = token.removed.find(one => one[0] === i);
    if (!removed) return;
    item.className = "cuts";
    const [, count, mass, ids] = removed;
    item.append(make("span", "faint", `: removed ${count.toLocaleString("en")} with p = ${number(mass, 4)}, `));
    ids.forEach(id => item.append(make("code", "", data.texts[id]), " "));
    if (count > ids.length) item.append("…");
  });
  const left = `${token.kept.toLocaleString("en")} candidate${token.kept === 1 ? "" : "s"}`;
  list.append(make("li", "", left));
  const ended = token.u === null ? data.rule : `draw with u = ${token.u}`;
  list.append(make("li", "last", ended));
  return list;
}

// The cumulative probabilities from 0 to 1, and where u fell.
function strip(token) {
  const bar = make("div", "strip");
  bar.setAttribute("role", "img");
  bar.setAttribute("aria-label", `u = ${token.u} falls into the interval of ${data.texts[token.text]}`);
  let end = 0;
  for (const [text, , , p, start] of token.candidates) {
    if (start - end > 1e-9) bar.append(cell("", start - end));
    const shown = cell(data.texts[text], p);
    if (text === token.text) shown.classList.add("chosen");
    bar.append(shown);
    end = start + p;
  }
  const mark = bar.appendChild(make("div", "u" + (token.u < 0.15 ? " left" : token.u > 0.85 ? " right" : "")));
  mark.style.left = `${100 * token.u}%`;
  mark.append(make("span", "", `u = ${number(token.u, 4)}`));
  const ends = make("div", "ends");
  ends.append(make("span", "", "0"), make("span", "", "cumulative p"), make("span", "", "1"));
  return [bar, ends];
}

function cell(text, share) {
  const made = make("div", "cell", share > 0.06 ? text : "");
  made.style.flex = `0 0 ${100 * share}%`;
  return made;
}

function table(token) {
  const made = make("table"), top = Math.max(...token.candidates.map(one => one[3]));
  const heads = made.createTHead().insertRow();
  for (const word of ["candidate", "logit", "score", "p", ""]) heads.append(make("th", "", word));
  const body = made.createTBody();
  let next = 0;
  token.candidates.forEach(([text, logit, score, p, , place]) => {
    if (place > next) gap(body, `… ${(place - next).toLocaleString("en")} more`);
    next = place + 1;
    const row = body.insertRow();
    if (text === token.text) row.className = "chosen";
    row.append(make("td", "cell", data.texts[text]));
    for (const [value, digits] of [[logit, 3], [score, 3], [p, 4]]) row.append(make("td", "", number(value, digits)));
    row.appendChild(make("td", "bar")).appendChild(make("b")).style.width = `${100 * p / top}%`;
  });
  if (token.kept > next) gap(body, `… ${(token.kept - next).toLocaleString("en")} more`);
  return made;
}

function gap(body, text) {
  const cell = body.insertRow().insertCell();
  cell.parentNode.className = "gap";
  cell.colSpan = 5;
  cell.textContent = text;
}

function select(place, focus = true) {
  if (place < 0 || place >= tokens.length) return;
  if (selected >= 0) {
    tokens[selected].setAttribute("aria-selected", "false");
    tokens[selected].tabIndex = -1;
  }
  selected = place;
  tokens[place].setAttribute("aria-selected", "true");
  tokens[place].tabIndex = 0;
  if (focus) tokens[place].focus({ preventScroll: true });
  tokens[place].scrollIntoView({ block: "nearest" });
  show(place);
}

// The token of the next line up or down that is nearest to this one.
function vertical(place, sign) {
  const here = tokens[place].getBoundingClientRect(), x = here.left + here.width / 2;
  let best = place, line = null, nearest = Infinity;
  for (let i = place + sign; i >= 0 && i < tokens.length; i += sign) {
    const box = tokens[i].getBoundingClientRect();
    if (sign * (box.top - here.top) < here.height / 2) continue;
    if (line === null) line = box.top;
    if (Math.abs(box.top - line) > here.height / 2) break;
    const off = Math.abs(box.left + box.width / 2 - x);
    if (off < nearest) { nearest = off; best = i; }
  }
  return best;
}

const moves = {
  ArrowRight: place => place + 1, ArrowLeft: place => place - 1,
  ArrowDown: place => vertical(place, 1), ArrowUp: place => vertical(place, -1),
  Home: () => 0, End: () => tokens.length - 1,
};

tokens.forEach((token, place) => {
  token.addEventListener("click", () => select(place));
  token.addEventListener("pointerenter", event => {
    if (event.pointerType !== "mouse") return;
    token.classList.add("hover");
    show(place);
  });
  token.addEventListener("pointerleave", () => {
    token.classList.remove("hover");
    if (selected >= 0) show(selected);
  });
  token.addEventListener("focus", () => { if (place !== selected) select(place); });
});

// Where no token has the focus, as after the page has opened, the keys that scroll it are left to it.
document.addEventListener("keydown", event => {
  const isToken = tokens.includes(event.target), isTree = event.target.closest(".tree") !== null;
  const isMove = event.key in moves && (isToken || (!isTree && /^Arrow(Left|Right)$/.test(event.key)));
  if (!isMove || !tokens.length || event.ctrlKey || event.altKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  const place = selected < 0 ? 0 : moves[event.key](selected);
  select(Math.min(Math.max(place, 0), tokens.length - 1));
});
const asked = /^#token-(\d+)$/.exec(location.hash);
const narrow = matchMedia("(max-width: 56rem)").matches;
if (narrow) document.getElementById("settings").open = false;
if (tokens.length && asked) select(Math.min(Math.max(asked[1], 1), tokens.length) - 1, false);
else if (tokens.length && !narrow) select(0, false);
else if (tokens.length) tokens[0].tabIndex = 0;
