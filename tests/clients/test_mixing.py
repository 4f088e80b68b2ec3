"""Mixtures of two clients' models: the ends are the parents, and a common start makes the mean better than both."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fedsim.cli import main
from fedsim.client.jobs import task_of
from fedsim.clients.fedma import own_initial
from fedsim.clients.mixing import mixed, mixed_losses
from fedsim.config import RunConfig
from fedsim.errors import ConfigError
from fedsim.rng import stream
from fedsim.weights import Weights

Small = Callable[..., RunConfig]
KEYS = ["model=mlp", "partition=iid", "partition.size=60", "local-epochs=20", "batch-size=10", "lr=0.1"]


def test_a_mixture_by_hand() -> None:
    one, two = Weights(np.float32([1, 2]), np.float32([4])), Weights(np.float32([3, -2]), np.float32([8]))
    found = mixed(one, two, 0.25)
    assert (found.parameters.tolist(), found.buffers.tolist()) == ([2.5, -1.0], [7.0])


@pytest.mark.parametrize("start", ["common", "different"])
def test_the_ends_are_the_parents(start: str, small: Small) -> None:
    config = small(*KEYS)
    found = mixed_losses(config, (2, 1), [0.0, 1.0])
    tasks = [task_of(config, client, 10)[0] for client in range(4)]
    sizes = [task.examples for task in tasks]
    for theta, client in ((1, 2), (0, 1)):
        rng = stream(config.seed, client, "mixing")
        first = tasks[client].initial() if start == "common" else own_initial(tasks[client], rng)
        model = tasks[client].fit(first, rng).weights
        losses = [task.evaluate(model, "train")["loss"] for task in tasks]
        assert found.losses[start][theta] == pytest.approx(np.average(losses, weights=sizes), rel=1e-6)


def test_the_mean_is_better_than_its_parents_only_from_a_common_start(small: Small) -> None:
    losses = mixed_losses(small(*KEYS), (0, 1), [0.0, 0.5, 1.0]).losses
    assert losses["common"][1] < min(losses["common"][0], losses["common"][2])
    assert losses["different"][1] > max(losses["different"][0], losses["different"][2])


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keys = [part for key in [*KEYS, "clients=2", "local-epochs=1"] for part in ("--set", key)]
    assert main(["mix", *keys, "--points", "3", "--json", "--plot", str(tmp_path / "mix.png")]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["metric"], found["clients"]) == ("loss", [0, 1])
    assert found["thetas"] == [-0.2, 0.0, 0.5, 1.0, 1.2]
    assert {len(losses) for losses in found["losses"].values()} == {5}
    assert (tmp_path / "mix.png").stat().st_size > 5000
    assert main(["mix", *keys, "--points", "2"]) == 0
    assert "client 0 (theta = 1)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("clients", "message"),
    [
        ((0, 4), "client 4 is none of the run's: it has clients 0 to 3"),
        ((1, 1), "client 1 cannot be mixed with itself"),
    ],
)
def test_pairs_that_cannot_be(clients: tuple[int, int], message: str, small: Small) -> None:
    with pytest.raises(ConfigError, match=message):
        mixed_losses(small(*KEYS), clients, [0.5])


def test_bad_options(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["mix", "--points", "1"]) == 2
    assert main(["mix", "--plot", "/nowhere/mix.png"]) == 2
    assert "--points must be at least 2, not 1" in (text := capsys.readouterr().err)
    assert "there is no folder /nowhere" in text
