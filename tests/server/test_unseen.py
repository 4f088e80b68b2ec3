"""Clients that are kept out of training and receive the model at the end (`partition.unseen`)."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsim import registry
from fedsim.cli import main
from fedsim.clients.task import TorchTask
from fedsim.config import RunConfig
from fedsim.engine.launch import launch
from fedsim.errors import ConfigError
from fedsim.files import read_npz
from fedsim.partitions.client_data import client_data
from fedsim.results.record import Record, read_events, read_manifest, read_summary
from fedsim.server.app import build
from fedsim.weights import Weights
from tests.nodes import Nodes

Small = Callable[..., RunConfig]
KEYS = ("clients=5", "partition.unseen=0.4", "rounds=2", "seed=3")


def run(config: RunConfig, folder: Path) -> dict[str, Any]:
    return read_summary(launch(config.replace(out=str(folder)), "inline"))


def test_unseen_clients_never_train_and_change_nothing_of_the_others(small: Small, tmp_path: Path) -> None:
    config = small(*KEYS)
    assert len(config.unseen) == 2
    assert config.cohort == 3
    summary, manifest = run(config, tmp_path / "run"), read_manifest(tmp_path / "run")
    assert summary["unseen"]["clients"] == list(config.unseen) == [row["id"] for row in manifest["unseen"]]
    seen = [client for client in range(5) if client not in config.unseen]
    assert [row["id"] for row in manifest["clients"]] == seen
    others = [row["id"] for event in read_events(tmp_path / "run") for row in event.get("clients", [])]
    assert set(others) == set(seen)
    assert len(summary["accuracy"]["personal"]["per_client"]) == 3
    whole = small(*(key for key in KEYS if "unseen" not in key))
    assert [len(client_data(whole, c).y_train) for c in range(5)] == [
        len(client_data(config, c).y_train) for c in range(5)
    ]


def test_they_test_the_final_model_and_what_they_make_of_it(small: Small, tmp_path: Path) -> None:
    config = small(*KEYS, "algorithm=fedavg-ft", "fedavg-ft.epochs=2", "local-epochs=1", "batch-size=0")
    found = run(config, tmp_path / "run")["unseen"]
    model = read_npz(tmp_path / "run" / "model.npz")
    totals = np.zeros(2)
    for place, client in enumerate(config.unseen):
        data = client_data(config, client)
        task = TorchTask(config, data, 10)
        weights = Weights(np.concatenate([model[t.name].reshape(-1) for t in task.layout.parameters]))
        tests, rng = len(data.y_test), np.random.default_rng(0)
        accuracy = task.evaluate(weights)["accuracy"]
        totals += accuracy * tests, tests
        assert found["accuracy"]["global"]["per_client"][place] == pytest.approx(accuracy)
        for kind, epochs in (("personal", 2), ("local", 1)):  # whole batches: the order of the samples does not matter
            tuned = task.evaluate(task.fit(weights, rng, epochs=epochs).weights)
            assert found["metrics"]["loss"][kind]["per_client"][place] == pytest.approx(tuned["loss"], rel=1e-4)
    assert found["accuracy"]["global"]["final"] == pytest.approx(totals[0] / totals[1])
    means = found["accuracy"]["personal"]
    assert means["final"] == pytest.approx(np.mean(means["per_client"]))


@pytest.mark.parametrize("algorithm", ["fedper", "ditto"])
def test_a_private_part_is_made_of_the_clients_own_data(algorithm: str, small: Small, tmp_path: Path) -> None:
    """Nobody else could give them one: without training, accuracy would be that of a random head."""
    config = small(*KEYS, f"algorithm={algorithm}", "model=mlp", "local-epochs=5", "batch-size=16", "lr=0.1")
    personal = run(config, tmp_path / "run")["unseen"]["accuracy"]["personal"]
    assert min(personal["per_client"]) > 0.5


def test_real_messages_give_the_numbers_of_the_inline_engine(small: Small, tmp_path: Path) -> None:
    config = small(*KEYS, "algorithm=apfl")
    inline = run(config, tmp_path / "inline")
    nodes = Nodes(config, tmp_path / "disks")
    pushed: list[tuple[str, int]] = []
    nodes.happens = lambda message: pushed.append((message.metadata.message_type, message.metadata.dst_node_id - 100))
    build(config).start(nodes, record=Record(tmp_path / "nodes", config, "test"))
    summary = read_summary(tmp_path / "nodes")
    assert summary["unseen"] == inline["unseen"]
    unseen = [(kind, client) for kind, client in pushed if client in config.unseen and "query" not in kind]
    assert unseen == [("evaluate", client) for client in config.unseen]
    name = read_manifest(tmp_path / "nodes")["run"]
    for client in config.unseen:  # they keep the model that they will use, and no state of the run
        kept = {path.suffix for path in (tmp_path / "disks" / str(client) / name).iterdir()}
        assert kept == {".safetensors", ".md"}


def test_a_newcomer_that_fails_costs_nothing_else(small: Small, tmp_path: Path) -> None:
    config = small(*KEYS)
    nodes = Nodes(config)
    lost = 100 + config.unseen[0]
    nodes.happens = lambda message: nodes.leave(lost) if message.metadata.message_type == "evaluate" else None
    build(config).start(nodes, record=Record(tmp_path / "run", config, "test"))
    summary = read_summary(tmp_path / "run")
    values = summary["unseen"]["accuracy"]["personal"]["per_client"]
    assert values[0] is None
    assert summary["unseen"]["accuracy"]["personal"]["final"] == values[1]
    assert [failure["client"] for failure in summary["failures"]] == [config.unseen[0]]


def test_algorithms_that_cannot_serve_newcomers_say_why(small: Small) -> None:
    with pytest.raises(ConfigError, match=r"partition.unseen: cfl cannot serve .*: the updates of a client.*do: apfl"):
        build(small(*KEYS, "algorithm=cfl"))
    refused = [n for n in registry.names("algorithm") if registry.find("algorithm", n).server.no_newcomers]
    assert refused == ["apple", "cfl", "fedamp", "fedgc", "heurfedamp", "pfedhn"]


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        (["partition.unseen=1"], "partition.unseen must be at least 0 and below 1, not 1"),
        (["clients=1", "partition.unseen=0.2"], "partition.unseen=0.2 leaves none of clients=1 to train"),
        (["partition.unsen=0.2"], "unknown config key 'partition.unsen'. Did you mean 'partition.unseen'?"),
        (["partition=own", "partition.k=2"], "Choices: partition.unseen"),
        ([*KEYS, "attack=scale", "attack.clients=0,1,2,3,4"], "which partition.unseen keeps out of training"),
    ],
)
def test_impossible_shares_are_refused(keys: list[str], told: str, small: Small) -> None:
    with pytest.raises(ConfigError, match=told):
        build(small(*keys))


def test_a_cluster_by_the_smallest_angle(small: Small, tmp_path: Path) -> None:
    """Two clients of each rotation, and a cluster for every client: a newcomer gets the model of its own rotation."""
    keys = ("partition=feature-shift", "clients=8", "partition.unseen=0.25", "rounds=1", "algorithm=pacfl", "seed=1")
    config = small(*keys, "pacfl.beta=-1")
    strategy = build(config)
    strategy.start(Nodes(config))
    server, state = strategy.server, strategy.state
    for client in config.unseen:
        model = server.newcomer(state, client).model
        clusters = [state.models[state.members[row]].model is model for row in range(len(server.fleet))]
        (nearest,) = [c.id for c, own in zip(server.fleet.clients, clusters, strict=True) if own]
        assert nearest // 2 == client // 2


def test_reports_show_them(small: Small, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    summary = run(small(*KEYS), tmp_path / "run")
    assert (
        main(["report", str(tmp_path / "run"), "--json", str(tmp_path / "r.json"), "--html", str(tmp_path / "r.html")])
        == 0
    )
    (row,) = json.loads((tmp_path / "r.json").read_text())
    for kind in ("global", "personal", "local"):
        assert row[f"unseen {kind}"] == pytest.approx(summary["unseen"]["accuracy"][kind]["final"])
    assert "unseen personal" in (tmp_path / "r.html").read_text()
    capsys.readouterr()
    assert main(["partition", "--set", "clients=5", "--set", "partition.unseen=0.4", "--set", "seed=3"]) == 0
    shown = capsys.readouterr().out
    assert all(f"{client} (unseen)" in shown for client in small(*KEYS).unseen)
