"""The entries of the page: what is thinned, and what must not change by it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsim.config import RunConfig
from fedsim.report.collection import collect_runs
from fedsim.report.entries import Entry, thinned
from fedsim.report.page import content
from fedsim.report.runs import RunResult


@pytest.fixture
def run(small: Callable[..., RunConfig], finished: Callable[..., dict[str, Any]], tmp_path: Path) -> RunResult:
    """Half of the clients take part in each round."""
    finished(small("rounds=9", "participation=0.5", "stragglers=uniform-rounds", "pace=window"))
    return RunResult.load(tmp_path / "run")


def latest(entries: list[Entry], letter: str, clients: list[int]) -> dict[int, float]:
    found: dict[int, float] = {}
    for each in entries:
        if letter in each:
            ids, values = each[letter]
            found |= dict(zip(ids or clients, values, strict=True))
    return found


def test_everything_is_there_if_it_fits(run: RunResult) -> None:
    entries = thinned(run, 1000, 1000, 1000)
    assert [each["r"] for each in entries if "n" in each] == list(range(1, 10))
    assert sum(len(each.get("j", [])) for each in entries) == len(run.jobs)
    assert [each["t"] for each in entries if "n" in each] == pytest.approx(run.steps, abs=1e-4)


def test_thinning_keeps_sums_and_the_latest_values(run: RunResult) -> None:
    whole, few = thinned(run, 1000, 1000, 1000), thinned(run, 4, 3, 2)
    steps = [each for each in few if "n" in each]
    assert [each["r"] for each in steps] == [3, 6, 9]
    for key in ("n", "w"):
        assert sum(each[key] for each in steps) == sum(each[key] for each in whole if "n" in each)
    assert max((each["u"], each["d"]) for each in few if "u" in each) == max(
        (e["u"], e["d"]) for e in whole if "u" in e
    )
    assert sum(len(each.get("j", [])) for each in few) == 4
    used = [(each["a"][0] * each["n"], each["n"]) for each in whole if each.get("n")]
    mean = sum(total for total, _ in used) / sum(count for _, count in used)
    joined = [(each["a"][0] * each["n"], each["n"]) for each in steps]
    assert sum(total for total, _ in joined) / sum(count for _, count in joined) == pytest.approx(mean, abs=2e-3)
    for letter in "gpl":
        assert latest(few, letter, run.clients) == latest(whole, letter, run.clients)
        assert sum(letter in each for each in few) == 2
    series = run.series("local")
    assert [latest(few, "l", run.clients)[c] for c in run.clients] == pytest.approx(series.values[-1], abs=1e-5)
    moments = dict(zip(run.series("personal").rounds.tolist(), run.series("personal").times, strict=True))
    told = {each["r"]: each["t"] for each in few if "p" in each}
    assert told == {number: pytest.approx(moments[number], abs=1e-4) for number in told}


def test_what_the_page_says_of_a_run(run: RunResult) -> None:
    (found,) = content(collect_runs([run.folder]))["runs"]
    assert (found["status"], found["round"], found["rounds"], found["failures"]) == ("finished", 9, 9, 0)
    assert found["latest"] == pytest.approx(float(np.mean(run.series("personal").values[-1])), rel=1e-5)
    assert found["left_out"] == 0
