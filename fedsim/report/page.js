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
const mean = (list) => list.reduce((a, b) => a + b, 0) / list.length;
const percent = (v) => (v === null || v === undefined ? "–" : (100 * v).toFixed(1) + " %");
const short = (v) => +v.toPrecision(3);
const METRIC = DATA.metric, BETTER = METRIC.direction === "max" ? 1 : -1;
const shown = (v) => (METRIC.percent ? percent(v) : v === null || v === undefined ? "–" : String(+v.toPrecision(4)));

function element(name, attributes = {}, text = null) {
  const svg = ["svg", "line", "path", "circle", "rect", "text", "g"].includes(name);
  const node = svg ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (text !== null) node.textContent = text;
  return node;
}

function options(select, names) {
  select.replaceChildren(...names.map((name, i) => element("option", { value: i }, name)));
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

// Tables that are sorted by a click on a heading

function sortable(table, data, first) {
  const columns = ["setting", ...data.columns];
  let sorted = { column: columns.indexOf(first), up: BETTER < 0 };
  const value = (row, c) => (c === 0 ? DATA.settings[row].label : data.values[row][c - 1]);
  const draw = () => {
    const rows = DATA.settings.map((_, row) => row);
    if (sorted.column >= 0) rows.sort((a, b) => {
      const [x, y] = [value(a, sorted.column), value(b, sorted.column)];
      if (x === null || y === null) return (x === null) - (y === null); // missing values come last
      return (x < y ? -1 : x > y ? 1 : 0) * (sorted.up ? 1 : -1);
    });
    const head = element("tr");
    columns.forEach((title, c) => {
      const th = element("th", { scope: "col", "aria-sort": sorted.column === c ? (sorted.up ? "ascending" : "descending") : "none" });
      const button = element("button", { type: "button" }, title);
      button.onclick = () => { sorted = { column: c, up: sorted.column === c ? !sorted.up : c === 0 }; draw(); };
      th.append(button);
      head.append(th);
    });
    const body = rows.map((row) => {
      const tr = element("tr");
      tr.append(element("td", {}, DATA.settings[row].label));
      data.texts[row].forEach((text, c) => {
        const rank = data.ranks[row][c], kind = rank === 0 ? "first" : rank === 1 ? "second" : data.columns[c].endsWith("published") ? "published" : "";
        tr.append(element("td", kind ? { class: kind } : {}, text));
      });
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

function drawPairs() {
  $("pairspart").hidden = DATA.pairs.length < 2;
  const found = Object.fromEntries(DATA.pairs.flatMap(([i, j, p]) => [[`${i} ${j}`, p], [`${j} ${i}`, p]]));
  const rows = DATA.settings.map((setting, i) => [`${i + 1} ${setting.label}`, ...DATA.settings.map((_, j) => (`${i} ${j}` in found ? String(+found[`${i} ${j}`].toPrecision(2)) : ""))]);
  $("pairs").replaceWith(Object.assign(plainTable(["setting", ...DATA.settings.map((_, j) => j + 1)], rows), { id: "pairs" }));
}

function drawSearches() {
  $("searchespart").hidden = DATA.searches.length === 0;
  $("searches").replaceChildren(...DATA.searches.flatMap((search) => {
    const keys = Object.keys(search.points[0]), score = (v) => (search.metric.endsWith("accuracy") ? percent(v) : String(+v.toPrecision(4)));
    const rows = search.points.map((point, i) => [String(i), ...keys.map((key) => String(point[key])), search.scores[i] === null ? "failed" : score(search.scores[i]) + (i === search.best ? " ★" : ""), (search.states[i] ?? "") + (search.states[i] === "stopped" ? ` in round ${search.rounds[i]}` : "")]);
    return [element("h3", {}, search.run), plainTable(["candidate", ...keys, search.metric, ""], rows)];
  }));
}

// A table per panel with a colored cell for each pair of values
function drawHeatmap() {
  $("heatmaps").hidden = DATA.heatmap === null;
  if (DATA.heatmap === null) return;
  const { keys, columns, panels } = DATA.heatmap;
  $("heatmap").replaceChildren(...panels.flatMap((panel) => {
    const texts = panel.rows.map((name, r) => [name, ...panel.texts[r]]), table = plainTable([keys.join(" / "), ...columns], texts), wide = element("div", { class: "wide" });
    table.querySelectorAll("td").forEach((cell, i) => {
      const r = Math.floor(i / (columns.length + 1)), c = (i % (columns.length + 1)) - 1;
      if (c < 0) return;
      const share = panel.shares[r][c];
      cell.style.background = share === null ? "#cccccc" : `rgb(${ramp(share).map(Math.round).join(" ")})`;
      cell.style.color = share === null || share > 0.5 ? "#000" : "#fff";
      cell.title = `${panel.rows[r]}, ${columns[c]}: ${panel.details[r][c]}`;
    });
    wide.append(table);
    return [element("h3", {}, panel.title), wide];
  }));
}

// A plot: axes, and functions from values to positions

const nice = (range) => [1, 2, 2.5, 5, 10].map((f) => f * 10 ** Math.floor(Math.log10(range / 5))).find((step) => range / step <= 6.5) ?? range / 5;

function axes(holder, { x, y, xlabel, ylabel, height = 340, xticks = true, yticks = true, left = 52, bottom = 42, whole = false, unit = "" }) {
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
    svg.append(element("text", { x: left - 7, y: py(v) + 4, "text-anchor": "end" }, unit === "%" ? Math.round(100 * v) + " %" : v));
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

function marker(i, x, y, r = 4) {
  const kind = MARKERS[i % MARKERS.length], fill = { fill: colour(i), stroke: "var(--panel)", "stroke-width": 1 };
  if (kind === "circle") return element("circle", { cx: x, cy: y, r, ...fill });
  if (kind === "square") return element("rect", { x: x - r + 0.5, y: y - r + 0.5, width: 2 * r - 1, height: 2 * r - 1, ...fill });
  const d = { triangle: `M${x},${y - r - 0.5} L${x + r},${y + r - 0.5} L${x - r},${y + r - 0.5} Z`, diamond: `M${x},${y - r - 1} L${x + r + 1},${y} L${x},${y + r + 1} L${x - r - 1},${y} Z` }[kind];
  return d ? element("path", { d, ...fill }) : element("path", { d: `M${x - r},${y - r} L${x + r},${y + r} M${x - r},${y + r} L${x + r},${y - r}`, stroke: colour(i), "stroke-width": 2.2, fill: "none" });
}

// Settings: the best ones are visible at first, the others after a click on their names

const best = DATA.results.columns.indexOf("best");
const score = (i) => (DATA.results.values[i][best] === null ? -Number.MAX_VALUE : BETTER * DATA.results.values[i][best]);
const ranking = DATA.settings.map((_, i) => i).sort((a, b) => score(b) - score(a));
const visible = new Set(ranking.filter((i) => DATA.settings[i].runs.length).slice(0, SHOWN));
const drawn = () => DATA.settings.map((_, i) => i).filter((i) => visible.has(i));

function drawLegend() {
  const named = (DATA.settings.length > SHOWN ? ranking : DATA.settings.map((_, i) => i)).filter((i) => DATA.settings[i].runs.length);
  $("legend").replaceChildren(...named.map((i) => {
    const setting = DATA.settings[i], li = element("li"), svg = element("svg", { viewBox: "0 0 38 14" });
    svg.append(element("line", { x1: 0, x2: 38, y1: 7, y2: 7, stroke: colour(i), "stroke-width": 2.5, "stroke-dasharray": dash(i) }), marker(i, 19, 7));
    const button = element("button", { type: "button", "aria-pressed": visible.has(i) });
    button.append(svg, setting.label);
    button.onclick = () => { visible.delete(i) || visible.add(i); drawLegend(); drawCurves(); drawStrip(); };
    li.append(button);
    return li;
  }));
}

// The range of an axis for values of the metric: tenths for percentages, else the values with a margin
const known = (list) => list.filter((v) => v !== null);
function range(lows, highs) {
  if (METRIC.percent) return [Math.max(0, Math.floor(Math.min(1, ...lows) * 10 - 0.2) / 10), Math.min(1, Math.ceil(Math.max(0.1, ...highs) * 10 + 0.2) / 10)];
  const [low, high] = [Math.min(...lows), Math.max(...highs)];
  if (!Number.isFinite(low) || !Number.isFinite(high)) return [0, 1];
  const margin = 0.05 * (high - low) || 0.05 * Math.abs(high) || 1;
  return [low >= 0 ? Math.max(0, low - margin) : low - margin, high + margin];
}

function drawCurves() {
  const kind = DATA.kinds[$("kind").value], axis = $("axis").value;
  const curves = drawn().map((i) => [i, DATA.settings[i].curves[kind]]).filter(([, curve]) => curve);
  const last = Math.max(1e-9, ...curves.map(([, c]) => c[axis][c[axis].length - 1]));
  const lows = curves.map(([, c]) => Math.min(...known(c.low ?? c.mean))), highs = curves.map(([, c]) => Math.max(...known(c.high ?? c.mean)));
  const y = range(lows, highs);
  const plot = axes($("curve"), { x: [0, last], y, xlabel: axis === "rounds" ? "round" : "virtual seconds", ylabel: METRIC.name, unit: METRIC.percent ? "%" : "" });
  for (const [i, curve] of curves) {
    const path = (values, list = curve[axis]) => list.flatMap((x, k) => (values[k] === null ? [] : `${plot.px(x).toFixed(1)},${plot.py(values[k]).toFixed(1)}`)).join(" L");
    if (curve.low) plot.svg.append(element("path", { d: `M${path(curve.high)} L${path([...curve.low].reverse(), [...curve[axis]].reverse())} Z`, fill: colour(i), opacity: 0.16 }));
    plot.svg.append(element("path", { d: "M" + path(curve.mean), fill: "none", stroke: colour(i), "stroke-width": 2.2, "stroke-dasharray": dash(i) }));
    const every = Math.max(1, Math.ceil(curve.mean.length / 8));
    curve.mean.forEach((v, k) => { if (v === null) return; if (k % every === 0 || k === curve.mean.length - 1) plot.svg.append(marker(i, plot.px(curve[axis][k]), plot.py(v), 3.5)); });
  }
  const line = element("line", { y1: 14, y2: plot.height - 42, stroke: "var(--soft)", "stroke-width": 1, visibility: "hidden" });
  plot.svg.append(line);
  plot.svg.addEventListener("pointerleave", () => line.setAttribute("visibility", "hidden"));
  tips(plot.svg, (event) => {
    const x = Math.min(last, Math.max(0, plot.value(event)));
    const near = (c) => c[axis].reduce((found, v, k) => (Math.abs(v - x) < Math.abs(c[axis][found] - x) ? k : found), 0);
    line.setAttribute("x1", plot.px(x)); line.setAttribute("x2", plot.px(x)); line.setAttribute("visibility", "visible");
    const lines = curves.map(([i, c]) => [c.mean[near(c)], `${DATA.settings[i].label} ${shown(c.mean[near(c)])}` + (c.low ? ` (${shown(c.low[near(c)])} to ${shown(c.high[near(c)])})` : "")]);
    return [`${axis === "rounds" ? "round" : "second"} ${axis === "rounds" ? Math.round(x) : short(x)}`, ...lines.sort((a, b) => BETTER * (b[0] - a[0])).map(([, text]) => text)].join("\n");
  });
}

// Names at the left of rows, cut to the width of the margin
const margin = (holder) => Math.min(220, Math.max(96, (holder.clientWidth || 720) * 0.24));
const fitting = (name, left) => (name.length > left / 6.6 ? name.slice(0, Math.floor(left / 6.6) - 1) + "…" : name);

function drawStrip() {
  const rows = drawn(), left = margin($("strip")), scale = METRIC.percent ? 100 : 1;
  const lows = rows.map((i) => Math.min(...DATA.settings[i].clients)), highs = rows.map((i) => Math.max(...DATA.settings[i].clients));
  const x = METRIC.percent ? [range(lows, highs)[0], 1] : range(lows, highs), xlabel = `final ${METRIC.name}${METRIC.percent ? " in percent" : ""}`;
  const plot = axes($("strip"), { x: x.map((v) => scale * v), y: [rows.length, 0], xlabel, ylabel: "setting", yticks: false, left, height: 64 + 40 * Math.max(1, rows.length) });
  const dots = [];
  rows.forEach((i, row) => {
    const setting = DATA.settings[i];
    plot.svg.append(element("line", { class: "grid", x1: left, x2: plot.width - 14, y1: plot.py(row + 0.5), y2: plot.py(row + 0.5) }));
    plot.svg.append(element("text", { class: "name", x: left - 8, y: plot.py(row + 0.5) + 4, "text-anchor": "end" }, fitting(setting.label, left)));
    setting.clients.forEach((v, k) => {
      const spot = [plot.px(scale * v), plot.py(row + 0.5 + (((k * 7) % 11) / 11 - 0.45) * 0.6), `${setting.label}: ${shown(v)}`];
      dots.push(spot);
      plot.svg.append(element("circle", { cx: spot[0], cy: spot[1], r: 3.4, fill: colour(i), opacity: 0.6 }));
    });
    if (setting.mean !== null) plot.svg.append(element("line", { x1: plot.px(scale * setting.mean), x2: plot.px(scale * setting.mean), y1: plot.py(row + 0.1), y2: plot.py(row + 0.9), stroke: "currentColor", "stroke-width": 2.5 }));
  });
  tips(plot.svg, (event) => {
    const [x, y] = plot.place(event), row = rows[Math.floor((y - 14) / (plot.py(1) - plot.py(0)))];
    const near = dots.find(([a, b]) => Math.hypot(a - x, b - y) < 6);
    return near ? near[2] : row === undefined ? null : `${DATA.settings[row].label}: mean ${shown(DATA.settings[row].mean)} of ${DATA.settings[row].clients.length} clients`;
  });
}

function drawSplit() {
  const rows = ranking.filter((i) => DATA.settings[i].runs.length).slice(0, 12).sort((a, b) => a - b), left = margin($("split"));
  const total = (i) => DATA.settings[i].seconds.reduce((a, b) => a + (b ?? 0), 0), most = Math.max(1e-9, ...rows.map(total));
  const plot = axes($("split"), { x: [0, most], y: [rows.length, 0], xlabel: "seconds", ylabel: "setting", yticks: false, left, height: 60 + 26 * rows.length });
  rows.forEach((i, row) => {
    plot.svg.append(element("text", { class: "name", x: left - 8, y: plot.py(row + 0.5) + 4, "text-anchor": "end" }, fitting(DATA.settings[i].label, left)));
    let from = 0;
    DATA.settings[i].seconds.forEach((v, k) => {
      if (v) plot.svg.append(element("rect", { x: plot.px(from), y: plot.py(row + 0.15), width: Math.max(0.5, plot.px(from + v) - plot.px(from)), height: plot.py(0.7) - plot.py(0), fill: colour(k), stroke: "var(--panel)", "stroke-width": 0.8 }));
      from += v ?? 0;
    });
  });
  tips(plot.svg, (event) => {
    const row = rows[Math.floor((plot.place(event)[1] - 14) / (plot.py(1) - plot.py(0)))];
    return row === undefined ? null : [DATA.settings[row].label, ...DATA.parts.map((name, k) => `${name} ${short(DATA.settings[row].seconds[k] ?? 0)} s`)].join("\n");
  });
  swatches($("parts"), DATA.parts.map((name, k) => [name, colour(k)]));
}

function swatches(list, entries) {
  list.replaceChildren(...entries.map(([name, fill]) => {
    const li = element("li"), box = element("span", { class: "swatch" });
    box.style.background = fill;
    li.append(box, name);
    return li;
  }));
}

// One run

const chosen = () => DATA.runs[$("run").value];

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

function drawMatrix() {
  const names = Object.keys(chosen().matrices);
  $("matrixpart").hidden = names.length === 0;
  if (!names.length) return;
  const all = chosen().matrices[names[$("matrix").value] ?? names[0]], n = all.order.length;
  $("round").max = all.rounds.length - 1;
  const k = Math.min($("round").value, all.rounds.length - 1), m = all.values[k];
  $("roundvalue").textContent = all.rounds[k];
  let low = Infinity, high = -Infinity; // one color scale for all rounds
  for (const values of all.values) values.forEach((v, i) => { if (v !== null && i % (n + 1)) { low = Math.min(low, v); high = Math.max(high, v); } });
  $("low").textContent = Number.isFinite(low) ? short(low) : "";
  $("high").textContent = Number.isFinite(high) ? short(high) : "";
  heat($("heat"), n, n, (r, c) => (r === c || m[r * n + c] === null ? null : high > low ? (m[r * n + c] - low) / (high - low) : 0.5), (r, c) => `client ${all.order[r]} and ${all.order[c]}: ${m[r * n + c] === null ? "–" : m[r * n + c].toFixed(4)}`, 1);
}

function drawClusters() {
  const all = chosen().clusters;
  $("clusterpart").hidden = !all;
  if (!all) return;
  const shade = (number) => (number < 0 ? null : [1, 3, 5].map((k) => parseInt(COLOURS[number % 6].slice(k, k + 2), 16)).concat(255));
  const name = (number) => (number < 0 ? "not known" : `cluster ${number}`);
  const last = [...new Set(all.values.map((row) => row[row.length - 1]))].sort((a, b) => a - b);
  heat($("clusters"), all.order.length, all.rounds.length, (r, c) => shade(all.values[r][c]), (r, c) => `client ${all.order[r]}, round ${all.rounds[c]}: ${name(all.values[r][c])}`, 3);
  swatches($("clusternames"), last.length > 12 ? [] : last.map((number) => [name(number), number < 0 ? "#999999" : COLOURS[number % 6]]));
  $("clusternote").textContent = `A row per client, a column per round; clients that end in one cluster are neighbors. At the end: ${many(last.filter((number) => number >= 0).length, "cluster")}.`;
}

function drawTimeline() {
  const run = chosen(), clients = DATA.shared[run.clients], rows = Object.fromEntries(clients.map(([id], i) => [id, i])), n = clients.length;
  const end = run.left_out && run.jobs.length ? run.jobs[run.jobs.length - 1][2] : run.end;
  const plot = axes($("timeline"), { x: [0, end || 1], y: [n, 0], xlabel: "seconds", ylabel: "client", whole: true, height: Math.max(200, Math.min(700, 60 + 16 * n)) });
  const state = (job) => (job[3] === null ? "wasted" : job[3] > 0 ? "stale" : "fresh"), tall = plot.py(0.7) - plot.py(0);
  const wide = (job) => Math.max(0.5, plot.px(Math.min(job[2], end)) - plot.px(job[1]) - 0.6);
  for (const [name, fill] of Object.entries(STATES)) {
    const d = run.jobs.filter((job) => state(job) === name && job[1] < end).map((job) => `M${plot.px(job[1]).toFixed(1)},${plot.py(rows[job[0]] + 0.15).toFixed(1)}h${wide(job).toFixed(1)}v${tall.toFixed(1)}h-${wide(job).toFixed(1)}z`);
    if (d.length) plot.svg.append(element("path", { d: d.join(""), fill }));
  }
  const steps = run.steps.filter((t) => t <= end);
  if (steps.length <= plot.width / 6) for (const t of steps) plot.svg.append(element("line", { x1: plot.px(t), x2: plot.px(t), y1: plot.py(0), y2: plot.py(n), stroke: "currentColor", "stroke-width": 0.7 }));
  tips(plot.svg, (event) => {
    const x = plot.value(event), y = plot.place(event)[1], job = run.jobs.find((j) => x >= j[1] && x <= j[2] && y >= plot.py(rows[j[0]]) && y <= plot.py(rows[j[0]] + 1));
    return job ? `client ${job[0]}: ${short(job[1])} to ${short(job[2])} s, ${state(job)}${job[3] ? " by " + job[3] : ""}` : null;
  });
  swatches($("states"), Object.entries(STATES));
  const memory = run.memory.filter((v) => v !== null);
  $("timenote").textContent = `Lines: server steps. Clients were idle ${Math.round(100 * run.idle)} % of the time.` + (memory.length ? ` Memory of a client's process: ${Math.min(...memory)} to ${Math.max(...memory)} MB at most.` : "") + (run.left_out ? ` ${run.left_out} jobs are not on this page.` : "") + (run.unfit ? " Its matrices are not on this page: report on fewer runs to see them." : "");
}

function drawLabels() {
  const clients = DATA.shared[chosen().clients], classes = Math.max(...clients.map(([, , , labels]) => labels.length));
  const share = (r, c) => (clients[c][3][r] ?? 0) / Math.max(1, clients[c][1]);
  let most = 1e-9;
  for (let c = 0; c < clients.length; c++) for (let r = 0; r < classes; r++) most = Math.max(most, share(r, c));
  $("most").textContent = percent(most);
  heat($("labels"), classes, clients.length, (r, c) => share(r, c) / most, (r, c) => `client ${clients[c][0]}, class ${r}: ${clients[c][3][r] ?? 0} of ${clients[c][1]} samples (${clients[c][2]} tests)${clients[c][4] ? ", model " + clients[c][4] : ""}`, Math.max(2, Math.min(4, clients.length / classes)));
}

function drawConfig() {
  const run = chosen(), about = DATA.shared[run.about];
  const rows = { ...DATA.shared[run.config], seed: run.seed, status: run.status[0], written: run.status[1], ...about, packages: Object.entries(about.packages ?? {}).map(([k, v]) => `${k} ${v}`).join(", ") };
  $("config").replaceChildren(...Object.entries(rows).map(([key, text]) => {
    const tr = element("tr");
    tr.append(element("td", {}, key), element("td", {}, String(text)));
    return tr;
  }));
}

function drawRun() {
  options($("matrix"), Object.keys(chosen().matrices));
  $("round").max = 1e6;
  $("round").value = 1e6;
  [drawMatrix, drawClusters, drawTimeline, drawLabels, drawConfig].forEach((draw) => draw());
}

const many = (n, word) => `${n} ${word}${n === 1 ? "" : "s"}`;
$("intro").textContent = `${many(DATA.runs.length, "run")} in ${many(DATA.settings.length, "setting")}.` + (DATA.missing.length ? ` ${DATA.missing.length} missing.` : "");
$("measure").textContent = METRIC.name + (METRIC.percent ? " in percent" : "");
$("bmta").textContent = METRIC.percent ? " (BMTA)" : "";
$("curvestitle").textContent = `Curves of ${METRIC.name}`;
$("source").textContent = DATA.source ? `Published: ${DATA.source}.` : "";
$("missing").textContent = DATA.missing.length ? `Planned, but missing: ${DATA.missing.slice(0, 20).join(", ")}${DATA.missing.length > 20 ? " and more" : ""}.` : "";
options($("kind"), DATA.kinds);
$("kind").value = Math.max(0, DATA.kinds.indexOf("personal"));
options($("run"), DATA.runs.map((run) => run.name));
$("kind").onchange = $("axis").onchange = drawCurves;
$("run").onchange = drawRun;
$("matrix").onchange = $("round").oninput = drawMatrix;
let width = window.innerWidth;
window.onresize = () => { if (width !== (width = window.innerWidth)) [drawCurves, drawStrip, drawSplit, drawTimeline].forEach((draw) => draw()); };
sortable($("table"), DATA.results, DATA.settings.length <= 40 ? null : "best");
sortable($("costtable"), DATA.costs, null);
[drawPairs, drawSearches, drawHeatmap, drawLegend, drawCurves, drawStrip, drawSplit, drawRun].forEach((draw) => draw());
