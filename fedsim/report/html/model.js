// A run as it follows from its entries (fedsim/report/entries.py), one after the other

class Run {
  constructor(fixed) {
    this.set(fixed);
    this.progress = {};
    this.working = []; // rows of clients that have a job, the round it started from, and since when
    this.steps = { r: [], t: [], s: [], u: [], d: [], m: [], n: [], w: [], mean: [], max: [], f: [] };
    this.curves = Object.fromEntries(["p", "g", "l"].map((kind) => [kind, { r: [], t: [], s: [], mean: [], worst: [], rows: [], tested: {} }]));
    this.jobs = [];
    this.failures = [];
    this.stats = this.clients.map(() => ({ jobs: 0, used: 0, wasted: 0, failed: 0, busy: 0, stale: 0 }));
    this.moment = 0;
    this.sent = [0, 0]; // bytes up and down
  }

  // What hardly changes: the configuration, the clients, matrices and clusters
  set(fixed) {
    this.fixed = fixed;
    const shared = fixed.shared ?? DATA.shared;
    this.config = shared[fixed.config];
    this.about = shared[fixed.about];
    this.clients = shared[fixed.clients].map(([id, train, test, labels, model]) => ({ id, train, test, labels, model }));
    this.row = Object.fromEntries(this.clients.map(({ id }, i) => [id, i]));
  }

  add(entry) {
    const s = this.steps;
    if ("u" in entry) this.sent = [entry.u, entry.d];
    if ("n" in entry) {
      this.moment = entry.t;
      for (const key of ["r", "t", "s", "u", "d", "n", "w"]) s[key].push(entry[key] ?? null);
      s.m.push(entry.m ?? null);
      s.mean.push(entry.a[0]);
      s.max.push(entry.a[1]);
      s.f.push((entry.f ?? []).length);
    }
    for (const kind of ["g", "p", "l"]) if (entry[kind]) this.measure(kind, entry, ...entry[kind]);
    for (const [id, sent, arrived, stale] of entry.j ?? []) {
      const row = this.row[id], end = arrived ?? this.moment, own = this.stats[row];
      if (row === undefined) continue;
      this.jobs.push([row, sent, end, stale]);
      own.jobs += 1;
      own.busy += end - sent;
      own[stale === null ? "wasted" : "used"] += 1;
      own.stale += stale ?? 0;
    }
    for (const [id, reason] of entry.f ?? []) {
      this.failures.push([entry.r, id, reason]);
      if (this.row[id] !== undefined) this.stats[this.row[id]].failed += 1;
    }
  }

  // The values of some clients after a round (ids 0: of all); the others keep theirs
  measure(kind, entry, ids, values) {
    const curve = this.curves[kind], before = curve.rows[curve.rows.length - 1];
    const row = before ? before.slice() : new Float32Array(this.clients.length).fill(NaN);
    values.forEach((v, i) => {
      const place = ids === 0 ? i : this.row[ids[i]];
      if (place === undefined) return;
      row[place] = v === null ? NaN : v;
      curve.tested[place] = entry.r;
    });
    let sum = 0, weights = 0, worst = NaN;
    row.forEach((v, i) => {
      if (Number.isNaN(v)) return;
      const weight = kind === "g" ? this.clients[i].test : 1;
      sum += weight * v;
      weights += weight;
      if (Number.isNaN(worst) || BETTER * (v - worst) < 0) worst = v;
    });
    if (!weights) return;
    for (const [key, v] of [["r", entry.r], ["t", entry.t ?? this.moment], ["s", entry.s], ["mean", sum / weights], ["worst", worst], ["rows", row]]) curve[key].push(v);
  }

  // The kinds of models that were measured
  get kinds() {
    return Object.entries({ p: "personal", g: "global", l: "local" }).filter(([key]) => this.curves[key].r.length);
  }

  get end() {
    return this.moment || 1;
  }
}
