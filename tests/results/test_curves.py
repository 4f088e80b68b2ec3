"""Accuracy curves: a client that is not tested keeps its number, and the summary says how old it is."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedsim.cli import main
from fedsim.config import RunConfig

Finished = Callable[..., dict[str, Any]]


STALE = ["pace=window", "stragglers=periodic", "stragglers.count=2", "rounds=4"]


@pytest.mark.parametrize(("algorithm", "tested"), [("plga", [4, 4, 4, 4]), ("fedavg", [4, 3, 4, 4])])
def test_a_run_with_stragglers(
    algorithm: str,
    tested: list[int],
    small: Callable[..., RunConfig],
    finished: Finished,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Client 1 is busy at the end. With PLGA it is tested all the same: the server makes its personal model."""
    summary = finished(small(f"algorithm={algorithm}", *STALE))
    assert summary["accuracy"]["personal"]["last_tested"] == tested
    capsys.readouterr()
    assert main(["report", str(tmp_path / "run")]) == 0
    warning = f"warning: {algorithm}: personal models last tested before round 4: client 1 in round 3"
    assert (warning in capsys.readouterr().out.splitlines()) == (algorithm == "fedavg")
