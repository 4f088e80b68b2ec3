"""Clients with models of different architectures: who has which, which algorithms allow it, and what is kept of it."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open

from fedsim import registry
from fedsim.algorithm import Algorithm
from fedsim.cli import main
from fedsim.clients.task import TorchTask
from fedsim.config import NoParams, RunConfig, read
from fedsim.engine.inline import InlineGrid
from fedsim.engine.launch import launch
from fedsim.errors import ConfigError, FedsimError
from fedsim.partitions.client_data import client_data
from fedsim.report.runs import RunResult
from fedsim.results import checkpoint as checkpoints
from fedsim.results.record import Record, read_manifest, read_summary
from fedsim.server.app import build
from fedsim.server.roll_call import roll_call
from fedsim.strategies.fedavg import FedAvg
from tests.nodes import Nodes

Small = Callable[..., RunConfig]
Finished = Callable[..., dict[str, Any]]
ANY = [name for name in registry.names("algorithm") if registry.find("algorithm", name).common != "model"]
EQUAL_WIDTH = {"fedpcl": "cnn,cnn-bn", "fedproto": "cnn,cnn-bn"}  # others: mlp,mlr


def models_for(name: str) -> str:
    return EQUAL_WIDTH.get(name, "mlp,mlr")


def shared(name: str) -> list[str]:
    """The network in common, of algorithms that have one."""
    return [f"{name}.shared=mlp"] if registry.find("algorithm", name).common == "shared" else []


def test_a_list_goes_round_the_clients_and_single_clients_have_their_own() -> None:
    config = read(None, ["clients=5", "model=mlp, cnn,mlr", "model.4=cnn-bn"])
    assert [config.model_of(client) for client in range(5)] == ["mlp", "cnn", "mlr", "mlp", "cnn-bn"]
    assert config.models == ["mlp", "cnn", "mlr", "cnn-bn"]
    assert RunConfig().models == ["mlp"]


def test_a_table_names_models_by_client(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text('clients = 3\n[model]\n0 = "cnn"\n2 = "mlr"\n')
    assert [read(file).model_of(client) for client in range(3)] == ["cnn", "mlp", "mlr"]
    file.write_text('model = ["mlr", "cnn"]\n')
    assert read(file).model_of(3) == "cnn"


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("model=mlp,cmn", "unknown model 'cmn'. Did you mean 'cnn'?"),
        ("model=", "unknown model ''"),
        ("model.2=cmn", "unknown model 'cmn'. Did you mean 'cnn'?"),
        ("model.10=cnn", "model.10 names no client: the run has clients 0 to 9"),
        ("model.x=cnn", "model.x names no client"),
    ],
)
def test_unknown_models_and_clients_are_refused(setting: str, message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        read(None, [setting])


def test_algorithms_that_exchange_weights_refuse_and_name_those_that_do_not(small: Small) -> None:
    with pytest.raises(
        ConfigError, match=r"models mlp, mlr, but fedavg exchanges weights.*: .*fedproto.*local"
    ) as told:
        build(small("model=mlr,mlp"))
    assert set(re.split(r"[:,] ", str(told.value).split("different models")[1])[1:]) == set(ANY)
    build(small("model=mlr,mlr"))


def test_the_roll_call_knows_the_layout_of_every_client(small: Small) -> None:
    config = small("algorithm=local", "model=mlr,mlp")
    fleet = roll_call(InlineGrid(config), config)
    assert [client.model for client in fleet.clients] == ["mlr", "mlp", "mlr", "mlp"]
    assert [fleet.layout_of(client).features for client in range(4)] == [64, 200, 64, 200]
    assert (fleet.layout.size, fleet.initial.nbytes) == (0, 0)
    same = small("algorithm=local")
    fleet = roll_call(InlineGrid(same), same)
    assert fleet.layout_of(3) == fleet.layout
    assert fleet.initial.parameters.size == fleet.layout.size == 650


@pytest.mark.parametrize("name", ANY)
def test_a_client_trains_its_own_model(name: str, small: Small, finished: Finished, tmp_path: Path) -> None:
    names = models_for(name).split(",")
    config = small(f"algorithm={name}", f"model={','.join(names)}", "local-steps=1", *shared(name))
    summary = finished(config)
    assert summary["failures"] == []
    assert None not in summary["accuracy"]["personal"]["per_client"]
    manifest = read_manifest(tmp_path / "run")
    assert [row["model"] for row in manifest["clients"]] == [*names, *names]
    sizes = {m: sum(int(np.prod(t[1])) for t in tree["parameters"]) for m, tree in manifest["layouts"].items()}
    states = checkpoints.newest(tmp_path / "run", *state_of(config)).client_states  # type: ignore[union-attr]
    kept = {client: state.weights["model"].parameters.size for client, state in states.items()}
    assert kept == {client: sizes[names[client % 2]] for client in range(4)}


def state_of(config: RunConfig) -> tuple[type[Any], Any]:
    server = build(config).server
    fleet = roll_call(InlineGrid(config), config)
    server.attach(fleet)
    state = server.init(fleet.initial, fleet)
    return type(state), state


@pytest.mark.parametrize("name", ANY)
def test_it_resumes_with_the_models_it_began_with(name: str, small: Small, tmp_path: Path) -> None:
    config = small(f"algorithm={name}", f"model={models_for(name)}", "local-steps=1", "rounds=3", *shared(name))
    launch(config.replace(out=str(tmp_path / "whole")), "inline")
    stopped = config.replace(out=str(tmp_path / "stopped"))

    class Stop(Exception):
        pass

    def stop(folder: Path, point: Any) -> None:
        save(folder, point)
        if point.step == 2:
            raise Stop

    save, patch = checkpoints.save, pytest.MonkeyPatch()
    patch.setattr(checkpoints, "save", stop)
    with pytest.raises(Stop):
        launch(stopped, "inline")
    patch.undo()
    launch(stopped.replace(resume=True), "inline")
    whole, again = (read_summary(tmp_path / run)["weights_sha256"] for run in ("whole", "stopped"))
    assert again == whole


def test_clients_of_one_architecture_are_bitwise_those_of_a_run_with_that_model_alone(
    small: Small, finished: Finished
) -> None:
    mixed = finished(small("algorithm=local", "model=mlr,mlp"), name="mixed")
    alone = [finished(small("algorithm=local", f"model={m}"), name=m) for m in ("mlr", "mlp")]
    for client, loss in enumerate(mixed["metrics"]["loss"]["personal"]["per_client"]):
        assert loss == alone[client % 2]["metrics"]["loss"]["personal"]["per_client"][client]


def test_fedproto_refuses_models_of_different_widths(small: Small, finished: Finished) -> None:
    with pytest.raises(ConfigError, match=r"equally many: .*ml[pr] has \d+, ml[pr] has \d+"):
        finished(small("algorithm=fedproto", "model=mlr,mlp"))


def run_on_nodes(config: RunConfig, folder: Path, own: Callable[[int], dict[str, str]]) -> dict[str, Any]:
    grid = Nodes(config, folder)
    grid.node_config = own
    build(config).start(grid, record=Record(folder / "run", config, "test"))
    return read_summary(folder / "run")


def test_a_node_may_name_its_own_model_and_keeps_it_as_a_file(small: Small, tmp_path: Path) -> None:
    config = small("algorithm=local", "clients=2")
    run_on_nodes(config, tmp_path, lambda client: {"model": "mlp"} if client else {})
    manifest = read_manifest(tmp_path / "run")
    assert [row["model"] for row in manifest["clients"]] == ["mlr", "mlp"]
    for client, (name, tensors) in enumerate([("mlr", 2), ("mlp", 6)]):
        base = tmp_path / str(client) / manifest["run"] / f"client-{client:04d}"
        card = base.with_suffix(".md").read_text()
        assert f"| model | {name} |" in card
        assert f'build_model("{name}"' in card
        with safe_open(base.with_suffix(".safetensors"), "numpy") as file:
            assert len(file.keys()) == tensors


def test_a_node_with_another_model_is_refused_where_weights_travel(small: Small, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="models mlp, mlr, but fedavg exchanges weights"):
        run_on_nodes(small(), tmp_path, lambda client: {"model": "mlp"} if client == 2 else {})
    with pytest.raises(FedsimError, match="unknown model 'cmn'"):
        run_on_nodes(small(), tmp_path, lambda client: {"model": "cmn"})


def test_a_run_is_not_resumed_with_another_model_of_a_client(small: Small, tmp_path: Path) -> None:
    config = small("algorithm=local", "clients=2")
    run_on_nodes(config, tmp_path, lambda client: {})
    again = config.replace(resume=True, rounds=3)
    with pytest.raises(ConfigError, match=r"client 1 has other data .* model mlp instead of mlr"):
        run_on_nodes(again, tmp_path, lambda client: {"model": "mlp"} if client else {})


def test_reports_show_the_models_and_their_results(
    small: Small, finished: Finished, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    summary = finished(small("algorithm=local", "model=mlr,mlp"))
    run = RunResult.load(tmp_path / "run")
    assert run.models == {"mlr": [0, 2], "mlp": [1, 3]}
    assert (run.parameters("mlr"), run.parameters("mlp")) == (650, 55_210)
    assert main(["report", str(tmp_path / "run"), "--html", str(tmp_path / "page.html")]) == 0
    told = capsys.readouterr().out
    ends = summary["accuracy"]["personal"]["per_client"]
    row = r"local\s+│\s+{:.2f}\s+│\s+{:.2f}\s".format(*(100 * np.mean(ends[place::2]) for place in (0, 1)))
    assert re.search(r"mlr \(650\)\s+┃\s+mlp \(55,210\)", told)
    assert re.search(row, told)
    assert '"mlp"' in (tmp_path / "page.html").read_text()


SHARES = Algorithm(
    "shares",
    "a shared network beside private models",
    NoParams,
    FedAvg,
    networks={"shared": "fedsim.clients.models:MLR"},
    common="shared",
)


def test_a_network_of_the_algorithm_may_be_what_clients_have_in_common(
    small: Small, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(registry.providers("algorithm"), "shares", "tests.server.test_different_models:SHARES")
    config = small("algorithm=shares", "model=mlp,cnn")
    build(config)
    fleet = roll_call(InlineGrid(config), config)
    assert fleet.layout.size == fleet.initial.parameters.size == 650
    assert [fleet.layout_of(client).features for client in (0, 1)] == [200, 512]
    task = TorchTask(config.with_model("mlp"), client_data(config, 0), 10)
    assert np.array_equal(task.initial("shared").parameters, fleet.initial.parameters)
