"use strict";
// Okabe and Ito's colours, and a dash pattern each: distinguishable without colour vision, too.
const COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#999999"];
const DASHES = ["", "8 4", "2 3", "10 3 2 3"];
const STATES = { fresh: "#0072B2", stale: "#E69F00", wasted: "#999999" };
const $ = (id) => document.getElementById(id);
const colour = (i) => COLOURS[i % COLOURS.length];
const dash = (i) => DASHES[Math.floor(i / COLOURS.length + i) % DASHES.length];
const mean = (list) => list.reduce((a, b) => a + b, 0) / list.length;
const number = (v, digits = 3) => (v === null || v === undefined ? "–" : v.toFixed(digits));

function element(name, attributes = {}, text = null) {
  const svg = ["svg", "line", "path", "circle", "rect", "text", "g", "title"].includes(name);
  const node = svg ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (text !== null) node.textContent = text;
  return node;
}

function options(select, names) {
  select.replaceChildren(...names.map((name, i) => element("option", { value: i }, name)));
}

// A tip that follows the pointer; `find(event)` returns the text, or null.
function tips(node, find) {
  node.addEventListener("pointermove", (event) => {
    const text = find(event);
    $("tip").hidden = text === null;
    if (text === null) return;
    $("tip").textContent = text;
    const width = $("tip").offsetWidth;
    $("tip").style.left = Math.max(4, Math.min(event.clientX + 12, window.innerWidth - width - 8)) + "px";
    $("tip").style.top = event.clientY + 14 + "px";
  });
  node.addEventListener("pointerleave", () => ($("tip").hidden = true));
}

// Results: a table that sorts by the heading that is clicked

const COLUMNS = [["setting", "label"], ["best", "best"], ["final", "final"], ["worst 10 %", "worst"], ["seeds", "seeds"]];
let sorted = { column: "best", up: false };

function cell(group, key) {
  if (key === "label") return group.label;
  if (key === "seeds") return String(group.runs.length);
  const [value, spread] = group[key];
  return number(value) + (spread === null ? "" : " ± " + number(spread));
}

function value(group, key) {
  return key === "label" ? group.label : key === "seeds" ? group.runs.length : group[key][0] ?? -1;
}

function drawTable() {
  const rows = [...DATA.groups].sort((a, b) => {
    const [x, y] = [value(a, sorted.column), value(b, sorted.column)];
    return (x < y ? -1 : x > y ? 1 : 0) * (sorted.up ? 1 : -1);
  });
  const ranks = Object.fromEntries(["best", "final", "worst"].map((key) => [key, DATA.groups.map((g) => value(g, key)).sort((a, b) => b - a)]));
  const head = element("tr");
  for (const [title, key] of COLUMNS) {
    const th = element("th", { scope: "col", "aria-sort": sorted.column === key ? (sorted.up ? "ascending" : "descending") : "none" });
    const button = element("button", { type: "button" }, title);
    button.onclick = () => { sorted = { column: key, up: sorted.column === key ? !sorted.up : key === "label" }; drawTable(); };
    th.append(button);
    head.append(th);
  }
  const body = rows.map((group) => {
    const tr = element("tr");
    for (const [, key] of COLUMNS) {
      const td = element("td", {}, cell(group, key));
      const place = ranks[key] && DATA.groups.length > 1 ? ranks[key].indexOf(value(group, key)) : -1;
      if (place === 0) td.className = "first";
      if (place === 1) td.className = "second";
      tr.append(td);
    }
    return tr;
  });
  $("table").replaceChildren(head, ...body);
}

// A plot: axes, and functions from values to places

function axes(holder, { x, y, xlabel, ylabel, height = 320, ticks = true }) {
  const width = Math.max(300, holder.clientWidth || 720), left = 46, right = 12, top = 12, bottom = 40;
  const svg = element("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${ylabel} over ${xlabel}` });
  const px = (v) => left + ((v - x[0]) / (x[1] - x[0] || 1)) * (width - left - right);
  const py = (v) => height - bottom - ((v - y[0]) / (y[1] - y[0] || 1)) * (height - top - bottom);
  for (let i = 0; i <= 5; i++) {
    const v = y[0] + (i / 5) * (y[1] - y[0]);
    svg.append(element("line", { class: "grid", x1: left, x2: width - right, y1: py(v), y2: py(v) }));
    svg.append(element("text", { x: left - 6, y: py(v) + 4, "text-anchor": "end" }, +v.toFixed(2)));
    const u = x[0] + (i / 5) * (x[1] - x[0]);
    if (ticks) svg.append(element("text", { x: px(u), y: height - bottom + 16, "text-anchor": "middle" }, +u.toPrecision(3)));
  }
  svg.append(element("text", { x: (left + width) / 2, y: height - 6, "text-anchor": "middle" }, xlabel));
  holder.replaceChildren(svg);
  const place = (event) => {
    const box = svg.getBoundingClientRect();
    return [x[0] + (((event.clientX - box.left) / box.width) * width - left) / (width - left - right) * (x[1] - x[0]), ((event.clientY - box.top) / box.height) * height];
  };
  return { svg, px, py, place, width, height };
}

function curveOf(group, kind, axis) {
  const series = group.runs.map((i) => DATA.runs[i].series[kind]).filter(Boolean);
  if (!series.length) return null;
  const length = Math.min(...series.map((s) => s.rounds.length));
  const at = (pick) => [...Array(length).keys()].map((i) => pick(series.map((s) => s.mean[i])));
  return { x: series[0][axis].slice(0, length), mid: at(mean), low: at((v) => Math.min(...v)), high: at((v) => Math.max(...v)) };
}

function drawCurves() {
  const kind = DATA.kinds[$("kind").value], axis = $("axis").value;
  const curves = DATA.groups.map((group) => curveOf(group, kind, axis));
  const last = Math.max(1e-9, ...curves.filter(Boolean).map((c) => c.x[c.x.length - 1]));
  const plot = axes($("curve"), { x: [0, last], y: [0, 1], xlabel: axis === "rounds" ? "round" : "virtual seconds", ylabel: "accuracy" });
  curves.forEach((curve, i) => {
    if (!curve) return;
    const path = (values, list = curve.x) => list.map((x, k) => `${plot.px(x)},${plot.py(values[k])}`).join(" L");
    const back = path([...curve.low].reverse(), [...curve.x].reverse());
    plot.svg.append(element("path", { d: `M${path(curve.high)} L${back} Z`, fill: colour(i), opacity: 0.15 }));
    plot.svg.append(element("path", { d: "M" + path(curve.mid), fill: "none", stroke: colour(i), "stroke-width": 2.2, "stroke-dasharray": dash(i) }));
  });
  tips(plot.svg, (event) => {
    const [x] = plot.place(event);
    const near = (c) => c.x.reduce((best, v, k) => (Math.abs(v - x) < Math.abs(c.x[best] - x) ? k : best), 0);
    const shown = curves.map((c, i) => (c ? `${DATA.groups[i].label} ${number(c.mid[near(c)])}` : null)).filter(Boolean);
    return `${+Math.max(0, x).toPrecision(3)}: ${shown.join(" · ")}`;
  });
  $("legend").replaceChildren(...DATA.groups.map((group, i) => {
    const li = element("li"), svg = element("svg", { viewBox: "0 0 34 12" });
    svg.append(element("line", { x1: 0, x2: 34, y1: 6, y2: 6, stroke: colour(i), "stroke-width": 2.5, "stroke-dasharray": dash(i) }));
    li.append(svg, group.label);
    return li;
  }));
}

function drawStrip() {
  const plot = axes($("strip"), { x: [-0.5, DATA.groups.length - 0.5], y: [0, 1], xlabel: "", ylabel: "final accuracy", ticks: false });
  const dots = [];
  DATA.groups.forEach((group, i) => {
    const all = group.runs.flatMap((r) => DATA.runs[r].series.personal?.final ?? []).map((v, k) => [v, k]).filter(([v]) => v !== null);
    all.forEach(([v, k]) => {
      const spot = [plot.px(i + ((k % 23) / 23 - 0.5) * 0.5), plot.py(v), `${group.label}: ${number(v)}`];
      dots.push(spot);
      plot.svg.append(element("circle", { cx: spot[0], cy: spot[1], r: 3.5, fill: colour(i), opacity: 0.65 }));
    });
    if (all.length) plot.svg.append(element("line", { x1: plot.px(i - 0.3), x2: plot.px(i + 0.3), y1: plot.py(mean(all.map(([v]) => v))), y2: plot.py(mean(all.map(([v]) => v))), stroke: colour(i), "stroke-width": 3 }));
    const most = Math.max(4, Math.floor((2 * plot.width) / DATA.groups.length / 8)); // letters that fit, in two rows
    const name = group.label.length > most ? group.label.slice(0, most - 1) + "…" : group.label;
    const text = { x: Math.min(Math.max(plot.px(i), 50), plot.width - 62), y: plot.height - (i % 2 ? 8 : 22), "text-anchor": "middle" };
    plot.svg.append(element("text", text, name));
  });
  tips(plot.svg, (event) => {
    const box = plot.svg.getBoundingClientRect(), f = plot.width / box.width;
    const [x, y] = [(event.clientX - box.left) * f, (event.clientY - box.top) * f];
    const near = dots.find(([a, b]) => Math.hypot(a - x, b - y) < 7);
    return near ? near[2] : null;
  });
}

// One run

const chosen = () => DATA.runs[$("run").value];

// A heat map in a canvas, one square per entry; viridis-like, from dark to bright.
function heat(holder, rows, columns, at, tell) {
  const canvas = element("canvas", { width: columns, height: rows, role: "img" });
  canvas.style.aspectRatio = `${columns} / ${Math.min(rows, columns * 1.2)}`;
  const context = canvas.getContext("2d"), image = context.createImageData(columns, rows);
  const stops = [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]];
  for (let r = 0; r < rows; r++) for (let c = 0; c < columns; c++) {
    const t = Math.max(0, Math.min(1, at(r, c))) * 4, i = Math.min(3, Math.floor(t));
    const [p, q] = [stops[i], stops[i + 1]];
    image.data.set([0, 1, 2].map((k) => p[k] + (q[k] - p[k]) * (t - i)).concat(255), (r * columns + c) * 4);
  }
  context.putImageData(image, 0, 0);
  holder.replaceChildren(canvas);
  tips(canvas, (event) => {
    const box = canvas.getBoundingClientRect();
    const r = Math.floor(((event.clientY - box.top) / box.height) * rows), c = Math.floor(((event.clientX - box.left) / box.width) * columns);
    return r < 0 || c < 0 || r >= rows || c >= columns ? null : tell(r, c);
  });
}

function drawMatrix() {
  const names = Object.keys(chosen().matrices);
  $("matrixpart").hidden = names.length === 0;
  if (!names.length) return;
  const all = chosen().matrices[names[$("matrix").value] ?? names[0]];
  $("round").max = all.rounds.length - 1;
  const k = Math.min($("round").value, all.rounds.length - 1), m = all.values[k], n = m.length;
  $("roundvalue").textContent = all.rounds[k];
  const off = m.flatMap((row, r) => row.filter((_, c) => c !== r)), low = Math.min(...off), high = Math.max(...off);
  heat($("heat"), n, n, (r, c) => (high > low ? (m[r][c] - low) / (high - low) : 0.5), (r, c) => `client ${all.order[r]} and ${all.order[c]}: ${number(m[r][c], 4)}`);
}

function drawTimeline() {
  const run = chosen(), rows = Object.fromEntries(run.clients.map(([id], i) => [id, i])), n = run.clients.length;
  const end = Math.max(1e-9, run.steps[run.steps.length - 1] ?? 1);
  const plot = axes($("timeline"), { x: [0, end], y: [n, 0], xlabel: "seconds", ylabel: "client", height: Math.max(220, Math.min(700, 60 + 14 * n)) });
  const state = (job) => (job[3] === null ? "wasted" : job[3] > 0 ? "stale" : "fresh");
  for (const job of run.jobs) {
    const [client, sent, arrived] = job;
    const box = { x: plot.px(sent), y: plot.py(rows[client] + 0.15), width: Math.max(0.5, plot.px(Math.min(arrived, end)) - plot.px(sent) - 0.6), height: plot.py(rows[client] + 0.85) - plot.py(rows[client] + 0.15) };
    plot.svg.append(element("rect", { ...box, fill: STATES[state(job)] }));
  }
  if (run.steps.length <= plot.width / 6) for (const t of run.steps) plot.svg.append(element("line", { x1: plot.px(t), x2: plot.px(t), y1: plot.py(0), y2: plot.py(n), stroke: "currentColor", "stroke-width": 0.7 }));
  tips(plot.svg, (event) => {
    const [x, y] = plot.place(event), job = run.jobs.find((j) => x >= j[1] && x <= j[2] && y >= plot.py(rows[j[0]]) && y <= plot.py(rows[j[0]] + 1));
    return job ? `client ${job[0]}: ${job[1]} to ${job[2]} s, ${state(job)}${job[3] ? " by " + job[3] : ""}` : null;
  });
  const idle = Math.round(100 * mean(run.idle));
  $("timenote").textContent = `Blue: fresh, orange: stale, grey: wasted; lines: server steps. Clients were idle ${idle} % of the time.` + (run.left_out ? ` ${run.left_out} later jobs are not drawn.` : "");
}

function drawLabels() {
  const clients = chosen().clients, classes = Math.max(...clients.map(([, , , labels]) => labels.length));
  const share = (r, c) => (clients[c][3][r] ?? 0) / Math.max(1, clients[c][1]);
  const most = Math.max(...clients.flatMap((_, c) => [...Array(classes).keys()].map((r) => share(r, c))));
  heat($("labels"), classes, clients.length, (r, c) => share(r, c) / most, (r, c) => `client ${clients[c][0]}, class ${r}: ${clients[c][3][r] ?? 0} of ${clients[c][1]} samples`);
}

function drawConfig() {
  const run = chosen(), rows = { ...run.config, ...run.about, packages: Object.entries(run.about.packages ?? {}).map(([k, v]) => `${k} ${v}`).join(", ") };
  $("config").replaceChildren(...Object.entries(rows).map(([key, text]) => {
    const tr = element("tr");
    tr.append(element("td", {}, key), element("td", {}, String(text)));
    return tr;
  }));
}

function drawRun() {
  options($("matrix"), Object.keys(chosen().matrices));
  $("round").value = 1e6;
  [drawMatrix, drawTimeline, drawLabels, drawConfig].forEach((draw) => draw());
}

$("intro").textContent = `${DATA.runs.length} runs in ${DATA.groups.length} settings.`;
options($("kind"), DATA.kinds);
$("kind").value = Math.max(0, DATA.kinds.indexOf("personal"));
options($("run"), DATA.runs.map((run) => run.name));
$("kind").onchange = $("axis").onchange = drawCurves;
$("run").onchange = drawRun;
$("matrix").onchange = $("round").oninput = drawMatrix;
window.onresize = () => [drawCurves, drawStrip, drawTimeline].forEach((draw) => draw());
[drawTable, drawCurves, drawStrip, drawRun].forEach((draw) => draw());
