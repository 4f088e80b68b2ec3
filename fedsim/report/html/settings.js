// What compares settings: tables, curves, clients at the end, costs

let ALL = { settings: [], kinds: [], results: { columns: [] } }; // the overview
const hidden = {}; // by label: what a click has chosen

const measured = () => ALL.settings.map((_, i) => i).filter((i) => ALL.settings[i].runs.length);
const mean = (list) => list.reduce((a, b) => a + b, 0) / list.length;

function drawTable(table, data, first) {
  const rows = ALL.settings.map((_, row) => row), value = (row, c) => (c === 0 ? ALL.settings[row].label : data.values[row][c - 1]);
  sortable(table, ["setting", ...data.columns], rows, value, (row) => [
    element("td", {}, ALL.settings[row].label),
    ...data.texts[row].map((text, c) => {
      const rank = data.ranks[row][c], kind = rank === 0 ? "first" : rank === 1 ? "second" : data.columns[c].endsWith("published") ? "published" : "";
      return element("td", kind ? { class: kind } : {}, text);
    }),
  ], first);
}

function drawPairs() {
  $("pairspart").hidden = ALL.pairs.length < 2;
  const found = Object.fromEntries(ALL.pairs.flatMap(([i, j, p]) => [[`${i} ${j}`, p], [`${j} ${i}`, p]]));
  const rows = ALL.settings.map((setting, i) => [`${i + 1} ${setting.label}`, ...ALL.settings.map((_, j) => (`${i} ${j}` in found ? String(+found[`${i} ${j}`].toPrecision(2)) : ""))]);
  $("pairs").replaceWith(Object.assign(plainTable(["setting", ...ALL.settings.map((_, j) => j + 1)], rows), { id: "pairs" }));
}

function drawSearches() {
  $("searchespart").hidden = ALL.searches.length === 0;
  $("searches").replaceChildren(...ALL.searches.flatMap((search) => {
    const keys = Object.keys(search.points[0]), score = (v) => (search.metric.endsWith("accuracy") ? percent(v) : String(+v.toPrecision(4)));
    const rows = search.points.map((point, i) => [String(i), ...keys.map((key) => String(point[key])), search.scores[i] === null ? "failed" : score(search.scores[i]) + (i === search.best ? " ★" : ""), (search.states[i] ?? "") + (search.states[i] === "stopped" ? ` in round ${search.rounds[i]}` : "")]);
    return [element("h3", {}, search.run), plainTable(["candidate", ...keys, search.metric, ""], rows)];
  }));
}

// A table per panel with a colored cell for each pair of values
function drawHeatmap() {
  $("heatmaps").hidden = ALL.heatmap === null;
  if (ALL.heatmap === null) return;
  const { keys, columns, panels } = ALL.heatmap;
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

// The best settings are visible at first, the others after a click on their names

function ranking() {
  const best = ALL.results.columns.indexOf("best");
  const score = (i) => (ALL.results.values[i][best] === null ? -Number.MAX_VALUE : BETTER * ALL.results.values[i][best]);
  return ALL.settings.map((_, i) => i).sort((a, b) => score(b) - score(a)).filter((i) => ALL.settings[i].runs.length);
}

function visible() {
  const best = new Set(ranking().slice(0, SHOWN));
  return measured().filter((i) => !(hidden[ALL.settings[i].label] ?? !best.has(i)));
}

function drawLegend() {
  const now = new Set(visible());
  $("legend").replaceChildren(...(ALL.settings.length > SHOWN ? ranking() : measured()).map((i) => {
    const label = ALL.settings[i].label, li = element("li"), svg = element("svg", { viewBox: "0 0 38 14" });
    svg.append(element("line", { x1: 0, x2: 38, y1: 7, y2: 7, stroke: colour(i), "stroke-width": 2.5, "stroke-dasharray": dash(i) }), marker(i, 19, 7));
    const button = element("button", { type: "button", "aria-pressed": now.has(i) });
    button.append(svg, label);
    button.onclick = () => { hidden[label] = now.has(i); drawLegend(); drawCurves(); drawStrip(); };
    li.append(button);
    return li;
  }));
}

function drawCurves() {
  const kind = $("kind").value, axis = $("axis").value;
  const curves = visible().map((i) => [i, ALL.settings[i].curves[kind]]).filter(([, curve]) => curve);
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
  crosshair(plot, last, (x) => {
    const near = (c) => c[axis].reduce((found, v, k) => (Math.abs(v - x) < Math.abs(c[axis][found] - x) ? k : found), 0);
    const lines = curves.map(([i, c]) => [c.mean[near(c)], `${ALL.settings[i].label} ${shown(c.mean[near(c)])}` + (c.low ? ` (${shown(c.low[near(c)])} to ${shown(c.high[near(c)])})` : "")]);
    return [`${axis === "rounds" ? "round" : "second"} ${axis === "rounds" ? Math.round(x) : short(x)}`, ...lines.sort((a, b) => BETTER * (b[0] - a[0])).map(([, text]) => text)].join("\n");
  });
}

function drawStrip() {
  const rows = visible(), left = margin($("strip")), scale = METRIC.percent ? 100 : 1;
  const lows = rows.map((i) => Math.min(...known(ALL.settings[i].clients))), highs = rows.map((i) => Math.max(...known(ALL.settings[i].clients)));
  const x = METRIC.percent ? [range(lows, highs)[0], 1] : range(lows, highs), xlabel = `latest ${METRIC.name}${METRIC.percent ? " in percent" : ""}`;
  const plot = axes($("strip"), { x: x.map((v) => scale * v), y: [rows.length, 0], xlabel, ylabel: "setting", yticks: false, left, height: 64 + 40 * Math.max(1, rows.length) });
  const dots = [];
  rows.forEach((i, row) => {
    const setting = ALL.settings[i];
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
    return near ? near[2] : row === undefined ? null : `${ALL.settings[row].label}: mean ${shown(ALL.settings[row].mean)} of ${ALL.settings[row].clients.length} clients`;
  });
}

function drawSplit() {
  const rows = ranking().slice(0, 12).sort((a, b) => a - b), left = margin($("split"));
  const total = (i) => ALL.settings[i].seconds.reduce((a, b) => a + (b ?? 0), 0), most = Math.max(1e-9, ...rows.map(total));
  const plot = axes($("split"), { x: [0, most], y: [rows.length, 0], xlabel: "seconds", ylabel: "setting", yticks: false, left, height: 60 + 26 * rows.length });
  rows.forEach((i, row) => {
    plot.svg.append(element("text", { class: "name", x: left - 8, y: plot.py(row + 0.5) + 4, "text-anchor": "end" }, fitting(ALL.settings[i].label, left)));
    let from = 0;
    ALL.settings[i].seconds.forEach((v, k) => {
      if (v) plot.svg.append(element("rect", { x: plot.px(from), y: plot.py(row + 0.15), width: Math.max(0.5, plot.px(from + v) - plot.px(from)), height: plot.py(0.7) - plot.py(0), fill: colour(k), stroke: "var(--panel)", "stroke-width": 0.8 }));
      from += v ?? 0;
    });
  });
  tips(plot.svg, (event) => {
    const row = rows[Math.floor((plot.place(event)[1] - 14) / (plot.py(1) - plot.py(0)))];
    return row === undefined ? null : [ALL.settings[row].label, ...ALL.parts.map((name, k) => `${name} ${short(ALL.settings[row].seconds[k] ?? 0)} s`)].join("\n");
  });
  swatches($("parts"), ALL.parts.map((name, k) => [name, colour(k)]));
}

// Everything that compares settings. Without measured rounds there is nothing yet.
function drawOverview() {
  const empty = !ALL.settings || !ALL.settings.length;
  for (const id of ["results", "curves", "clients", "costs"]) $(id).hidden = empty;
  $("heatmaps").hidden = empty;
  $("problem").textContent = ALL.problem ?? "";
  if (empty) return;
  METRIC = ALL.metric;
  BETTER = METRIC.direction === "max" ? 1 : -1;
  $("measure").textContent = METRIC.name + (METRIC.percent ? " in percent" : "");
  $("bmta").textContent = METRIC.percent ? " (BMTA)" : "";
  $("curvestitle").textContent = `Curves of ${METRIC.name}`;
  $("source").textContent = ALL.source ? `Published: ${ALL.source}.` : "";
  $("missing").textContent = ALL.missing.length ? `Planned, but missing: ${ALL.missing.slice(0, 20).join(", ")}${ALL.missing.length > 20 ? " and more" : ""}.` : "";
  if (!$("kind").options.length && ALL.kinds.includes("personal")) options($("kind"), ["personal"]);
  options($("kind"), ALL.kinds);
  drawTable($("table"), ALL.results, ALL.settings.length <= 40 ? null : "best");
  drawTable($("costtable"), ALL.costs, null);
  [drawPairs, drawSearches, drawHeatmap, drawLegend, drawCurves, drawStrip, drawSplit].forEach((draw) => draw());
}
