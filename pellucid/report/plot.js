"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const tip = document.getElementById("tip");
const create = (name, parent) => parent.appendChild(document.createElementNS("http://www.w3.org/2000/svg", name));
document.querySelectorAll("svg.panel").forEach((svg, i) => {
  const panel = data.panels[i];
  panel.svg = svg;
  panel.marks = create("g", svg);
  svg.addEventListener("pointermove", event => show(event, panel));
  svg.addEventListener("pointerleave", hide);
});

function hide() {
  for (const panel of data.panels) panel.marks.replaceChildren();
  tip.style.display = "none";
}

// The place in a rising list that is nearest to a step.
function nearest(steps, step) {
  let low = 0, high = steps.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (steps[middle] < step) low = middle; else high = middle;
  }
  return step - steps[low] <= steps[high] - step ? low : high;
}

// The nearest step of every run under the pointer, marked in all panels and shown for this one.
function show(event, here) {
  const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(here.svg.getScreenCTM().inverse());
  hide();
  if (at.x < here.left || at.x > here.left + here.wide || at.y < here.top || at.y > here.top + here.high) return;
  tip.style.display = "block";
  const step = here.first + (at.x - here.left) / here.wide * (here.last - here.first);
  tip.replaceChildren();
  for (const panel of data.panels) {
    const x = panel.left + (step - panel.first) / (panel.last - panel.first) * panel.wide;
    if (x >= panel.left && x <= panel.left + panel.wide) {
      const rule = create("path", panel.marks);
      rule.setAttribute("d", `M${x} ${panel.top}v${panel.high}`);
      rule.setAttribute("stroke", "#9aa5b1");
    }
    for (const curve of panel.curves) {
      const i = nearest(curve.steps, step), run = data.names[curve.run];
      // A shorter run has nothing to say behind its end.
      const slack = (panel.last - panel.first) / 50;
      if (step > curve.steps[curve.steps.length - 1] + slack || step < curve.steps[0] - slack) continue;
      const place = curve.places[i];
      if (place >= 0 && place <= 1) {
        const dot = create("circle", panel.marks);
        dot.setAttribute("cx", panel.left + (curve.steps[i] - panel.first) / (panel.last - panel.first) * panel.wide);
        dot.setAttribute("cy", panel.top + (1 - place) * panel.high);
        dot.setAttribute("r", 4);
        dot.style.fill = run.color;
      }
      if (panel === here) {
        const row = tip.appendChild(document.createElement("div"));
        row.style.color = run.color;
        row.textContent = `${run.name}  ${here.unit} ${curve.steps[i].toLocaleString("en")}  ${curve.values[i]}`;
      }
    }
  }
  if (!tip.childNodes.length) tip.textContent = `${here.unit} ${step.toLocaleString("en", { maximumFractionDigits: here.unit === "step" ? 0 : 2 })}`;
  const width = tip.offsetWidth, right = event.clientX + 16;
  tip.style.left = `${right + width < innerWidth ? right : event.clientX - width - 16}px`;
  tip.style.top = `${Math.min(event.clientY + 16, innerHeight - tip.offsetHeight - 8)}px`;
}
