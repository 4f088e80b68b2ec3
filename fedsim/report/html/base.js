"use strict";
// The colors of Okabe and Ito, each with a dash pattern and a marker, so that settings differ without color vision, too.
const COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "var(--black)"];
const DASHES = ["", "9 4", "2 3", "11 3 2 3"];
const MARKERS = ["circle", "square", "triangle", "diamond", "cross"];
const STATES = { fresh: "#0072B2", stale: "#E69F00", wasted: "#999999" };
const SHOWN = 8; // settings that are visible at first
const $ = (id) => document.getElementById(id);
const colour = (i) => COLOURS[i % COLOURS.length];
const dash = (i) => DASHES[Math.floor(i / COLOURS.length + i) % DASHES.length];
const percent = (v) => (v === null || v === undefined ? "–" : (100 * v).toFixed(1) + " %");
const short = (v) => +v.toPrecision(3);
const many = (n, word) => `${n} ${word}${n === 1 ? "" : "s"}`;
const known = (list) => list.filter((v) => v !== null && !Number.isNaN(v));
let METRIC = { name: "accuracy", direction: "max", percent: true }, BETTER = 1;
const shown = (v) => (v === null || v === undefined || Number.isNaN(v) ? "–" : METRIC.percent ? percent(v) : String(+v.toPrecision(4)));

function duration(seconds) {
  for (const [unit, length] of [["d", 86400], ["h", 3600], ["min", 60]]) if (seconds >= 2 * length) return `${Math.round(seconds / length)} ${unit}`;
  return `${seconds < 10 ? +seconds.toFixed(1) : Math.round(seconds)} s`;
}

function bytes(v) {
  for (const [unit, size] of [["GB", 1e9], ["MB", 1e6], ["kB", 1e3]]) if (v >= size) return `${+(v / size).toPrecision(3)} ${unit}`;
  return `${v} B`;
}

function element(name, attributes = {}, text = null) {
  const svg = ["svg", "line", "path", "circle", "rect", "text", "g"].includes(name);
  const node = svg ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (text !== null) node.textContent = text;
  return node;
}

// The options of a select; the chosen one stays, as far as it still exists.
function options(select, values, names = values) {
  const before = select.value;
  if (select.options.length === values.length && values.every((v, i) => select.options[i].value === String(v) && select.options[i].text === String(names[i]))) return;
  select.replaceChildren(...values.map((value, i) => element("option", { value }, names[i])));
  if (values.map(String).includes(before)) select.value = before;
}

// A tooltip at the pointer; `find(event)` returns its text, or null.
function tips(node, find) {
  const show = (event) => {
    const text = find(event), tip = $("tip");
    tip.hidden = text === null;
    if (text === null) return;
    tip.textContent = text;
    tip.style.left = Math.max(4, Math.min(event.clientX + 12, window.innerWidth - tip.offsetWidth - 8)) + "px";
    const below = event.clientY + 16;
    tip.style.top = Math.max(4, below + tip.offsetHeight > window.innerHeight ? event.clientY - tip.offsetHeight - 10 : below) + "px";
  };
  node.addEventListener("pointermove", show);
  node.addEventListener("pointerdown", show);
  node.addEventListener("pointerleave", () => ($("tip").hidden = true));
}

// Tables that are sorted by a click on a heading: each remembers how, by its id.
const sorting = {};

// `value(row, column)` is sorted by, `cells(row)` makes the cells of a row; `rows`: what both are given.
function sortable(table, columns, rows, value, cells, first = null, mark = () => {}) {
  sorting[table.id] ??= { column: first, up: BETTER < 0 };
  const draw = () => {
    const { column, up } = sorting[table.id], place = columns.indexOf(column), list = [...rows];
    if (place >= 0) list.sort((a, b) => {
      const [x, y] = [value(a, place), value(b, place)];
      if (x === null || y === null) return (x === null) - (y === null); // missing values come last
      return (x < y ? -1 : x > y ? 1 : 0) * (up ? 1 : -1);
    });
    const head = element("tr");
    columns.forEach((title, c) => {
      const th = element("th", { scope: "col", "aria-sort": place === c ? (up ? "ascending" : "descending") : "none" });
      const button = element("button", { type: "button" }, title);
      button.onclick = () => { sorting[table.id] = { column: title, up: place === c ? !up : c === 0 }; draw(); };
      th.append(button);
      head.append(th);
    });
    const body = list.map((row) => {
      const tr = element("tr");
      tr.append(...cells(row));
      mark(tr, row);
      return tr;
    });
    const [thead, tbody] = [element("thead"), element("tbody")];
    thead.append(head);
    tbody.append(...body);
    table.replaceChildren(thead, tbody);
  };
  draw();
}

function plainTable(head, rows) {
  const table = element("table"), line = (cells, kind) => {
    const tr = element("tr");
    tr.append(...cells.map((text) => element(kind, {}, text)));
    return tr;
  };
  table.append(line(head, "th"), ...rows.map((cells) => line(cells, "td")));
  return table;
}

// A plot: axes, and functions from values to positions

const nice = (range) => [1, 2, 2.5, 5, 10].map((f) => f * 10 ** Math.floor(Math.log10(range / 5))).find((step) => range / step <= 6.5) ?? range / 5;

function axes(holder, { x, y, xlabel, ylabel, height = 340, xticks = true, yticks = true, left = 52, bottom = 42, whole = false, unit = "", text = null }) {
  const width = Math.max(300, holder.clientWidth || 720), right = 14, top = 14;
  const svg = element("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${ylabel} over ${xlabel}` });
  const px = (v) => left + ((v - x[0]) / (x[1] - x[0] || 1)) * (width - left - right);
  const py = (v) => height - bottom - ((v - y[0]) / (y[1] - y[0] || 1)) * (height - top - bottom);
  const ticks = ([low, high]) => {
    const step = Math.max(nice(Math.abs(high - low) || 1), whole ? 1 : 0), from = Math.min(low, high), list = [];
    for (let v = Math.ceil(from / step - 1e-9) * step; v <= Math.max(low, high) + step * 1e-6; v += step) list.push(+v.toPrecision(6));
    return list;
  };
  if (yticks) for (const v of ticks(y)) {
    svg.append(element("line", { class: "grid", x1: left, x2: width - right, y1: py(v), y2: py(v) }));
    svg.append(element("text", { x: left - 7, y: py(v) + 4, "text-anchor": "end" }, unit === "%" ? Math.round(100 * v) + " %" : text && text !== String ? text(v) : v));
  }
  if (xticks) for (const v of ticks(x)) svg.append(element("text", { x: px(v), y: height - bottom + 17, "text-anchor": "middle" }, v));
  svg.append(element("text", { x: (left + width - right) / 2, y: height - 7, "text-anchor": "middle" }, xlabel));
  holder.replaceChildren(svg);
  const place = (event) => {
    const box = svg.getBoundingClientRect();
    return [((event.clientX - box.left) / box.width) * width, ((event.clientY - box.top) / box.height) * height];
  };
  const value = (event) => x[0] + ((place(event)[0] - left) / (width - left - right)) * (x[1] - x[0]);
  return { svg, px, py, place, value, width, height, left };
}

// A line that follows the pointer, with a tooltip: `describe(x)`
function crosshair(plot, last, describe) {
  const line = element("line", { y1: 14, y2: plot.height - 42, stroke: "var(--soft)", "stroke-width": 1, visibility: "hidden" });
  plot.svg.append(line);
  plot.svg.addEventListener("pointerleave", () => line.setAttribute("visibility", "hidden"));
  tips(plot.svg, (event) => {
    const x = Math.min(last, Math.max(0, plot.value(event)));
    line.setAttribute("x1", plot.px(x)); line.setAttribute("x2", plot.px(x)); line.setAttribute("visibility", "visible");
    return describe(x);
  });
}

function marker(i, x, y, r = 4) {
  const kind = MARKERS[i % MARKERS.length], fill = { fill: colour(i), stroke: "var(--panel)", "stroke-width": 1 };
  if (kind === "circle") return element("circle", { cx: x, cy: y, r, ...fill });
  if (kind === "square") return element("rect", { x: x - r + 0.5, y: y - r + 0.5, width: 2 * r - 1, height: 2 * r - 1, ...fill });
  const d = { triangle: `M${x},${y - r - 0.5} L${x + r},${y + r - 0.5} L${x - r},${y + r - 0.5} Z`, diamond: `M${x},${y - r - 1} L${x + r + 1},${y} L${x},${y + r + 1} L${x - r - 1},${y} Z` }[kind];
  return d ? element("path", { d, ...fill }) : element("path", { d: `M${x - r},${y - r} L${x + r},${y + r} M${x - r},${y + r} L${x + r},${y - r}`, stroke: colour(i), "stroke-width": 2.2, fill: "none" });
}

// The range of an axis for values of the metric: tenths for percentages, else the values with a margin
function range(lows, highs) {
  const finite = (list) => list.filter(Number.isFinite);
  if (METRIC.percent) return [Math.max(0, Math.floor(Math.min(1, ...finite(lows)) * 10 - 0.2) / 10), Math.min(1, Math.ceil(Math.max(0.1, ...finite(highs)) * 10 + 0.2) / 10)];
  const [low, high] = [Math.min(...finite(lows)), Math.max(...finite(highs))];
  if (!Number.isFinite(low) || !Number.isFinite(high)) return [0, 1];
  const margin = 0.05 * (high - low) || 0.05 * Math.abs(high) || 1;
  return [low >= 0 ? Math.max(0, low - margin) : low - margin, high + margin];
}

// Names at the left of rows, cut to the width of the margin
const margin = (holder) => Math.min(220, Math.max(96, (holder.clientWidth || 720) * 0.24));
const fitting = (name, left) => (name.length > left / 6.6 ? name.slice(0, Math.floor(left / 6.6) - 1) + "…" : name);

function swatches(list, entries) {
  list.replaceChildren(...entries.map(([name, fill]) => {
    const li = element("li"), box = element("span", { class: "swatch" });
    box.style.background = fill;
    li.append(box, name);
    return li;
  }));
}

// Red, green and blue for a value from 0 (dark) to 1 (bright)
function ramp(v) {
  const stops = [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]];
  const t = Math.max(0, Math.min(1, v)) * 4, i = Math.min(3, Math.floor(t)), [p, q] = [stops[i], stops[i + 1]];
  return [0, 1, 2].map((k) => p[k] + (q[k] - p[k]) * (t - i));
}

// A heat map in a canvas, one square per entry, from dark to bright, and gray where `at` returns null.
function heat(holder, rows, columns, at, describe, ratio = columns / rows) {
  const canvas = element("canvas", { width: columns, height: rows, role: "img" });
  canvas.style.aspectRatio = ratio;
  const context = canvas.getContext("2d"), image = context.createImageData(columns, rows);
  for (let r = 0; r < rows; r++) for (let c = 0; c < columns; c++) {
    const v = at(r, c);
    image.data.set(v === null ? [128, 128, 128, 90] : Array.isArray(v) ? v : [...ramp(v), 255], (r * columns + c) * 4);
  }
  context.putImageData(image, 0, 0);
  holder.replaceChildren(canvas);
  tips(canvas, (event) => {
    const box = canvas.getBoundingClientRect();
    const r = Math.floor(((event.clientY - box.top) / box.height) * rows), c = Math.floor(((event.clientX - box.left) / box.width) * columns);
    return r < 0 || c < 0 || r >= rows || c >= columns ? null : describe(r, c);
  });
}

// At most `most` evenly spaced places of a list, with the first and the last one
function places(length, most) {
  if (length <= most) return [...Array(length).keys()];
  return [...Array(most).keys()].map((i) => Math.round((i * (length - 1)) / (most - 1)));
}
