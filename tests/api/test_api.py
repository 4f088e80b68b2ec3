"""The Python API: runs from keyword arguments and objects, and what a `Result` gives."""

import inspect
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

import fedsim
from fedsim.api.functions import configuration
from fedsim.api.settings import Settings
from fedsim.config import RunConfig
from fedsim.errors import ConfigError
from fedsim.partitions.split import Labels, Partition, Share
from fedsim.strategies.fedavg import FedAvg

QUICK: dict[str, Any] = {"clients": 3, "model": "mlr", "engine": "inline"}


pytestmark = pytest.mark.usefixtures("own_names")


class Halved(fedsim.LocalSGD):
    """Half of every gradient."""

    def gradient_hook(self, task: Any, down: Any, state: Any) -> Any:
        def halve(parameters: list[nn.Parameter]) -> None:
            for parameter in parameters:
                assert parameter.grad is not None
                parameter.grad.mul_(0.5)

        return halve


class Net(nn.Module):
    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.base = nn.Sequential(nn.Flatten(), nn.Linear(int(np.prod(shape)), 12), nn.ReLU())
        self.head = nn.Linear(12, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.base(x))  # type: ignore[no-any-return]


@dataclass(frozen=True)
class NoKeys:
    pass


def halves(labels: Labels, clients: int, params: NoKeys, rng: np.random.Generator) -> list[Share]:
    train, test = np.arange(len(labels.train)), len(labels.train) + np.arange(len(labels.test))
    return [Share(train[i::clients], test[i::clients]) for i in range(clients)]


def test_keyword_arguments_are_the_configuration_keys() -> None:
    separate = {"algorithm", "dataset", "model", "partition", "out", "resume", "any_version", "sections"}
    keys = {f.name for f in fields(RunConfig)} - separate
    assert set(Settings.__annotations__) == keys
    shown = inspect.signature(fedsim.run).parameters  # what a notebook completes
    assert keys < set(shown)
    assert shown["lr_schedule"].annotation is str
    assert list(shown)[:3] == ["algorithm", "dataset", "model"]
    assert set(fedsim.__all__) <= set(dir(fedsim))


def test_values_become_what_a_configuration_holds() -> None:
    config = configuration(
        {"lr": 0.1, "compile": False, "filters": ["clip"], "partition.alpha": 0.2, "partition": "dirichlet"}
    )
    assert (config.lr, config.compile, config.filters) == (0.1, False, "clip")
    assert config.params("partition").alpha == 0.2


def test_a_script_trains_plots_and_loads_a_personal_model(tmp_path: Path) -> None:
    """The result of a personalized run: the module of a client has the accuracy that the client reported."""
    result = fedsim.run("spfl", "digits", partition="dirichlet", rounds=2, out=tmp_path / "run", **QUICK)
    table = result.accuracy("personal")
    assert list(table.index) == [0, 1, 2]
    assert list(table.columns) == [0, 1, 2]
    assert table.loc[2].mean() == pytest.approx(result.summary["accuracy"]["personal"]["final"])
    result.plot(path=tmp_path / "curve.png")
    assert (tmp_path / "curve.png").stat().st_size > 5000
    assert "worst client" in result._repr_html_()
    assert result.costs["bytes"] == result.summary["bytes_up"] + result.summary["bytes_down"]
    assert result.failures.empty
    with pytest.raises(ConfigError, match=r"unknown kind of model 'persnal'.* Did you mean 'personal'"):
        result.accuracy("persnal")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="client x does not exist: the run has clients 0 to 2"):
        result.model(client="x")  # type: ignore[arg-type]
    for client in range(3):
        assert accuracy_of(result, client) == pytest.approx(table.loc[2, client])


def accuracy_of(result: fedsim.Result, client: int, shared: bool = False) -> float:
    """The accuracy of a client's model, or of the global one, on the client's test data."""
    from fedsim.partitions.client_data import client_data

    data = client_data(result.config, client)
    with torch.inference_mode():
        found = result.model(None if shared else client)(torch.from_numpy(data.x_test)).argmax(1).numpy()
    return float(np.mean(found == data.y_test))


def test_a_model_with_another_predictor_and_the_global_model(tmp_path: Path) -> None:
    proto = fedsim.run("fedproto", rounds=1, out=tmp_path / "a", **QUICK)
    assert accuracy_of(proto, 1) == pytest.approx(proto.accuracy().loc[1, 1])
    with pytest.raises(ConfigError, match=r"has no global model.*client=0"):
        proto.model()
    plain = fedsim.run("fedavg", rounds=1, out=tmp_path / "b", **QUICK)
    assert accuracy_of(plain, 2, shared=True) == pytest.approx(plain.accuracy("global").loc[1, 2])
    with pytest.raises(ConfigError, match="clients 0 to 2"):
        plain.model(client=3)


def objects(tmp_path: Path, engine: str) -> fedsim.Result:
    x, y = load_digits(return_X_y=True)
    method = fedsim.Algorithm("halved", "half steps", NoKeys, FedAvg, Halved)
    split = Partition("every-other", "in turn", NoKeys, halves)
    keys: dict[str, Any] = {"rounds": 2, "clients": 2, "out": tmp_path / engine, "engine": engine}
    return fedsim.run(method, (x.astype(np.float32) / 16, y), model=Net, partition=split, **keys)


def test_own_objects_without_entry_points(tmp_path: Path) -> None:
    result = objects(tmp_path, "inline")
    assert isinstance(result.model(), Net)
    half, whole = ({"rounds": 1, "clients": 2, "engine": "inline", "lr": lr} for lr in (0.1, 0.05))
    method = fedsim.Algorithm("halved", "half steps", NoKeys, FedAvg, Halved)
    found = [fedsim.run(a, out=tmp_path / a_, **keys) for a, a_, keys in ((method, "h", half), ("fedavg", "w", whole))]
    weights = [np.concatenate([p.detach().numpy().ravel() for p in run.model().parameters()]) for run in found]
    np.testing.assert_allclose(*weights, rtol=1e-5, atol=1e-7)


@pytest.mark.system
def test_own_objects_reach_the_workers_of_ray(tmp_path: Path) -> None:
    shas = {engine: objects(tmp_path, engine).summary["weights_sha256"] for engine in ("inline", "ray")}
    assert shas["ray"] == shas["inline"]


def test_an_object_may_not_take_the_name_of_a_built_in_algorithm() -> None:
    method = fedsim.Algorithm("fedavg", "mine", NoKeys, FedAvg)
    with pytest.raises(ConfigError, match="choose another name"):
        fedsim.run(method)


@pytest.mark.parametrize(
    ("dataset", "said"),
    [
        ((1, 2, 3), r"not 3 arrays"),
        (([[1.0]] * 3, [0, 1]), "3 samples and y has 2"),
        (([[1], [1, 2]], [0, 1]), "rows of equal length"),
        (3, "a name, a file or arrays, not 3"),
    ],
)
def test_bad_arrays_are_refused(dataset: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        fedsim.run(dataset=dataset, **QUICK)


def test_a_callback_ends_a_run(tmp_path: Path) -> None:
    seen: list[int] = []

    def on_step(step: fedsim.Step) -> bool:
        seen.append(step.number)
        assert 0 <= step.metrics["personal"]["accuracy"] <= 1
        return step.number == 2

    result = fedsim.run(rounds=9, on_step=on_step, out=tmp_path / "run", **QUICK)
    assert seen == [1, 2]
    assert (result.status, list(result.accuracy().index)) == ("finished", [0, 1, 2])


def test_early_stopping_waits_for_an_improvement(tmp_path: Path) -> None:
    """Without learning nothing improves. A round is evaluated while clients train in the next one, so the run ends one
    round after the last evaluation that was waited for."""
    stop = fedsim.EarlyStopping(patience=2)
    result = fedsim.run(rounds=9, local_epochs=0, callbacks=[stop], out=tmp_path / "run", **QUICK)
    assert list(result.accuracy().index) == [0, 1, 2, 3]
    with pytest.raises(ConfigError, match="accuracy, loss"):
        fedsim.run(callbacks=[fedsim.EarlyStopping("f1")], out=tmp_path / "other", **QUICK)


def test_an_interrupted_run_is_resumed(tmp_path: Path) -> None:
    def interrupt(step: fedsim.Step) -> None:
        if step.number == 2:
            raise KeyboardInterrupt

    keys = {**QUICK, "rounds": 3, "checkpoint_every": 1}
    with pytest.raises(KeyboardInterrupt):
        fedsim.run(out=tmp_path / "run", on_step=interrupt, **keys)
    assert fedsim.load(tmp_path / "run").status == "interrupted"
    with pytest.raises(ConfigError, match="is interrupted"):
        fedsim.load(tmp_path / "run").model()
    whole = fedsim.run(out=tmp_path / "whole", **keys)
    assert fedsim.resume(tmp_path / "run").summary["weights_sha256"] == whole.summary["weights_sha256"]


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is not the folder of a run"):
        fedsim.load(tmp_path)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: fedsim.run(set="lr=1"), "set must be a mapping from keys to values"),
        (lambda: fedsim.run(model=int), r"model=int is a class, but not a network"),
        (lambda: fedsim.run(seed="one"), "seed must be of type int, not 'one'"),
        (lambda: fedsim.run(roundz=1), "Did you mean 'rounds'"),
        (lambda: fedsim.run(engine="rey"), "Did you mean 'ray'"),
        (lambda: fedsim.sweep(grid=["seed"]), "grid must be a mapping"),
        (lambda: fedsim.sweep(grid={"seed": 3}), "grid: seed needs a list of values, not 3"),
    ],
)
def test_slips_are_answered_before_anything_starts(call: Callable[[], Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        call()


@pytest.mark.system
def test_a_sweep_over_a_grid(tmp_path: Path) -> None:
    grid = {"algorithm": ["fedavg", "local"], "seed": [0, 1]}
    results = fedsim.sweep(grid=grid, rounds=1, clients=2, model="mlr", out=tmp_path)
    assert sorted(results) == ["fedavg-seed=0", "fedavg-seed=1", "local-seed=0", "local-seed=1"]
    assert {run.status for run in results.values()} == {"finished"}
    with pytest.raises(ConfigError, match="either a file or a grid"):
        fedsim.sweep()


def test_the_import_is_light() -> None:
    code = "import sys, fedsim; print([m for m in ('torch', 'ray', 'flwr', 'pandas', 'numpy') if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_the_examples_of_the_documentation_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All but the sweep, which has a test of its own."""
    page = (Path(__file__).parents[2] / "docs" / "python.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    monkeypatch.chdir(tmp_path)
    for block in blocks:
        if "fedsim.sweep" not in block:
            exec(compile(block, "docs/python.md", "exec"), {"__name__": "example"})
    assert len(blocks) == 4
    assert (tmp_path / "spfl.png").exists()
