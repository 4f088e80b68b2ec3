// One run: how far it is, its curves, its clients, who works on what

let RUN = null;
const KINDS = { p: ["personal", 0], g: ["global", 1], l: ["local", 2] };
const WINDOW = 3000; // jobs that the timeline shows at a time
const ROWS = 200; // of a table
const live = () => ["running"].includes(RUN.progress.status);
const percentOf = (v) => `${Math.round(100 * v)} %`;

function tile(name, text, note = "") {
  const node = element("div", { class: "tile" });
  node.append(element("span", {}, name), element("b", {}, text), element("small", {}, note));
  return node;
}

function drawTiles() {
  const p = RUN.progress, s = RUN.steps, last = s.r.length - 1, rate = p.seconds ? p.round / p.seconds : 0;
  const found = [tile("status", p.status ?? "–", p.status === "stopped" ? `fedsim resume ${RUN.fixed.name}` : p.written ? `since ${p.written.replace("T", " ")}` : "")];
  found.push(tile("round", `${p.round} of ${p.rounds}`, rate ? `${+rate.toPrecision(3)} per second` : ""));
  if (p.left !== null && p.left !== undefined) found.push(tile("time left", duration(p.left), `${duration(p.seconds)} so far`));
  else found.push(tile("time", duration(p.seconds ?? 0)));
  found.push(tile(METRIC.name, shown(p.latest), "latest mean over clients"));
  if (live()) found.push(tile("at work", `${RUN.working.length} of ${RUN.clients.length}`, "clients with a job"));
  const [up, down] = RUN.sent, memory = RUN.progress.memory?.filter((v) => v !== null) ?? [];
  found.push(tile("sent", bytes(up + down), `${bytes(up)} up, ${bytes(down)} down`));
  if (last >= 0 && s.m[last] !== null) found.push(tile("server memory", `${s.m[last]} MB`, memory.length ? `a client: ${Math.max(...memory)} MB` : ""));
  found.push(tile("failures", String(p.failures ?? RUN.failures.length), `${s.w.reduce((a, b) => a + b, 0)} results wasted`));
  $("tiles").replaceChildren(...found);
  $("bar").value = p.rounds ? p.round / p.rounds : 0;
}

// Lines over rounds or seconds; `lines`: x, y, color, dash, width, name
function lineChart(holder, lines, { xlabel, ylabel, unit = "", y = null, height = 260, text = String }) {
  const all = lines.flatMap((line) => known(line.y)), last = Math.max(1e-9, ...lines.map((line) => line.x[line.x.length - 1] ?? 0));
  const high = Math.max(...all), low = Math.min(...all), spread = y ?? [Math.min(0, low), high > Math.min(0, low) ? high * 1.05 : 1];
  const plot = axes(holder, { x: [0, last], y: Number.isFinite(spread[1]) ? spread : [0, 1], xlabel, ylabel, unit, height, left: 58, text });
  const drawn = lines.map((line) => ({ ...line, at: places(line.x.length, Math.max(50, Math.round(plot.width / 2))) }));
  for (const line of drawn) {
    const points = line.at.filter((k) => line.y[k] !== null && !Number.isNaN(line.y[k]));
    if (points.length === 1) plot.svg.append(element("circle", { cx: plot.px(line.x[points[0]]), cy: plot.py(line.y[points[0]]), r: 3, fill: line.stroke }));
    if (points.length > 1) plot.svg.append(element("path", { d: "M" + points.map((k) => `${plot.px(line.x[k]).toFixed(1)},${plot.py(line.y[k]).toFixed(1)}`).join(" L"), fill: "none", stroke: line.stroke, "stroke-width": line.wide ?? 2, "stroke-dasharray": line.dash ?? "" }));
  }
  crosshair(plot, last, (x) => {
    const near = (list) => { let a = 0, b = list.length - 1; while (b - a > 1) { const m = (a + b) >> 1; if (list[m] < x) a = m; else b = m; } return Math.abs(list[a] - x) <= Math.abs(list[b] - x) ? a : b; };
    return [`${xlabel} ${xlabel === "round" ? Math.round(x) : short(x)}`, ...drawn.filter((line) => line.x.length).map((line) => `${line.name} ${text(line.y[near(line.x)])}`)].join("\n");
  });
}

function drawRunCurve() {
  const axis = $("runaxis").value, label = { r: "round", t: "virtual seconds", s: "seconds" }[axis], lines = [], legend = [];
  for (const [key, name] of RUN.kinds) {
    const curve = RUN.curves[key], i = KINDS[key][1];
    lines.push({ x: curve[axis], y: curve.mean, stroke: colour(i), dash: dash(i), wide: 2.4, name }, { x: curve[axis], y: curve.worst, stroke: colour(i), dash: dash(i), wide: 1, name: `${name}, worst client` });
    legend.push([name, colour(i)]);
  }
  const lows = lines.map((line) => Math.min(...known(line.y))), highs = lines.map((line) => Math.max(...known(line.y)));
  lineChart($("runcurve"), lines, { xlabel: label, ylabel: METRIC.name, unit: METRIC.percent ? "%" : "", y: range(lows, highs), height: 320, text: shown });
  swatches($("runlegend"), legend);
}

// Rows of small charts over the rounds
function drawSmall() {
  const s = RUN.steps, rest = (list) => list.map((v, i) => v - (i ? list[i - 1] : 0)), over = (list) => list.map((v, i) => v / Math.max(1, s.r[i] - (i ? s.r[i - 1] : 0)));
  const x = s.r, chart = (id, lines, options) => lineChart($(id), lines.map((line) => ({ x, wide: 1.6, ...line })), { xlabel: "round", height: 170, ...options });
  chart("staleness", [{ y: s.mean, stroke: colour(0), name: "mean" }, { y: s.max, stroke: colour(1), name: "largest", wide: 1 }], { ylabel: "staleness in rounds", text: short });
  chart("traffic", [{ y: over(rest(s.u)), stroke: colour(0), name: "up" }, { y: over(rest(s.d)), stroke: colour(1), name: "down", wide: 1 }], { ylabel: "bytes per round", text: bytes });
  chart("pace", [{ y: over(rest(s.s)), stroke: colour(2), name: "seconds" }], { ylabel: "seconds per round", text: (v) => duration(v ?? 0) });
  chart("memory", [{ y: s.m, stroke: colour(3), name: "server" }], { ylabel: "memory of the server", text: (v) => `${v} MB` });
  chart("lost", [{ y: s.w, stroke: colour(4), name: "wasted" }, { y: s.f, stroke: colour(1), name: "failed" }], { ylabel: "results lost", text: String });
  chart("used", [{ y: s.n, stroke: colour(0), name: "used" }], { ylabel: "results per round", text: String });
}

// Clients by rounds, from dark to bright; as many rounds as fit
function drawClientHeat() {
  const kinds = RUN.kinds;
  $("heatpart").hidden = !kinds.length;
  if (!kinds.length) return;
  options($("heatkind"), kinds.map(([key]) => key), kinds.map(([, name]) => name));
  const curve = RUN.curves[$("heatkind").value], last = curve.rows[curve.rows.length - 1], order = RUN.clients.map((_, i) => i);
  if ($("heatorder").value === "value") order.sort((a, b) => BETTER * ((Number.isNaN(last[b]) ? -Infinity : last[b]) - (Number.isNaN(last[a]) ? -Infinity : last[a])));
  const columns = places(curve.rows.length, Math.max(60, Math.min(500, $("clientheat").clientWidth || 500)));
  let low = Infinity, high = -Infinity;
  for (const k of columns) for (const v of curve.rows[k]) if (v === v) { low = Math.min(low, v); high = Math.max(high, v); }
  const scale = high > low ? high - low : 1;
  heat($("clientheat"), order.length, columns.length, (r, c) => { const v = curve.rows[columns[c]][order[r]]; return v === v ? (v - low) / scale : null; }, (r, c) => `client ${RUN.clients[order[r]].id}, round ${curve.r[columns[c]]}: ${shown(curve.rows[columns[c]][order[r]])}`, 3);
  $("heatlow").textContent = shown(low);
  $("heathigh").textContent = shown(high);
}

// "3, 7-9" are clients; other words are looked for in the rows
function filterOf(text) {
  const words = text.toLowerCase().split(",").map((word) => word.trim()).filter(Boolean);
  const test = (word) => {
    const span = word.match(/^(\d+)(?:\s*-\s*(\d+))?$/);
    return span ? (id) => id >= +span[1] && id <= +(span[2] ?? span[1]) : (id, row) => row.includes(word);
  };
  const tests = words.map(test);
  return (id, row) => !tests.length || tests.some((one) => one(id, row.toLowerCase()));
}

function drawClientTable() {
  const now = Date.now() / 1000, working = Object.fromEntries(RUN.working.map(([row, base, since]) => [row, `round ${base + 1}, ${duration(Math.max(0, now - since))}`]));
  const key = RUN.kinds.length ? RUN.kinds[0][0] : "p", curve = RUN.curves[key], last = curve.rows[curve.rows.length - 1], memory = RUN.progress.memory ?? [];
  const found = RUN.clients.map((client, i) => {
    const own = RUN.stats[i], value = last && last[i] === last[i] ? last[i] : null;
    const idle = RUN.jobs.length ? Math.max(0, 1 - own.busy / RUN.end) : null, stale = own.used ? own.stale / own.used : null;
    const values = [client.id, ...(live() ? [working[i] ?? ""] : []), value, curve.tested[i] ?? null, client.train, own.jobs, own.wasted, own.failed, stale, idle, memory[i] ?? null];
    const texts = [String(client.id), ...(live() ? [working[i] ?? "–"] : []), shown(value), String(curve.tested[i] ?? "–"), String(client.train), String(own.jobs), String(own.wasted), String(own.failed), stale === null ? "–" : String(short(stale)), idle === null ? "–" : percentOf(idle), memory[i] ? `${memory[i]} MB` : "–"];
    return { i, values, texts };
  });
  const matches = filterOf($("clientfilter").value), state = (row) => (working[row.i] ? " working" : "") + (RUN.stats[row.i].failed ? " failed" : "") + ` model ${RUN.clients[row.i].model ?? ""}`;
  const kept = found.filter((row) => matches(RUN.clients[row.i].id, row.texts.slice(1).join(" ") + state(row)));
  const columns = ["client", ...(live() ? ["works on"] : []), METRIC.name, "tested in", "samples", "jobs", "wasted", "failures", "staleness", "idle", "memory"];
  const { column, up } = sorting.clienttable ?? { column: null };
  if (kept.length > ROWS && column !== null) { // sorted before it is cut
    const c = columns.indexOf(column);
    kept.sort((a, b) => ((a.values[c] === null) - (b.values[c] === null) || (a.values[c] < b.values[c] ? -1 : a.values[c] > b.values[c] ? 1 : 0)) * (up ? 1 : -1));
  }
  sortable($("clienttable"), columns, kept.slice(0, ROWS), (row, c) => row.values[c], (row) => row.texts.map((text) => element("td", {}, text)));
  $("clientcount").textContent = `${kept.length} of ${many(RUN.clients.length, "client")}` + (kept.length > ROWS ? `, the first ${ROWS} are listed` : "");
}

function drawTimeline() {
  const n = RUN.clients.length, jobs = RUN.jobs, most = Math.max(0, jobs.length - WINDOW), slider = $("when");
  const following = slider.max === slider.value || most === 0;
  slider.max = most;
  if (following) slider.value = most;
  $("whenpart").hidden = most === 0;
  const part = jobs.slice(+slider.value, +slider.value + WINDOW);
  let from = Infinity, end = 0;
  for (const job of part) { from = Math.min(from, job[1]); end = Math.max(end, job[2]); }
  if (!part.length) [from, end] = [0, 1];
  if (most === 0) from = 0;
  const plot = axes($("timeline"), { x: [from, end], y: [n, 0], xlabel: "seconds", ylabel: "client", whole: true, height: Math.max(200, Math.min(700, 60 + 16 * n)) });
  const state = (job) => (job[3] === null ? "wasted" : job[3] > 0 ? "stale" : "fresh"), tall = Math.max(1, plot.py(0.7) - plot.py(0));
  const wide = (job) => Math.max(0.5, plot.px(Math.min(job[2], end)) - plot.px(job[1]) - 0.6);
  for (const [name, fill] of Object.entries(STATES)) {
    const d = part.filter((job) => state(job) === name).map((job) => `M${plot.px(job[1]).toFixed(1)},${plot.py(job[0] + 0.15).toFixed(1)}h${wide(job).toFixed(1)}v${tall.toFixed(1)}h-${wide(job).toFixed(1)}z`);
    if (d.length) plot.svg.append(element("path", { d: d.join(""), fill }));
  }
  const steps = RUN.steps.t.filter((t) => t >= from && t <= end);
  if (steps.length <= plot.width / 6) for (const t of steps) plot.svg.append(element("line", { x1: plot.px(t), x2: plot.px(t), y1: plot.py(0), y2: plot.py(n), stroke: "currentColor", "stroke-width": 0.7 }));
  for (const [row] of RUN.working) plot.svg.append(element("circle", { cx: plot.width - 7, cy: plot.py(row + 0.5), r: Math.min(5, Math.max(2, tall / 2)), fill: colour(2), class: "working" }));
  tips(plot.svg, (event) => {
    const x = plot.value(event), y = plot.place(event)[1], job = part.find((j) => x >= j[1] && x <= j[2] && y >= plot.py(j[0]) && y <= plot.py(j[0] + 1));
    return job ? `client ${RUN.clients[job[0]].id}: ${short(job[1])} to ${short(job[2])} s, ${state(job)}${job[3] ? " by " + job[3] : ""}` : null;
  });
  swatches($("states"), [...Object.entries(STATES), ...(RUN.working.length ? [["at work now", colour(2)]] : [])]);
  const now = Date.now() / 1000, working = RUN.working.map(([row, base, since]) => `${RUN.clients[row].id} (round ${base + 1}, ${duration(Math.max(0, now - since))})`);
  $("worktext").textContent = !live() ? "" : working.length ? `At work now: ${working.slice(0, 12).join(", ")}${working.length > 12 ? ` and ${working.length - 12} more` : ""}.` : "At work now: nobody.";
  const idle = RUN.jobs.length ? mean(RUN.stats.map((own) => Math.max(0, 1 - own.busy / RUN.end))) : null, memory = (RUN.progress.memory ?? []).filter((v) => v !== null);
  $("timenote").textContent = "Lines: server steps." + (idle === null || RUN.left_out ? "" : ` Clients were idle ${percentOf(idle)} of the time.`) + (memory.length ? ` Memory of a client's process: ${Math.min(...memory)} to ${Math.max(...memory)} MB at most.` : "") + (RUN.left_out ? ` ${RUN.left_out} jobs are not on this page.` : "") + (RUN.fixed.unfit ? " Its matrices are not on this page: report on fewer runs to see them." : "");
}

function drawFailures() {
  $("failurepart").hidden = !RUN.failures.length;
  const rows = RUN.failures.slice(-50).reverse().map(([round, id, reason]) => [String(round), String(id), reason]);
  $("failurelist").replaceChildren(plainTable(["round", "client", "reason"], rows));
}

function drawMatrix() {
  const matrices = RUN.fixed.matrices ?? {}, names = Object.keys(matrices);
  $("matrixpart").hidden = names.length === 0;
  if (!names.length) return;
  options($("matrix"), names);
  const all = matrices[$("matrix").value] ?? matrices[names[0]], n = all.order.length, slider = $("round");
  const following = slider.max === slider.value;
  slider.max = all.rounds.length - 1;
  if (following) slider.value = slider.max;
  const k = Math.min(slider.value, all.rounds.length - 1), m = all.values[k];
  $("roundvalue").textContent = all.rounds[k];
  let low = Infinity, high = -Infinity; // one color scale for all rounds
  for (const values of all.values) values.forEach((v, i) => { if (v !== null && i % (n + 1)) { low = Math.min(low, v); high = Math.max(high, v); } });
  $("low").textContent = Number.isFinite(low) ? short(low) : "";
  $("high").textContent = Number.isFinite(high) ? short(high) : "";
  heat($("heat"), n, n, (r, c) => (r === c || m[r * n + c] === null ? null : high > low ? (m[r * n + c] - low) / (high - low) : 0.5), (r, c) => `client ${all.order[r]} and ${all.order[c]}: ${m[r * n + c] === null ? "–" : m[r * n + c].toFixed(4)}`, 1);
}

function drawClusters() {
  const all = RUN.fixed.clusters;
  $("clusterpart").hidden = !all;
  if (!all) return;
  const shade = (number) => (number < 0 ? null : [1, 3, 5].map((k) => parseInt(COLOURS[number % 6].slice(k, k + 2), 16)).concat(255));
  const name = (number) => (number < 0 ? "not known" : `cluster ${number}`);
  const last = [...new Set(all.values.map((row) => row[row.length - 1]))].sort((a, b) => a - b);
  heat($("clusters"), all.order.length, all.rounds.length, (r, c) => shade(all.values[r][c]), (r, c) => `client ${all.order[r]}, round ${all.rounds[c]}: ${name(all.values[r][c])}`, 3);
  swatches($("clusternames"), last.length > 12 ? [] : last.map((number) => [name(number), number < 0 ? "#999999" : COLOURS[number % 6]]));
  $("clusternote").textContent = `A row per client, a column per round; clients that end in one cluster are neighbors. At the end: ${many(last.filter((number) => number >= 0).length, "cluster")}.`;
}

function drawLabels() {
  const clients = RUN.clients, classes = Math.max(...clients.map(({ labels }) => labels.length));
  const share = (r, c) => (clients[c].labels[r] ?? 0) / Math.max(1, clients[c].train);
  let most = 1e-9;
  for (let c = 0; c < clients.length; c++) for (let r = 0; r < classes; r++) most = Math.max(most, share(r, c));
  $("most").textContent = percent(most);
  heat($("labels"), classes, clients.length, (r, c) => share(r, c) / most, (r, c) => `client ${clients[c].id}, class ${r}: ${clients[c].labels[r] ?? 0} of ${clients[c].train} samples (${clients[c].test} tests)${clients[c].model ? ", model " + clients[c].model : ""}`, Math.max(2, Math.min(4, clients.length / classes)));
}

function drawConfig() {
  const { about } = RUN, p = RUN.progress;
  const rows = { ...RUN.config, seed: RUN.fixed.seed, status: p.status, written: p.written, ...about, packages: Object.entries(about.packages ?? {}).map(([k, v]) => `${k} ${v}`).join(", ") };
  $("config").replaceChildren(...Object.entries(rows).map(([key, text]) => {
    const tr = element("tr");
    tr.append(element("td", {}, key), element("td", {}, String(text)));
    return tr;
  }));
}

// What grows with a run, and what stays
const drawGrowing = () => [drawTiles, drawRunCurve, drawClientHeat, drawClientTable, drawTimeline, drawSmall, drawFailures].forEach((draw) => draw());
const drawFixed = () => [drawMatrix, drawClusters, drawLabels, drawConfig].forEach((draw) => draw());
