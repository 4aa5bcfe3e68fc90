"use strict";
const DATA = JSON.parse(document.getElementById("data").textContent);
const SVG = "http://www.w3.org/2000/svg";
const PLOT = { left: 44, right: 372, top: 8, bottom: 146 }; // svg.py draws in the same frame

function el(tag, cls, text) {
  const node = document.createElement(tag);
  if (cls) node.className = cls;
  if (text !== undefined) node.textContent = text; // never markup: model text goes through here
  return node;
}

function num(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  if (size === 0) return "0";
  if (size >= 1e6 || size < 1e-3) return value.toExponential(1);
  return String(Number(value.toPrecision(size >= 100 ? Math.max(3, Math.ceil(Math.log10(size + 1))) : 3)));
}

function share(value) {
  if (value === null || !Number.isFinite(value)) return "–";
  return (100 * value).toFixed(Math.abs(value) >= 0.1 ? 0 : 1) + "%";
}

function nearest(sorted, x) {
  let low = 0, high = sorted.length - 1;
  while (high - low > 1) {
    const mid = (low + high) >> 1;
    if (sorted[mid] < x) low = mid; else high = mid;
  }
  return Math.abs(sorted[low] - x) <= Math.abs(sorted[high] - x) ? low : high;
}

function chart(figure) {
  const data = DATA.charts[Number(figure.dataset.chart)];
  const svg = figure.querySelector("svg"), at = figure.querySelector(".at");
  const outs = [...figure.querySelectorAll("output")];
  const before = [at.textContent, ...outs.map((o) => o.textContent)];
  const steps = [...new Set(data.series.flatMap((s) => s.x))].sort((a, b) => a - b);
  const cross = document.createElementNS(SVG, "line");
  cross.setAttribute("class", "cross");
  cross.setAttribute("y1", PLOT.top);
  cross.setAttribute("y2", PLOT.bottom);
  let index = -1;

  function show(i) {
    index = Math.max(0, Math.min(steps.length - 1, i));
    const step = steps[index];
    const x = PLOT.left + (step - data.x0) / (data.x1 - data.x0) * (PLOT.right - PLOT.left);
    cross.setAttribute("x1", x);
    cross.setAttribute("x2", x);
    if (!cross.parentNode) svg.appendChild(cross);
    at.textContent = "step " + step;
    data.series.forEach((s, j) => {
      const told = s.x.length && s.x[0] <= step && step <= s.x[s.x.length - 1];
      const k = told ? nearest(s.x, step) : -1;
      const value = k < 0 ? null : s.y[k];
      outs[j].textContent = data.form === "percent" ? share(value) : num(value);
    });
  }
  function hide() {
    index = -1;
    cross.remove();
    at.textContent = before[0];
    outs.forEach((o, j) => { o.textContent = before[j + 1]; });
  }
  if (!steps.length) return;
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect();
    const x = (event.clientX - box.left) / box.width * 380;
    show(nearest(steps, data.x0 + (x - PLOT.left) / (PLOT.right - PLOT.left) * (data.x1 - data.x0)));
  });
  svg.addEventListener("pointerleave", hide);
  figure.addEventListener("blur", hide);
  figure.addEventListener("keydown", (event) => {
    const moves = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10, Home: -1e9, End: 1e9 };
    if (!(event.key in moves)) return;
    event.preventDefault();
    show(index < 0 && Math.abs(moves[event.key]) < 1e9 ? steps.length - 1 : index + moves[event.key]);
  });
}

document.querySelectorAll(".chart").forEach(chart);

document.getElementById("theme").addEventListener("click", () => {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  try {
    localStorage.setItem("rlvr-theme", root.dataset.theme);
  } catch (error) {
    // storage may be forbidden for local files: the choice then lasts until the page is closed
  }
});
