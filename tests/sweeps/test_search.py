"""Searching on validation data."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedsim.config import RunConfig
from fedsim.errors import ConfigError
from fedsim.partitions.client_data import client_data
from fedsim.report.search_figure import search_figure
from fedsim.sweeps.runner import Cell, run_cell
from fedsim.sweeps.search import Range, Search
from fedsim.sweeps.study import FOLDER, JOURNAL, run_search
from fedsim.sweeps.sweep_file import Sweep, read_sweep

RATES = (("lr", Range(1e-5, 1.0, log=True)), ("batch-size", Range(8, 32, step=8, int=True)), ("momentum", (0.0, 0.9)))


def read(tmp_path: Path, text: str) -> Sweep:
    path = tmp_path / "s.toml"
    path.write_text("[grid]\nseed = [0, 1]\n" + text)
    return read_sweep(str(path))


def run_here(cells: list[Cell]) -> None:
    """Runs the cells that wait, one after the other in this process."""
    for cell in cells:
        if cell.status == "waiting":
            cell.finish(run_cell(cell.config.flat(), {}, cell.observer))


@pytest.fixture
def config(small: Callable[..., RunConfig]) -> RunConfig:
    return small("rounds=5", "model=mlr")


def test_a_grid_of_candidates(tmp_path: Path, config: RunConfig) -> None:
    search = read(tmp_path, "[search.over]\nlr = [1e-9, 0.1]\nmomentum = { choices = [0.0, 0.9] }\n").search
    assert search is not None
    configs = {"a": config.replace(target=0.1), "b": config.replace(target=0.1, seed=7)}
    seen: list[Cell] = []
    chosen, (found,) = run_search(search, configs, tmp_path, lambda cells: (seen.extend(cells), run_here(cells)))
    assert [(c.config.lr, c.config.momentum, c.config.validation, c.config.target) for c in seen] == [
        *((1e-9, 0.0, 0.2, 0), (1e-9, 0.9, 0.2, 0)),
        *((0.1, 0.0, 0.2, 0), (0.1, 0.9, 0.2, 0)),
    ]
    assert [cell.name for cell in seen] == ["a-0", "a-1", "a-2", "a-3"]
    assert found.states == ["finished"] * 4  # a grid is complete
    point = found.points[found.best or 0]
    assert found.scores[found.best or 0] == max(score or 0 for score in found.scores)
    for name, seed in {"a": 0, "b": 7}.items():
        best = chosen[name]
        assert (best.lr, best.momentum) == (point["lr"], point["momentum"])
        assert (best.seed, best.target, best.validation) == (seed, 0.1, 0)


def test_a_search_stops_bad_candidates_and_repeats_exactly_after_an_interruption(
    tmp_path: Path, config: RunConfig
) -> None:
    search = Search(points=9, startup=2, warmup=1, batch=3, space=RATES)
    whole = run_search(search, {"a": config}, tmp_path / "whole", run_here)
    (found,) = whole[1]
    assert all(1e-5 <= p["lr"] <= 1 and p["batch-size"] in (8, 16, 24, 32) for p in found.points)  # type: ignore[operator]
    assert len({p["lr"] for p in found.points}) == 9
    assert set(found.states) == {"finished", "stopped"}
    assert found.states[:3] == ["finished"] * 3
    for state, rounds in zip(found.states, found.rounds, strict=True):
        assert (rounds < 5) == (state == "stopped")

    def interrupted(cells: list[Cell]) -> None:
        run_here(cells[:1])
        if cells[0].name == "a-3":
            raise KeyboardInterrupt
        run_here(cells)

    home = tmp_path / "parts"
    with pytest.raises(KeyboardInterrupt):
        run_search(search, {"a": config}, home, interrupted)
    journal = home / FOLDER / JOURNAL
    with journal.open("a") as file:
        file.write('{"op_code": 6, "worker_id"')  # cut off by a kill
    journal.with_name(f"{JOURNAL}.lock").symlink_to(journal)
    left: list[str] = []
    again = run_search(search, {"a": config}, home, lambda cells: (left.extend(c.name for c in cells), run_here(cells)))
    assert left == [f"a-{number}" for number in range(3, 9)]
    assert again == whole
    assert run_search(search, {"a": config}, home, run_here) == whole
    more = run_search(replace(search, points=10), {"a": config}, home, run_here)[1][0]
    assert (more.points[:9], len(more.points)) == (found.points, 10)
    with pytest.raises(ConfigError, match="holds another search: choose another --out"):
        run_search(replace(search, seed=1), {"a": config}, home, run_here)
    search_figure([found], tmp_path / "search.png")
    assert (tmp_path / "search.png").stat().st_size > 10_000


def test_failed_candidates_are_repeated_on_request(tmp_path: Path, config: RunConfig) -> None:
    search = Search(space=(("lr", (0.1, 0.2)),))

    def dying(cells: list[Cell]) -> None:
        for cell in cells:
            cell.finish("its worker died")

    with pytest.raises(ConfigError, match="no candidate of the search for a finished"):
        run_search(search, {"a": config}, tmp_path, dying)
    with pytest.raises(ConfigError, match="no candidate"):  # nothing runs again unless told
        run_search(search, {"a": config}, tmp_path, run_here)

    def again(cells: list[Cell]) -> None:
        for cell in cells:
            cell.retry()
        run_here(cells)

    found = run_search(search, {"a": config}, tmp_path, again, retry=True)[1][0]
    assert (found.points, found.states) == ([{"lr": 0.1}, {"lr": 0.2}], ["finished"] * 2)
    assert sorted(path.name for path in (tmp_path / FOLDER).iterdir() if path.is_dir()) == ["a-0", "a-1"]


def test_equal_candidates_run_once(tmp_path: Path, config: RunConfig) -> None:
    search = Search(points=5, pruning="none", space=(("lr", (0.1,)),))
    found = run_search(search, {"a": config}, tmp_path, run_here)[1][0]
    assert len(found.points) == 5
    assert len(set(found.scores)) == 1
    assert [path.name for path in (tmp_path / FOLDER).iterdir() if path.is_dir()] == ["a-0"]


def test_nonsense_is_refused(tmp_path: Path) -> None:
    for text, message in [
        ("[search]\npoints = 3\n", "names no key"),
        ("[search.over]\nlr = { low = 1, high = 2 }\n", "needs search.points"),
        (
            "[search]\nvalidation = 1.5\n[search.over]\nlr = [1]\n",
            "search.validation must be above 0 and below 1, not 1.5",
        ),
        ("[search]\npoints = 2\n[search.over]\nlr = 3\n", "must be a list"),
        ("[search]\npoints = 2\n[search.over]\nlr = []\n", "must be a list"),
        ("[search]\npoints = 2\n[search.over]\nlr = { low = 2, high = 1 }\n", "lr must be .* low < high"),
        ("[search]\npoints = 2\n[search.over]\nlr = { low = 0, high = 1, log = true }\n", "low > 0 with log"),
        ("[search]\npoints = 2\n[search.over]\nlr = { low = 1, high = 2, lag = true }\n", "Did you mean 'log'"),
        ("[search]\ntries = 2\n[search.over]\nlr = [1]\n", "unknown config key 'search.tries'.*search.points"),
    ]:
        with pytest.raises(ConfigError, match=message):
            read(tmp_path, text)
    for text, message in [
        ("spfl.gama = [1]", "unknown config key 'spfl.gama'. Did you mean 'spfl.gamma'"),
        ("lr = { low = -1.0, high = 1.0 }", "lr must be above 0, not -1"),
    ]:
        search = read(tmp_path, f"[search]\npoints = 1\n[search.over]\n{text}\n").search
        assert search is not None
        with pytest.raises(ConfigError, match=message):
            run_search(search, {"a": RunConfig()}, tmp_path / "none", run_here)
    assert not (tmp_path / "none").exists()


def test_validation_never_touches_the_tests(small: Callable[..., RunConfig]) -> None:
    plain, held = client_data(small(), 0), client_data(small("validation=0.25"), 0)
    assert len(held.y_train) + len(held.y_test) == len(plain.y_train)
    assert len(held.y_test) == round(0.25 * len(plain.y_train))
    known = {sample.tobytes() for sample in plain.x_train}
    assert all(sample.tobytes() in known for sample in held.x_test)
    assert not np.array_equal(held.x_test[: len(plain.x_test)], plain.x_test)
