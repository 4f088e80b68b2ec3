"""Clusters of clients over the rounds: recorded where they change, drawn, and on the page."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from fedsim.config import RunConfig
from fedsim.report.cluster_figure import cluster_figure, cluster_table, clusters_by_round, order_by_clusters
from fedsim.report.collection import RunCollection
from fedsim.report.page import content
from fedsim.report.runs import RunResult
from fedsim.results.record import read_events
from tests.report.test_settings import run


def clustered(*rounds: list[int] | None) -> RunResult:
    """A run with these clusters after its rounds; None: unchanged."""
    found = run([0.5] * 4, algorithm="cfl", rounds=len(rounds))
    step = found.events[0]
    changes: list[dict[str, Any]] = [{} if own is None else {"clusters": own} for own in rounds]
    steps = [{**step, "round": number, **change} for number, change in enumerate(changes, start=1)]
    return RunResult(found.folder, found.manifest, [*steps, *found.events[1:]])


def test_a_client_stays_in_its_cluster_until_it_changes() -> None:
    table = clusters_by_round(clustered([-1, 0, 0, 0], None, [1, 0, 1, 0], None))
    assert table.tolist() == [[-1, -1, 1, 1], [0, 0, 0, 0], [0, 0, 1, 1], [0, 0, 0, 0]]
    assert order_by_clusters(table) == [1, 3, 0, 2]
    assert clusters_by_round(run([0.5, 0.5])).size == 0


def test_only_runs_with_clusters_have_a_figure_and_a_row(tmp_path: Path) -> None:
    assert not cluster_figure(run([0.5, 0.5]), tmp_path / "none.png")
    assert cluster_table([run([0.5, 0.5])]) is None
    assert cluster_figure(clustered([-1] * 4, [0, 2, 2, 2], None), tmp_path / "clusters.png")
    assert cluster_figure(clustered(list(range(4))), tmp_path / "one-round.png")
    assert cluster_figure(clustered([-1] * 4), tmp_path / "unknown.png")
    assert cluster_figure(clustered([0, 9, 5, 8]), tmp_path / "many.png")
    assert (tmp_path / "clusters.png").stat().st_size > 5000
    table = cluster_table([run([0.5]), clustered([0] * 4, [0, 2, 2, 2], None)])
    assert table is not None
    assert [list(column.cells) for column in table.columns] == [["cfl"], ["2"], ["3, 1"], ["2"]]


def test_the_page_holds_them() -> None:
    first, second = content(RunCollection([clustered([0] * 4, [1, 0, 0, 0]), run([0.5])]))["runs"]
    assert first["clusters"] == {"order": [1, 2, 3, 0], "rounds": [1, 2], "values": [[0, 0], [0, 0], [0, 0], [0, 1]]}
    assert second["clusters"] is None


def test_events_have_them_where_they_change(
    small: Callable[..., RunConfig], finished: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    splits = ["cfl.eps1=1e9", "cfl.eps2=0", "cfl.start=1", "rounds=5"]
    summary = finished(small("algorithm=cfl", *splits))
    changes = {event["round"]: event["clusters"] for event in read_events(tmp_path / "run") if "clusters" in event}
    assert min(changes) == 1
    assert changes[1] == [0, 0, 0, 0]
    assert len(set(changes[2])) == 2
    assert all(a != b for a, b in zip(list(changes.values()), list(changes.values())[1:], strict=False))
    last = changes[max(changes)]
    assert summary["clusters"] == {"count": len(np.unique(last)), "per_client": last}
    assert "clusters" not in finished(small("algorithm=fedavg"), name="fedavg")
