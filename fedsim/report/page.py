"""The page about runs: self-contained HTML that needs neither network nor server, or the live page of `fedsim watch`.

Curves and tables of a report include every run. Timelines, values of clients and matrices are large: those of the first
run of each setting are included first, and the page names what was left out for its size.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from math import floor, isfinite, log10
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsim.files import read_npz, write_text
from fedsim.report.cluster_figure import clusters_by_round, order_by_clusters
from fedsim.report.collection import RunCollection
from fedsim.report.entries import thinned
from fedsim.report.heat_map import heat_map, heat_map_data
from fedsim.report.matrix_figure import evenly_spaced, order_by_labels
from fedsim.report.result_tables import ResultTable, cost_table, published_sources, result_table
from fedsim.report.runs import RunResult
from fedsim.report.settings import MeanStd, Setting
from fedsim.report.statistics import pairwise_tests
from fedsim.results.curves import KINDS
from fedsim.results.matrices import matrix_files
from fedsim.results.record import COSTS

SCRIPTS = ("base.js", "settings.js", "model.js", "run.js", "live.js")  # in the order in which they need each other
JOBS = 4000  # jobs in the timeline of a run
STEPS, EVALUATIONS, VALUES = 400, 120, 200_000  # of a run: steps, rounds with values of clients, and these values
POINTS = 200  # points of a curve
DOTS = 600  # clients of a setting that are drawn
ROUNDS, ENTRIES = 60, 200_000  # matrices of a run, and their entries in total
# jobs, steps, values and matrix entries of the whole page: about 10 MB
ALL_JOBS, ALL_STEPS, ALL_VALUES, ALL_ENTRIES = 60_000, 20_000, 500_000, 600_000
PAIRS = 30  # with more settings than this, pairwise tests are not listed


@dataclass
class Budget:
    """The number of jobs, steps, values or matrix entries that still fit on the page."""

    left: int

    def take(self, size: int) -> bool:
        """Whether `size` more fit; if so, they are subtracted."""
        fits = size <= self.left
        self.left -= size if fits else 0
        return fits


@dataclass
class Budgets:
    """What still fits on the page."""

    jobs: Budget = field(default_factory=lambda: Budget(ALL_JOBS))
    steps: Budget = field(default_factory=lambda: Budget(ALL_STEPS))
    values: Budget = field(default_factory=lambda: Budget(ALL_VALUES))
    matrices: Budget = field(default_factory=lambda: Budget(ALL_ENTRIES))


def write_page(found: RunCollection, path: Path, target: float | None = None) -> None:
    """Writes the page about these runs."""
    write_text(path, page_text(content(found, target)))


def page_text(data: Mapping[str, Any]) -> str:
    """The page with its data; `fedsim watch` serves it with the addresses of the data instead."""
    folder = files("fedsim.report").joinpath("html")
    told = json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    code = "".join(folder.joinpath(name).read_text() for name in SCRIPTS)
    text = folder.joinpath("page.html").read_text()
    for name, inside in (("STYLE", folder.joinpath("page.css").read_text()), ("CODE", code), ("DATA", told)):
        text = text.replace(f"/*{name}*/", inside)
    return text


def content(found: RunCollection, target: float | None = None) -> dict[str, Any]:
    """The data of the page as plain values."""
    return {**overview(found, target), **_details(found)}


def overview(found: RunCollection, target: float | None = None) -> dict[str, Any]:
    """What compares settings."""
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


def _details(found: RunCollection) -> dict[str, Any]:
    """Every run, with its entries as far as they fit; values that runs have in common are stored once, in `shared`."""
    runs, budgets = found.runs, Budgets()
    firsts = {id(each.runs[0]) for each in found.settings if each.runs}
    order = sorted(range(len(runs)), key=lambda index: id(runs[index]) not in firsts)
    shared: dict[str, int] = {}
    details: list[dict[str, Any]] = [{}] * len(runs)
    for index in order:
        run = runs[index]
        details[index] = {
            **about(run, shared),
            **progress(run),
            **_entries(run, budgets),
            **relations(run, budgets.matrices),
        }
    return {"runs": details, "shared": [json.loads(text) for text in shared]}


def _as_json(value: Any) -> Any:
    """A value of a configuration; JSON has no infinite numbers."""
    return str(value) if isinstance(value, float) and not isfinite(value) else value


def about(run: RunResult, shared: dict[str, int]) -> dict[str, Any]:
    """What does not change while a run goes on; `shared` takes values, by their text."""

    def share(value: Any) -> int:
        return shared.setdefault(json.dumps(value), len(shared))

    keys = ("id", "train", "test", "labels", "model")
    clients = [[client.get(key) for key in keys] for client in run.manifest["clients"]]
    manifest = {key: run.manifest.get(key) for key in ("engine", "python", "packages")}
    return {
        "name": run.folder.name,
        "config": share({key: _as_json(value) for key, value in run.config.items() if key != "seed"}),
        "seed": run.config.get("seed"),
        "about": share(manifest),
        "clients": share(clients),
    }


def progress(run: RunResult) -> dict[str, Any]:
    """How far a run is, and the memory of its clients' processes in MB."""
    memory, series = run.costs.client_memory, run.series("personal")
    return {
        "status": run.manifest.get("status"),
        "written": run.manifest.get("written"),
        "round": len(run.steps),
        "rounds": run.config.get("rounds"),
        "latest": _r(float(series.mean[-1])) if len(series.rounds) and isfinite(series.mean[-1]) else None,
        "seconds": round(run.costs.wall, 1),
        "failures": sum(len(event.get("failures", ())) for event in run.events),
        "memory": [round(memory[client]) if client in memory else None for client in run.clients],
    }


def _entries(run: RunResult, budgets: "Budgets") -> dict[str, Any]:
    """The entries, and how many jobs were left out for their number."""
    jobs = min(JOBS, len(run.jobs))
    jobs = jobs if budgets.jobs.take(jobs) else 0
    steps = min(STEPS, len(run.steps))
    steps = steps if budgets.steps.take(steps) else 2
    rounds = max(2, min(EVALUATIONS, VALUES // max(1, 3 * len(run.clients))))
    rounds = rounds if budgets.values.take(3 * rounds * len(run.clients)) else 2
    return {"entries": thinned(run, jobs, steps, rounds), "left_out": len(run.jobs) - jobs}


def relations(run: RunResult, budget: Budget) -> dict[str, Any]:
    """The matrices and clusters of a run, as far as they fit."""
    return {**_matrices(run, budget), **_clusters(run, budget)}


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
