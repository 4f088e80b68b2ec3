"""One self-contained HTML page about runs: no network, no server, everything inside the file."""

import json
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsim.curves import KINDS
from fedsim.files import write_text
from fedsim.report import matrices
from fedsim.report.groups import Group, group
from fedsim.report.runs import Run
from fedsim.report.tables import idle_shares

JOBS = 4000  # jobs of a run that are drawn; more would be a grey wall
POINTS = 400  # points of a curve


def write_page(runs: Sequence[Run], path: Path) -> None:
    """The page about these runs."""
    part = files("fedsim.report")
    text = (part / "page.html").read_text()
    data = json.dumps(content(runs), separators=(",", ":"), allow_nan=False).replace("</", "<\\/")
    for name, inside in (
        ("STYLE", (part / "page.css").read_text()),
        ("CODE", (part / "page.js").read_text()),
        ("DATA", data),
    ):
        text = text.replace(f"/*{name}*/", inside)
    write_text(path, text)


def content(runs: Sequence[Run]) -> dict[str, Any]:
    """What the page shows, as plain values."""
    groups = group(runs)
    return {
        "groups": [_group(each, runs) for each in groups],
        "runs": [_run(run) for run in runs],
        "kinds": [kind for kind in KINDS if any(len(run.series(kind).rounds) for run in runs)],
    }


def _group(each: Group, runs: Sequence[Run]) -> dict[str, Any]:
    numbers = {"best": each.best, "final": each.final, "worst": each.worst}
    spreads = {name: [spread.mean, spread.std] for name, spread in numbers.items()}
    members = [index for index, run in enumerate(runs) if any(run is own for own in each.runs)]
    return {"label": each.label, "runs": members, **spreads}


def _run(run: Run) -> dict[str, Any]:
    work, steps = run.work(), run.steps
    jobs = [[job.client, _r(job.sent), _r(job.arrived), job.staleness] for job in work[:JOBS]]
    return {
        "name": run.folder.name,
        "config": run.config,
        "about": {key: run.manifest.get(key) for key in ("status", "engine", "python", "packages", "written")},
        "series": {kind: _series(run, kind) for kind in KINDS},
        "clients": [
            [client["id"], client["train"], client["test"], client["labels"]] for client in run.manifest["clients"]
        ],
        "jobs": jobs,
        "left_out": len(work) - len(jobs),
        "idle": [_r(share) for share in idle_shares(run)],
        "steps": [_r(moment) for moment in steps[:JOBS]],
        "matrices": _matrices(run),
    }


def _series(run: Run, kind: str) -> dict[str, Any] | None:
    series = run.series(kind)
    if not len(series.rounds):
        return None
    pick = np.unique(np.linspace(0, len(series.rounds) - 1, POINTS).round().astype(int))
    return {
        "rounds": series.rounds[pick].tolist(),
        "times": _list(series.times[pick]),
        "mean": _list(series.mean[pick]),
        "worst": _list(series.worst[pick]),
        "final": _list(series.values[-1]),
    }


def _matrices(run: Run) -> dict[str, Any]:
    """Name -> rounds and matrices, clients with similar data side by side."""
    found, order = matrices.load(run), matrices.order_by_data(run)
    names = sorted({name for each in found.values() for name in each})
    return {
        name: {
            "order": [run.clients[row] for row in order],
            "rounds": [number for number, each in found.items() if name in each],
            "values": [
                [_list(row) for row in each[name][np.ix_(order, order)]] for each in found.values() if name in each
            ],
        }
        for name in names
    }


def _list(values: NDArray[Any]) -> list[float | None]:
    return [None if np.isnan(v) else _r(v) for v in values.tolist()]


def _r(value: float) -> float:
    return round(float(value), 4)
