"""Stored numbers: a record for each run (or measurement), small enough to be kept beside the pages that show them.

Accuracies are in percent, everything else as it is measured.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np

from fedsim.attacks import SUCCESS
from fedsim.config import RunConfig, Scalar
from fedsim.errors import ConfigError
from fedsim.files import read_npz, write_text
from fedsim.report.accumulate import Series
from fedsim.report.relations import groups_by_data, inside_and_outside
from fedsim.report.runs import RunResult
from fedsim.results.curves import KINDS
from fedsim.results.matrices import matrix_files
from fedsim.results.record import MAY_CHANGE, asked, read_summary

CELL, SEED, MEANS = "cell", "seed", "means"
POINTS = 40  # of a stored curve


@dataclass(frozen=True)
class Record:
    """`keys` tell what was run (the cell, the seed, and what the page varies), `numbers` what came out. A record without a
    seed holds means of `means` seeds and their `deviations`; a number that is None was not reached (rounds to a target)."""

    keys: dict[str, Scalar]
    numbers: dict[str, float | None]
    deviations: dict[str, float] = field(default_factory=dict)
    means: int = 0
    curve: dict[str, list[float]] = field(default_factory=dict)  # rounds, times, and the mean value at each
    clients: list[float] = field(default_factory=list)  # the personal models in the best round
    weights: str = ""  # hash of the final model
    settings: str = ""  # fingerprint of the configuration

    @property
    def seed(self) -> Scalar | None:
        return self.keys.get(SEED)


@dataclass(frozen=True)
class Store:
    """All records of a page, the version of fedsim that made them, and what is to be said of their origin."""

    records: tuple[Record, ...] = ()
    version: str = ""
    note: str = ""

    def write(self, path: Path) -> None:
        rows = ",\n".join(f"  {json.dumps(_filled(asdict(record)))}" for record in self.records)
        head = f'{{\n "version": {json.dumps(self.version)},\n "note": {json.dumps(self.note)},\n "records": [\n'
        write_text(path, f"{head}{rows}\n ]\n}}\n")

    def with_records(self, found: Sequence[Record], version: str) -> "Store":
        """The same with these records, which take the place of those with the same keys, and of means over seeds."""
        if not found:
            return self
        measured = {_identity(replace(record, keys=_without_seed(record))) for record in found}
        kept = [record for record in self.records if not (record.means and _identity(record) in measured)]
        known = {_identity(record): record for record in (*kept, *found)}
        return Store(tuple(known.values()), version, self.note if any(record.means for record in kept) else "")


def read_store(path: Path) -> Store:
    """The stored records of a page; none if there is no file. Raises ConfigError if it cannot be read."""
    if not path.exists():
        return Store()
    try:
        tree = json.loads(path.read_text())
        return Store(tuple(Record(**row) for row in tree["records"]), tree["version"], tree["note"])
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{path} holds no records of a page: {type(error).__name__} {error}") from error


def fingerprint(config: RunConfig) -> str:
    """A hash of everything that makes a run another one than the default: other versions may add keys."""
    usual = RunConfig().flat()
    own = {key: value for key, value in asked(config).items() if key not in MAY_CHANGE and usual.get(key) != value}
    return sha256(json.dumps(own, sort_keys=True).encode()).hexdigest()[:12]


def record_of(
    run: RunResult, config: RunConfig, keys: Mapping[str, Scalar], target: float | None, curve: str, clients: bool
) -> Record:
    """What a page needs of a finished run of this configuration. `target`: the value of its seconds to a target;
    `curve`: the kind of model whose curve is kept (empty: none); `clients`: whether to keep the number of every client."""
    numbers: dict[str, float | None] = {}
    for kind in KINDS:
        if len((series := run.series(kind)).rounds):
            scale = series.metric.scale
            numbers[f"{kind} best"] = _short(scale * series.best)
            numbers[f"{kind} final"] = _short(scale * float(series.mean[-1]))
            if target is not None:
                seconds = series.to(target, series.times)
                numbers[f"{kind} seconds"] = None if seconds is None else _short(seconds)
    numbers |= _rounds(run) | _success(run) | _judged(run) | _groups(run) | _layers(run)
    kept = run.series(curve) if curve else None
    personal = run.series("personal")
    own = personal.metric.scale * personal.values[personal.best_index] if clients else np.zeros(0)
    return Record(
        dict(keys),
        numbers,
        curve=_curve(kept) if kept is not None else {},
        clients=[_short(value) for value in own.tolist()],
        weights=str(read_summary(run.folder).get("weights_sha256", ""))[:16],
        settings=fingerprint(config),
    )


def mean_and_deviation(records: Sequence[Record], number: str) -> tuple[float | None, float | None, int]:
    """Of a number over seeds: the mean, the deviation (None for a single seed) and the number of seeds. The mean is None if
    no record has the number, or if it was not reached on some seed."""
    stored = [record for record in records if number in record.numbers]
    means = [record for record in stored if record.means]
    if means:
        return means[0].numbers[number], means[0].deviations.get(number), means[0].means
    values = [record.numbers[number] for record in stored]
    known = [value for value in values if value is not None]
    if not known or len(known) < len(values):
        return None, None, len(values)
    return mean(known), stdev(known) if len(known) > 1 else None, len(known)


def _rounds(run: RunResult) -> dict[str, float | None]:
    """Rounds to the target of the run; missing if it has none."""
    if not (target := float(run.config.get("target", 0.0))):
        return {}
    series = run.series("global")
    reached = series.to(target, series.rounds)
    return {"rounds": None if reached is None else _short(reached)}


def _success(run: RunResult) -> dict[str, float | None]:
    series = run.series("global", SUCCESS)
    return {SUCCESS: _short(100 * float(series.mean[-1]))} if len(series.rounds) else {}


def _judged(run: RunResult) -> dict[str, float | None]:
    """How well a value that the server measured on public data tells malicious results from honest ones: the share of pairs
    in which the malicious one is larger."""
    found: dict[str, float | None] = {}
    for name in ("public-entropy", "public-loss"):
        rows = [row for _, row in run.results if name in row]
        bad, good = ([row[name] for row in rows if bool(row.get("malicious")) is side] for side in (True, False))
        if bad and good:
            one, two = np.array(bad)[:, None], np.array(good)[None]
            found[f"{name} separates"] = _short(float(np.mean((one > two) + 0.5 * (one == two))))
    return found


def _groups(run: RunResult) -> dict[str, float | None]:
    """The mean weight inside groups of clients with like labels over that between groups, in the last round."""
    groups, paths = groups_by_data(run), matrix_files(run.folder)
    if groups is None or not paths:
        return {}
    last = read_npz(paths[max(paths)])
    if (weights := last.get("xi")) is None:
        return {}
    inside, outside = inside_and_outside(weights, groups)
    return {"weights inside / between groups": _short(inside / outside) if outside else None}


def _layers(run: RunResult) -> dict[str, float | None]:
    """The mean similarity of the gradients of different clients, by layer, over all recorded rounds."""
    found: dict[str, list[float]] = {}
    for path in matrix_files(run.folder).values():
        for name, matrix in read_npz(path).items():
            if name.startswith("layer-"):
                off = matrix[~np.eye(len(matrix), dtype=bool)]
                found.setdefault(name.removeprefix("layer-"), []).append(float(off.mean()))
    means = [mean(values) for values in found.values()]
    numbers: dict[str, float | None] = {f"layer {place}": _short(value) for place, value in enumerate(means, start=1)}
    return numbers | ({"first minus last layer": _short(means[0] - means[-1])} if means else {})


def _curve(series: Series) -> dict[str, list[float]]:
    """At most POINTS points, evenly spaced, the last one among them."""
    count = len(series.rounds)
    chosen = np.unique(np.linspace(0, count - 1, min(POINTS, count)).round().astype(int))
    values = series.metric.scale * series.mean
    columns = {"rounds": series.rounds, "times": series.times, "values": values}
    return {name: [_short(float(value)) for value in column[chosen]] for name, column in columns.items()}


def _short(value: float) -> float:
    return float(f"{value:.7g}")


def _filled(row: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in row.items() if value or key in ("keys", "numbers")}


def _without_seed(record: Record) -> dict[str, Scalar]:
    return {key: value for key, value in record.keys.items() if key != SEED}


def _identity(record: Record) -> str:
    return json.dumps(record.keys, sort_keys=True)
