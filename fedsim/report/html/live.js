// The start of the page: with its data in it, or asking the server of `fedsim watch` for what is new

const MARKS = { running: "▶", finished: "✓", failed: "✗", interrupted: "⏸", stopped: "⏸", waiting: "…" };
const EVERY = 1000; // milliseconds between two questions
let ROWS_OF_RUNS = [], CHOSEN = "";

function drawRunList() {
  const matches = filterOf($("runfilter").value), rows = ROWS_OF_RUNS.filter((row) => matches(-1, `${row.name} ${row.status}`));
  const columns = ["run", "status", "round", "latest", "time", "left", "failures"], of = (row) => [row.name, row.status, row.rounds ? row.round / row.rounds : 0, row.latest ?? null, row.seconds ?? null, row.left ?? null, row.failures ?? null];
  sortable($("runtable"), columns, rows.slice(0, ROWS), (row, c) => of(row)[c], (row) => {
    const first = element("td"), button = element("button", { type: "button", class: "link" }, row.name), round = element("td"), bar = element("progress", { max: 1, value: row.rounds ? row.round / row.rounds : 0 });
    button.onclick = () => { choose(row.name); $("runs").scrollIntoView(); };
    first.append(row.status === "waiting" ? row.name : button);
    round.append(bar, ` ${row.round ?? 0}/${row.rounds ?? "?"}`);
    return [first, element("td", { class: `status ${row.status}` }, `${MARKS[row.status] ?? ""} ${row.status}`), row.status === "waiting" ? element("td", {}, "–") : round, element("td", {}, shown(row.latest)), element("td", {}, row.seconds ? duration(row.seconds) : "–"), element("td", {}, row.left !== null && row.left !== undefined ? duration(row.left) : "–"), element("td", {}, String(row.failures ?? "–"))];
  }, null, (tr, row) => { if (row.name === CHOSEN) tr.setAttribute("aria-current", "true"); });
  const count = (status) => ROWS_OF_RUNS.filter((row) => row.status === status).length;
  const counts = Object.keys(MARKS).filter(count).map((status) => `${count(status)} ${status}`), left = Math.max(...ROWS_OF_RUNS.map((row) => row.left ?? 0));
  $("intro").textContent = `${many(ROWS_OF_RUNS.length, "run")}${counts.length ? ": " + counts.join(", ") : ""}.` + (left > 0 ? ` About ${duration(left)} to go${ROWS_OF_RUNS.filter((row) => row.left).length > 1 ? " for the slowest of the running ones" : ""}.` : "");
  $("runlist").hidden = ROWS_OF_RUNS.length < 2;
  document.body.classList.toggle("single", ROWS_OF_RUNS.length < 2);
  const names = ROWS_OF_RUNS.filter((row) => row.status !== "waiting").map((row) => row.name);
  options($("run"), names);
  if (CHOSEN) $("run").value = CHOSEN;
}

function drawNodes(found) {
  $("nodespart").hidden = !found;
  if (!found) return;
  const now = Date.now() / 1000, since = (v, text) => (v ? text(duration(Math.max(0, now - v))) : "–");
  $("nodestitle").textContent = `Federation ${found.federation}`;
  const rows = found.nodes.map((node) => [node.name, node.status, since(node["online-since"], (t) => t), since(node["last-seen"], (t) => `${t} ago`), node.processes]);
  const table = plainTable(["node", "status", "online for", "last answer", "processes"], rows);
  table.querySelectorAll("td:nth-child(2)").forEach((cell) => cell.classList.add("status", cell.textContent));
  $("nodes").replaceChildren(table);
  const server = found.server ? `Server: ${found.server.processes}, SuperLink ${found.server.superlink}.` : "";
  const current = (found.current ?? []).map((run) => `Run ${run.id}: ${run.status}.`).join(" ");
  $("nodesnote").textContent = [server, current, found.problem ?? "", found.asked ? `Asked ${duration(Math.max(0, now - found.asked))} ago.` : "Asking …"].filter(Boolean).join(" ");
}

function show(run) {
  RUN = run;
  $("runs").hidden = false;
  drawGrowing();
  drawFixed();
}

// With the data on the page

const made = {};

function choose(name) {
  CHOSEN = name;
  $("round").max = $("round").value = 1e6; // the last one
  $("when").max = $("when").value = 1e9;
  if (DATA.live) { RUN = null; POLL.run = null; ask(); }
  else {
    const data = DATA.runs.find((run) => run.name === name);
    if (!made[name]) {
      made[name] = new Run(data);
      made[name].progress = data;
      made[name].left_out = data.left_out;
      data.entries.forEach((entry) => made[name].add(entry));
    }
    show(made[name]);
  }
  drawRunList();
}

function startStatic() {
  ALL = DATA;
  drawOverview();
  ROWS_OF_RUNS = DATA.runs.map(({ name, status, round, rounds, latest, seconds, failures }) => ({ name, status, round, rounds, latest, seconds, failures }));
  drawRunList();
  $("intro").textContent = `${many(DATA.runs.length, "run")} in ${many(DATA.settings.length, "setting")}.` + (DATA.missing.length ? ` ${DATA.missing.length} missing.` : "");
  choose(DATA.runs[0].name);
}

// With a server

const POLL = { version: -1, run: null, generation: -1, after: 0, fixed: "", timer: 0, busy: false, drawn: 0, cost: 0, state: "", dirty: null };

async function ask() {
  clearTimeout(POLL.timer);
  if (POLL.busy) return;
  POLL.busy = true;
  let found = null;
  try {
    const query = new URLSearchParams({ version: POLL.version, run: POLL.run ?? CHOSEN, generation: POLL.run === null ? -1 : POLL.generation, after: POLL.after, fixed: POLL.fixed });
    const answer = await fetch(`changes?${query}`, { cache: "no-store" });
    if (!answer.ok) throw new Error(await answer.text());
    found = await answer.json();
  } catch (error) {
    $("offline").textContent = `fedsim watch does not answer (${error.message}). What is shown is from its last answer.`;
  }
  $("offline").hidden = found !== null;
  POLL.busy = false;
  const other = found?.run && CHOSEN && found.run.name !== CHOSEN && found.runs.some((row) => row.name === CHOSEN); // just chosen
  if (!document.hidden) POLL.timer = setTimeout(ask, found?.more || other ? 0 : EVERY);
  if (found) take(found);
}

function take(found) {
  if (found.overview) { ALL = { settings: [], ...found.overview }; POLL.version = found.version; }
  ROWS_OF_RUNS = [...found.runs, ...found.waiting.map((name) => ({ name, status: "waiting" }))];
  drawNodes(found.federation);
  if (!found.runs.some((row) => row.name === CHOSEN)) CHOSEN = ""; // its folder is gone
  const news = found.run;
  if (!news || (CHOSEN && news.name !== CHOSEN)) { redraw(found, false); return; }
  CHOSEN = news.name;
  if (found.overview?.metric) { METRIC = ALL.metric; BETTER = METRIC.direction === "max" ? 1 : -1; }
  const again = RUN === null || POLL.run !== news.name || POLL.generation !== news.generation || (news.from === 0 && POLL.after > 0);
  if (again) RUN = new Run(news.fixed);
  else if (news.fixed) RUN.set(news.fixed);
  if (news.fixed) POLL.fixed = news.fixed.version;
  news.entries.forEach((entry) => RUN.add(entry));
  RUN.working = news.working;
  RUN.progress = { ...news.progress, left: found.runs.find((row) => row.name === news.name)?.left };
  Object.assign(POLL, { run: news.name, generation: news.generation, after: news.after });
  const state = JSON.stringify([found.runs, found.waiting, found.version, news.progress, news.after]);
  if (state === POLL.state && !news.fixed && !news.working.length && !POLL.dirty) return; // nothing is new
  POLL.state = state;
  redraw(found, Boolean(news.fixed) || again);
}

// Drawing may take a fourth of the time
function redraw(found, fixed) {
  POLL.dirty = { overview: POLL.dirty?.overview || Boolean(found.overview), fixed: POLL.dirty?.fixed || fixed };
  if (found.more && performance.now() - POLL.drawn < 2000) return;
  const began = performance.now();
  if (began - POLL.drawn < 4 * POLL.cost) return;
  if (POLL.dirty.overview) drawOverview();
  drawRunList();
  $("runs").hidden = RUN === null;
  if (RUN) drawGrowing();
  if (RUN && POLL.dirty.fixed) drawFixed();
  POLL.dirty = null;
  POLL.drawn = performance.now();
  POLL.cost = POLL.drawn - began;
}

function startLive() {
  document.title = "fedsim watch";
  document.querySelector("h1").textContent = "fedsim watch";
  for (const id of ["results", "heatmaps", "curves", "clients", "costs", "runs", "runlist"]) $(id).hidden = true;
  $("intro").textContent = "Looking for runs …";
  document.addEventListener("visibilitychange", () => { if (!document.hidden) ask(); });
  ask();
}

$("kind").onchange = $("axis").onchange = drawCurves;
$("run").onchange = () => choose($("run").value);
$("matrix").onchange = $("round").oninput = drawMatrix;
$("runaxis").onchange = drawRunCurve;
$("heatkind").onchange = $("heatorder").onchange = drawClientHeat;
$("clientfilter").oninput = () => drawClientTable();
$("runfilter").oninput = drawRunList;
$("when").oninput = drawTimeline;
let width = window.innerWidth;
window.onresize = () => {
  if (width === (width = window.innerWidth)) return;
  if (ALL.settings.length) [drawCurves, drawStrip, drawSplit].forEach((draw) => draw());
  if (RUN) [drawRunCurve, drawTimeline, drawSmall, drawClientHeat].forEach((draw) => draw());
};
if (DATA.live) startLive();
else startStatic();
