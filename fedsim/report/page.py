"""A report as one self-contained HTML page, which needs neither network nor server.

Curves and tables include every run. Timelines and matrices are large: those of the first run of each setting are
included first, and the page names what was left out for its size.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from math import floor, isfinite, log10
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsim.files import read_npz, write_text
from fedsim.report.cluster_figure import clusters_by_round, order_by_clusters
from fedsim.report.collection import RunCollection
from fedsim.report.heat_map import heat_map, heat_map_data
from fedsim.report.matrix_figure import evenly_spaced, order_by_labels
from fedsim.report.result_tables import ResultTable, cost_table, published_sources, result_table
from fedsim.report.runs import RunResult
from fedsim.report.settings import MeanStd, Setting
from fedsim.report.statistics import pairwise_tests
from fedsim.results.curves import KINDS
from fedsim.results.matrices import matrix_files
from fedsim.results.record import COSTS

JOBS = 4000  # jobs in the timeline of a run
POINTS = 200  # points of a curve
DOTS = 600  # clients of a setting that are drawn
ROUNDS, ENTRIES = 60, 200_000  # matrices of a run, and their entries in total
ALL_JOBS, ALL_ENTRIES = 120_000, 1_500_000  # jobs and matrix entries of the whole page: about 10 MB
PAIRS = 30  # with more settings than this, pairwise tests are not listed


def write_page(found: RunCollection, path: Path, target: float | None = None) -> None:
    """Writes the page about these runs."""
    part = files("fedsim.report")
    text = (part / "page.html").read_text()
    data = json.dumps(content(found, target), separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    for name, inside in (
        ("STYLE", (part / "page.css").read_text()),
        ("CODE", (part / "page.js").read_text()),
        ("DATA", data),
    ):
        text = text.replace(f"/*{name}*/", inside)
    write_text(path, text)


def content(found: RunCollection, target: float | None = None) -> dict[str, Any]:
    """The data of the page as plain values."""
    runs, settings, metric = found.runs, found.settings, found.metric
    index_of = {id(run): index for index, run in enumerate(runs)}
    tests = pairwise_tests(settings) if len(settings) <= PAIRS else {}
    return {
        "metric": {"name": metric.name, "direction": metric.direction, "percent": metric.percent},
        "settings": [_setting(each, [index_of[id(run)] for run in each.runs]) for each in settings],
        "kinds": [kind for kind in KINDS if any(each.series(kind) for each in settings)],
        "results": _table(result_table(settings, target)),
        "costs": _table(cost_table(settings)),
        "parts": COSTS,
        "source": published_sources(settings),
        "heatmap": heat_map_data(heat_map(settings, found.heatmap)) if found.heatmap else None,
        "pairs": [[i, j, _r(q)] for (i, j), (_, q) in tests.items()],
        "missing": [str(path) for path, _ in found.missing],
        "searches": [{**vars(search), "best": search.best} for search in found.searches],
        **_details(runs, settings),
    }


def _setting(each: Setting, runs: list[int]) -> dict[str, Any]:
    finals = [series.values[-1] for series in each.series()]
    ends = np.concatenate(finals) if finals else np.empty(0)
    ends = ends[np.isfinite(ends)]
    return {
        "label": each.label,
        "runs": runs,
        "curves": {kind: _curve(each, kind) for kind in KINDS},
        "clients": _list(ends[_indices(len(ends), DOTS)]),
        "mean": _r(float(ends.mean())) if len(ends) else None,
        "seconds": [each.cost(lambda costs, name=name: costs.seconds[name]).mean for name in COSTS],  # type: ignore[misc]
    }


def _curve(each: Setting, kind: str) -> dict[str, Any] | None:
    over = {axis: each.curve(kind, axis) for axis in ("rounds", "times")}
    band = over["rounds"]
    if band is None or over["times"] is None:
        return None
    pick = _indices(len(band.x), POINTS)
    parts = {"rounds": band.x, "times": over["times"].x, "mean": band.mean}
    parts |= {"low": band.low, "high": band.high} if len(each.runs) > 1 else {}
    return {name: _list(values[pick]) for name, values in parts.items()}


def _table(found: ResultTable) -> dict[str, Any]:
    """The texts of the cells, the values to sort by, and the ranks."""
    rows = range(len(found.settings))
    return {
        "columns": [column.name for column in found.columns],
        "texts": [[column.text(row) for column in found.columns] for row in rows],
        "values": [[_sort_value(column.values[row]) for column in found.columns] for row in rows],
        "ranks": [[found.rank(column, row) for column in found.columns] for row in rows],
    }


def _sort_value(value: MeanStd | str) -> float | None:
    """The number that a cell is sorted by."""
    number = value.mean if isinstance(value, MeanStd) else float(value.split()[0])
    return number if number is None or isfinite(number) else None


@dataclass
class Budget:
    """The number of jobs or matrix entries that still fit on the page."""

    left: int

    def take(self, size: int) -> bool:
        """Whether `size` more fit; if so, they are subtracted."""
        fits = size <= self.left
        self.left -= size if fits else 0
        return fits


def _details(runs: Sequence[RunResult], settings: Sequence[Setting]) -> dict[str, Any]:
    """The details of every run; values that runs have in common are stored once, in `shared`."""
    jobs, entries = Budget(ALL_JOBS), Budget(ALL_ENTRIES)
    firsts = {id(each.runs[0]) for each in settings if each.runs}
    order = sorted(range(len(runs)), key=lambda index: id(runs[index]) not in firsts)
    shared: dict[str, int] = {}
    details: list[dict[str, Any]] = [{}] * len(runs)
    for index in order:
        details[index] = _run(runs[index], jobs, entries, shared)
    return {"runs": details, "shared": [json.loads(text) for text in shared]}


def _as_json(value: Any) -> Any:
    """A value of a configuration; JSON has no infinite numbers."""
    return str(value) if isinstance(value, float) and not isfinite(value) else value


def _run(run: RunResult, jobs: Budget, entries: Budget, shared: dict[str, int]) -> dict[str, Any]:
    def share(value: Any) -> int:
        return shared.setdefault(json.dumps(value), len(shared))

    keys = ("id", "train", "test", "labels", "model")
    clients = [[client.get(key) for key in keys] for client in run.manifest["clients"]]
    manifest = {key: run.manifest.get(key) for key in ("engine", "python", "packages")}
    fits = jobs.take(min(JOBS, len(run.jobs)))
    kept = run.jobs[:JOBS] if fits else []
    times = np.array([(job.sent, job.arrived) for job in kept]).reshape(-1, 2).round(4).tolist()
    drawn = [[job.client, *when, job.staleness] for job, when in zip(kept, times, strict=True)]
    memory = run.costs.client_memory
    return {
        "name": run.folder.name,
        "config": share({key: _as_json(value) for key, value in run.config.items() if key != "seed"}),
        "seed": run.config.get("seed"),
        "about": share(manifest),
        "status": [run.manifest.get("status"), run.manifest.get("written")],
        "clients": share(clients),
        "memory": [round(memory[client]) if client in memory else None for client in run.clients],
        "jobs": drawn,
        "left_out": len(run.jobs) - len(drawn),
        "idle": _r(float(np.mean(run.idle))) if run.idle else 0.0,
        "steps": _list(run.steps[:JOBS]) if fits else [],
        "end": _r(float(run.steps[-1])) if len(run.steps) else 1.0,
        **_matrices(run, entries),
        **_clusters(run, entries),
    }


def _matrices(run: RunResult, budget: Budget) -> dict[str, Any]:
    """Name -> rounds and matrices, with the clients ordered by their labels."""
    kept = matrix_files(run.folder)
    if not kept:
        return {"matrices": {}}
    size = sum(values.size for values in read_npz(kept[max(kept)]).values())
    rounds = evenly_spaced(list(kept), max(2, min(ROUNDS, ENTRIES // size)))
    if not budget.take(size * len(rounds)):
        return {"matrices": {}, "unfit": len(kept)}
    found, order = {number: read_npz(kept[number]) for number in rounds}, order_by_labels(run)
    return {
        "matrices": {
            name: {
                "order": [run.clients[row] for row in order],
                "rounds": [number for number, each in found.items() if name in each],
                "values": [_list(each[name][np.ix_(order, order)].ravel()) for each in found.values() if name in each],
            }
            for name in sorted({name for each in found.values() for name in each})
        }
    }


def _clusters(run: RunResult, budget: Budget) -> dict[str, Any]:
    """Clients x rounds, thinned to ROUNDS rounds, with the clients ordered by their clusters."""
    table = clusters_by_round(run)
    rounds = _indices(table.shape[1], ROUNDS)
    if not table.size or not budget.take(len(table) * len(rounds)):
        return {"clusters": None}
    order = order_by_clusters(table)
    return {
        "clusters": {
            "order": [run.clients[row] for row in order],
            "rounds": (rounds + 1).tolist(),
            "values": table[order][:, rounds].tolist(),
        }
    }


def _indices(length: int, most: int) -> NDArray[np.int64]:
    """At most `most` evenly spaced indices, with the first and the last one."""
    return np.unique(np.linspace(0, length - 1, min(length, most)).round().astype(np.int64))


def _list(values: NDArray[Any]) -> list[float | None]:
    """Rounded to at least four decimals and four digits of the largest value; None for NaN and infinity."""
    largest = np.max(np.abs(values), where=np.isfinite(values), initial=1e-12)
    decimals = max(4, 3 - floor(log10(largest)))
    rounded = np.round(values.astype(np.float64), decimals)
    return [value if isfinite(value) else None for value in rounded.tolist()]


def _r(value: float) -> float:
    return float(f"{value:.6g}")
