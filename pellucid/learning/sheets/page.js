"use strict";
// Boxes become fields, and their answers a file that `pellucid mark` reads. Without this script the page is for paper.
const { file, name } = JSON.parse(document.getElementById("data").textContent);
const typed = JSON.parse(file).answers;
const fields = [...document.querySelectorAll(".box[data-key]")].map((box, i) => {
  const field = document.createElement("input");
  field.className = "box";
  field.dataset.key = box.dataset.key;
  field.value = typed[box.dataset.key] ?? "";
  field.autocomplete = "off";
  field.spellcheck = false;
  field.setAttribute("aria-label", `answer of ${box.dataset.key}`);
  field.addEventListener("input", () => { said.textContent = ""; });
  box.replaceWith(field);
  return field;
});
const save = document.createElement("button"), said = document.createElement("output");
save.textContent = "Save the answers";
save.addEventListener("click", () => {
  const answers = Object.fromEntries(fields.map(field => [field.dataset.key, field.value.trim()]).filter(([, text]) => text));
  const start = file.lastIndexOf('"answers":');
  const text = `${file.slice(0, start)}"answers":${JSON.stringify(answers)}}`;
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type: "application/json" }));
  link.download = name;
  link.click();
  URL.revokeObjectURL(link.href);
  said.textContent = ` ${Object.keys(answers).length} of ${fields.length} answers are in ${name}. Now: pellucid mark ${name}`;
});
const row = document.createElement("p");
row.className = "save";
row.append(save, said);
document.querySelector("footer").before(row);
