"""A run keeps its identity when it is resumed, and nothing else can be resumed in its place."""

from collections.abc import Callable
from pathlib import Path

import pytest

from fedsim.config import RunConfig
from fedsim.engine.launch import launch
from fedsim.errors import ConfigError
from fedsim.results import checkpoint as checkpoints
from fedsim.results.record import Record, read_manifest, read_summary
from fedsim.server.app import build
from tests.nodes import Nodes
from tests.resuming import check_resuming
from tests.transport.test_liveness import at

Small = Callable[..., RunConfig]


class PowerCut(BaseException):
    """The process is gone."""


def stopped(config: RunConfig, folder: Path) -> RunConfig:
    """A run on nodes with disks that is stopped in its fifth round, two after its last checkpoint."""
    grid = Nodes(config, folder / "disks")

    def cut() -> None:
        raise PowerCut

    grid.happens = at(4, 0, cut)
    with pytest.raises(PowerCut):
        build(config).start(grid, record=Record(folder / "run", config, "test"))
    return config.replace(out=str(folder / "run"), resume=True)


def test_refusals_before_a_stop_count(small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three answers of client 1 were refused before the checkpoint, a fourth after it: then it gets no more jobs."""
    keys = (
        "algorithm=fedavg",
        "clients=3",
        "attack=nan",
        "attack.clients=1",
        "refusals=4",
        "rounds=6",
        "checkpoint-every=1",
    )
    check_resuming(small(*keys), tmp_path, monkeypatch)
    assert read_summary(tmp_path / "copy")["refusals"] == {"count": 4, "per_client": {"1": 4}, "benched": [1]}


@pytest.mark.parametrize("name", ["scaffold", "apfl", "spfl", "pfedme"])
def test_nodes_with_disks_go_on_as_if_nothing_had_happened(name: str, small: Small, tmp_path: Path) -> None:
    config = small("clients=3", f"algorithm={name}", "rounds=6", "checkpoint-every=3", "participation=0.7")
    whole = Record(tmp_path / "whole", config, "test")
    build(config).start(Nodes(config, tmp_path / "other"), record=whole)

    again = stopped(config, tmp_path)
    before = read_manifest(tmp_path / "run")
    assert (before["status"], before["resumed"]) == ("failed", [])
    record = Record(tmp_path / "run", again, "test")
    build(again).start(Nodes(again, tmp_path / "disks"), record=record)
    after = read_manifest(tmp_path / "run")
    assert (after["status"], after["run"], after["resumed"]) == ("finished", before["run"], [3])
    assert record.summary()["accuracy"] == whole.summary()["accuracy"]


def test_nodes_without_disks_are_told(small: Small, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    again = stopped(small("clients=3", "algorithm=apfl", "rounds=6", "checkpoint-every=3"), tmp_path)
    build(again).start(Nodes(again), record=Record(tmp_path / "run", again, "test"))
    assert "client 0, 1, 2: no state-dir, so what it remembered of the run is gone" in caplog.text


def test_a_client_with_other_data_is_refused(small: Small, tmp_path: Path) -> None:
    again = stopped(small("clients=3", "rounds=6", "checkpoint-every=3"), tmp_path)
    grid = Nodes(again, tmp_path / "disks")
    grid.configs[102] = again.replace(seed=99)
    with pytest.raises(ConfigError, match=r"client 2 has other data than when .* samples instead of"):
        build(again).start(grid, record=Record(tmp_path / "run", again, "test"))


def test_a_new_run_has_another_identity(small: Small, tmp_path: Path) -> None:
    for name in ("one", "two"):
        launch(small(f"out={tmp_path / name}"), "inline")
    one, two = (read_manifest(tmp_path / name)["run"] for name in ("one", "two"))
    assert one != two


def test_what_cannot_be_resumed_is_refused(small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = small("clients=3", "rounds=4", f"out={tmp_path / 'run'}")

    def cut(*_: object) -> None:
        raise PowerCut

    with monkeypatch.context() as patch:
        patch.setattr(checkpoints, "save", cut)
        with pytest.raises(PowerCut):
            launch(config, "inline")
    for changes, told in [
        ({"out": ""}, r"resume=true needs the folder of the run: out=RUN"),
        ({"out": str(tmp_path)}, r"manifest\.json cannot be read"),
        ({"seed": 7, "lr": 0.5}, r"is a run with seed=0, lr=0\.05: resume it with the configuration"),
    ]:
        with pytest.raises(ConfigError, match=told):
            launch(config.replace(resume=True, **changes), "inline")
    launch(config.replace(resume=True, timeout=99.0), "inline")
    with pytest.raises(ConfigError, match="is finished: there is nothing to resume"):
        launch(config.replace(resume=True), "inline")
