"""The Ray engine when workers die."""

import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import ray

from fedsim.config import RunConfig
from fedsim.engine import ray as engine
from fedsim.engine.launch import launch
from fedsim.errors import FedsimError
from fedsim.record import read_summary

from .flower import BIN, await_port, free_port, stop_group

pytestmark = pytest.mark.system


@pytest.fixture
def deadly(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, int, str], None]:
    """Kills the worker as soon as it has got a certain client's training job, so many times."""

    def arrange(client: int, times: int, kind: str = "train") -> None:
        board, left = engine.RayGrid._board, [times]

        def board_and_kill(self: Any, seat: Any, flights: Any) -> None:
            board(self, seat, flights)
            messages = [flight.message for flight in flights if flight.message.metadata.message_type == kind]
            if left[0] and client in map(engine.client_of, messages):
                left[0] -= 1
                ray.kill(seat.actor)

        monkeypatch.setattr(engine.RayGrid, "_board", board_and_kill)

    return arrange


def run(config: RunConfig, name: str, tmp_path: Path, kind: str = "ray") -> dict[str, Any]:
    launch(config.replace(out=str(tmp_path / name)), kind)
    return read_summary(tmp_path / name)


def test_a_dead_worker_is_replaced_and_nothing_shows(
    small: Callable[..., RunConfig], deadly: Callable[..., None], tmp_path: Path
) -> None:
    config = small("algorithm=local", "workers=2", "rounds=3")
    deadly(client=2, times=2)
    survived, reference = run(config, "survived", tmp_path), run(config, "reference", tmp_path, "inline")
    assert survived["weights_sha256"] == reference["weights_sha256"]
    assert survived["accuracy"] == reference["accuracy"]
    assert survived["failures"] == []


def test_the_third_death_is_the_clients_failure_and_the_round_goes_on(
    small: Callable[..., RunConfig], deadly: Callable[..., None], tmp_path: Path
) -> None:
    deadly(client=2, times=3)
    summary = run(small("workers=2", "rounds=2"), "run", tmp_path)
    (failure,) = summary["failures"]
    assert (failure["client"], failure["round"]) == (2, 1)
    assert "died 3 times" in failure["reason"]


def test_asking_for_gpus_that_are_not_there_is_refused(small: Callable[..., RunConfig], tmp_path: Path) -> None:
    with pytest.raises(FedsimError, match=r"worker-gpus=512.0, but Ray sees"):
        run(small("worker-gpus=512"), "run", tmp_path)


@pytest.fixture
def cluster() -> Iterator[str]:
    """The address of a Ray head node that somebody else started."""
    port = free_port()
    with TemporaryDirectory(prefix="ray") as folder:  # short: Ray makes sockets below it
        head = [
            str(BIN / "ray"),
            "start",
            "--head",
            "--block",
            f"--port={port}",
            "--num-cpus=2",
            "--disable-usage-stats",
        ]
        head += ["--include-dashboard=false", "--node-ip-address=127.0.0.1", f"--temp-dir={folder}"]
        process = subprocess.Popen(head, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        try:
            await_port(port)
            yield f"127.0.0.1:{port}"
        finally:
            stop_group(process, signal.SIGTERM)
            stop_group(process, signal.SIGKILL)


def test_joining_an_existing_cluster(cluster: str, small: Callable[..., RunConfig], tmp_path: Path) -> None:
    launch(small().replace(out=str(tmp_path / "run")), "ray", cluster)
    assert (
        read_summary(tmp_path / "run")["weights_sha256"] == run(small(), "inline", tmp_path, "inline")["weights_sha256"]
    )


def test_an_address_where_nobody_answers_is_named(small: Callable[..., RunConfig], tmp_path: Path) -> None:
    with pytest.raises(FedsimError, match=r"cannot join Ray at 127\.0\.0\.1"):
        launch(small().replace(out=str(tmp_path / "run")), "ray", f"127.0.0.1:{free_port()}")
