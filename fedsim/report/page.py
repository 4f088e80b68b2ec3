"""One self-contained HTML page about runs: no network, no server, everything inside the file.

Curves and tables hold every run. Timelines and matrices are large: the first run of each setting comes first, and what no
longer fits is left out and said so on the page.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsim.curves import KINDS
from fedsim.files import read_npz, write_text
from fedsim.matrices import matrix_files
from fedsim.record import COSTS
from fedsim.report import matrices
from fedsim.report.groups import Group, Spread
from fedsim.report.results import Results, costs, results, sources
from fedsim.report.runs import Run
from fedsim.report.selection import Selection
from fedsim.report.statistics import pairwise

JOBS = 4000  # jobs of a run that are drawn; more would be a grey wall
POINTS = 200  # points of a curve
DOTS = 600  # clients of a setting that are drawn
ROUNDS, ENTRIES = 60, 200_000  # matrices of a run, and their entries in all
ALL_JOBS, ALL_ENTRIES = 120_000, 1_500_000  # jobs and matrix entries on the whole page: about 10 MB
PAIRS = 30  # settings whose tests against each other are listed


def write_page(found: Selection, path: Path, target: float | None = None) -> None:
    """The page about these runs."""
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


def content(found: Selection, target: float | None = None) -> dict[str, Any]:
    """What the page shows, as plain values."""
    runs, groups = found.runs, found.groups
    place = {id(run): index for index, run in enumerate(runs)}
    return {
        "groups": [_group(each, [place[id(run)] for run in each.runs]) for each in groups],
        "kinds": [kind for kind in KINDS if any(len(run.series(kind).rounds) for run in runs)],
        "results": _table(results(groups, target)),
        "costs": _table(costs(groups)),
        "parts": COSTS,
        "source": sources(groups),
        "pairs": [[i, j, _r(q)] for (i, j), (_, q) in pairwise(groups).items()] if len(groups) <= PAIRS else [],
        "missing": [str(path) for path, _ in found.missing],
        "trials": [vars(trial) for trial in found.trials],
        **_details(runs, groups),
    }


def _group(each: Group, members: list[int]) -> dict[str, Any]:
    finals = [run.series("personal").values[-1] for run in each.runs if len(run.series("personal").rounds)]
    ends = np.concatenate(finals) if finals else np.empty(0)
    ends = ends[~np.isnan(ends)]
    return {
        "label": each.label,
        "runs": members,
        "curves": {kind: _curve(each, kind) for kind in KINDS},
        "clients": _list(ends[_spread(len(ends), DOTS)]),
        "mean": _r(float(ends.mean())) if len(ends) else None,
        "seconds": [_number(each.cost(lambda c, name=name: c.seconds[name])) for name in COSTS],  # type: ignore[misc]
    }


def _curve(each: Group, kind: str) -> dict[str, Any] | None:
    over = {axis: each.curve(kind, axis) for axis in ("rounds", "times")}
    band = over["rounds"]
    if band is None or over["times"] is None:
        return None
    pick = _spread(len(band.place), POINTS)
    parts = {"rounds": band.place, "times": over["times"].place, "mean": band.mean}
    parts |= {"low": band.low, "high": band.high} if len(each.runs) > 1 else {}
    return {name: _list(values[pick]) for name, values in parts.items()}


def _table(found: Results) -> dict[str, Any]:
    """Texts, the values to sort by, and the places of the best."""
    rows = range(len(found.groups))
    return {
        "columns": [column.name for column in found.columns],
        "texts": [[column.text(row) for column in found.columns] for row in rows],
        "values": [[_number(column.values[row]) for column in found.columns] for row in rows],
        "places": [[found.place(column, row) for column in found.columns] for row in rows],
    }


def _number(value: Spread | str) -> float | None:
    """What a cell is sorted by."""
    return value.mean if isinstance(value, Spread) else float(value.split()[0])


@dataclass
class Room:
    """What still fits on the page."""

    left: int

    def take(self, size: int) -> bool:
        fits = size <= self.left
        self.left -= size if fits else 0
        return fits


def _details(runs: Sequence[Run], groups: Sequence[Group]) -> dict[str, Any]:
    """Every run by itself; what many runs share is there once."""
    jobs, entries = Room(ALL_JOBS), Room(ALL_ENTRIES)
    firsts = {id(each.runs[0]) for each in groups if each.runs}
    order = sorted(range(len(runs)), key=lambda index: id(runs[index]) not in firsts)
    shared: dict[str, int] = {}
    details: list[dict[str, Any]] = [{}] * len(runs)
    for index in order:
        details[index] = _run(runs[index], jobs, entries, shared)
    return {"runs": details, "shared": [json.loads(text) for text in shared]}


def _run(run: Run, jobs: Room, entries: Room, shared: dict[str, int]) -> dict[str, Any]:
    def once(value: Any) -> int:
        return shared.setdefault(json.dumps(value), len(shared))

    clients = [[client["id"], client["train"], client["test"], client["labels"]] for client in run.manifest["clients"]]
    manifest = {key: run.manifest.get(key) for key in ("engine", "python", "packages")}
    work = run.work()
    fits = jobs.take(min(JOBS, len(work)))
    times = np.array([(job.sent, job.arrived) for job in work[:JOBS]]).reshape(-1, 2).round(4).tolist() if fits else []
    drawn = [[job.client, *when, job.staleness] for job, when in zip(work, times, strict=False)]
    memory = run.costs.client_memory
    return {
        "name": run.folder.name,
        "config": once({key: value for key, value in run.config.items() if key != "seed"}),
        "seed": run.config.get("seed"),
        "about": once(manifest),
        "status": [run.manifest.get("status"), run.manifest.get("written")],
        "clients": once(clients),
        "memory": [round(memory[client]) if client in memory else None for client in run.clients],
        "jobs": drawn,
        "left_out": len(work) - len(drawn),
        "idle": _r(float(np.mean(run.idle))) if run.idle else 0.0,
        "steps": _list(run.steps[:JOBS]) if fits else [],
        "end": _r(float(run.steps[-1])) if len(run.steps) else 1.0,
        **_matrices(run, entries),
    }


def _matrices(run: Run, room: Room) -> dict[str, Any]:
    """Name -> rounds and matrices, clients with similar data side by side."""
    kept = matrix_files(run.folder)
    if not kept:
        return {"matrices": {}}
    size = sum(values.size for values in read_npz(kept[max(kept)]).values())
    rounds = matrices.spread_over(list(kept), max(2, min(ROUNDS, ENTRIES // size)))
    if not room.take(size * len(rounds)):
        return {"matrices": {}, "unfit": len(kept)}
    found, order = {number: read_npz(kept[number]) for number in rounds}, matrices.order_by_data(run)
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


def _spread(length: int, most: int) -> NDArray[np.int64]:
    """At most so many places, evenly, the first and the last among them."""
    return np.unique(np.linspace(0, length - 1, min(length, most)).round().astype(np.int64))


def _list(values: NDArray[Any]) -> list[float | None]:
    return [None if v != v else v for v in np.round(values.astype(np.float64), 4).tolist()]


def _r(value: float) -> float:
    return round(float(value), 4)
