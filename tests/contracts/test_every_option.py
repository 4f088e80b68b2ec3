"""Server optimizers and fine-tuning: what they do under every registered algorithm that allows them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedsim import registry
from fedsim.config import RunConfig
from fedsim.errors import ConfigError
from fedsim.server import app
from tests.contracts.short import PHASES
from tests.resuming import check_resuming

ALGORITHMS = registry.names("algorithm")
SERVERS = {name: registry.find("algorithm", name).server for name in ALGORITHMS}
OPTIMIZING = [name for name in ALGORITHMS if SERVERS[name].optimizes]
TUNED = [name for name in ALGORITHMS if not SERVERS[name].no_finetune]
MODELS = dict.fromkeys(("fedbabu", "fedper", "fedrep"), "mlp")  # mlr has no base, which they share
Small, Finished = Callable[..., RunConfig], Callable[..., dict[str, Any]]


def chosen(name: str) -> list[str]:
    return [f"algorithm={name}", f"model={MODELS.get(name, 'mlr')}", "local-steps=2", *PHASES]


@pytest.mark.parametrize("name", OPTIMIZING)
def test_another_server_optimizer_makes_another_model_and_a_plain_step_the_same(
    name: str, small: Small, finished: Finished
) -> None:
    model = ["model=cnn-bn"] if name == "fedbn" else []
    keys = [*chosen(name), *model]
    ways = {"auto": [], "sgd": ["server-optimizer=sgd"], "yogi": ["server-optimizer=yogi", "server-optimizer.lr=0.01"]}
    found = {way: finished(small(*keys, *more), name=way) for way, more in ways.items()}
    assert found["yogi"]["weights_sha256"] not in (found["auto"]["weights_sha256"], found["sgd"]["weights_sha256"])
    plain = registry.find("algorithm", name).server_optimizer == "sgd"
    assert (found["sgd"]["weights_sha256"] == found["auto"]["weights_sha256"]) == plain
    assert not any(summary["failures"] for summary in found.values())


@pytest.mark.parametrize("optimizer", ["momentum", "adam"])
@pytest.mark.parametrize("name", ["fedavg", "fedprox", "scaffold", "fedper", "lga", "pfedme"])
def test_moments_are_part_of_a_checkpoint(
    name: str, optimizer: str, small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stale = ["pace=window", "stragglers=periodic", "stragglers.count=3"]
    config = small(*chosen(name), *stale, "rounds=5", f"server-optimizer={optimizer}", "server-optimizer.lr=0.1")
    check_resuming(config, tmp_path, monkeypatch)


@pytest.mark.parametrize("name", TUNED)
def test_fine_tuning_changes_what_clients_use_and_nothing_else(name: str, small: Small, finished: Finished) -> None:
    runs = [
        finished(small(*chosen(name), f"finetune={length}", "finetune.unit=steps", *keys), name=f"{length}{keys}")
        for length, keys in ((0, []), (7, []), (7, ["finetune.part=head", "finetune.lr=0.3"]))
    ]
    plain, tuned, head = runs
    assert plain["weights_sha256"] == tuned["weights_sha256"] == head["weights_sha256"]
    assert plain["metrics"]["loss"]["global"] == tuned["metrics"]["loss"]["global"]
    assert plain["bytes_down"] == tuned["bytes_down"]
    losses = [run["metrics"]["loss"]["personal"]["per_client"] for run in runs]
    assert all(a != b for a, b in ((losses[0], losses[1]), (losses[0], losses[2]), (losses[1], losses[2])))
    assert not any(run["failures"] for run in runs)


@pytest.mark.parametrize("name", ["fedavg", "fedprox", "scaffold", "fedasync"])
def test_tuned_clients_are_fedavg_fts(name: str, small: Small, finished: Finished) -> None:
    """Of the same global model, with the same draws: `local` is as long as local training, as FedAvg-FT is by default."""
    keys = ["rounds=1", "pace=synchronous", "clients=1", "partition=iid"]
    same = {"fedprox": ["fedprox.mu=0"], "fedasync": ["fedasync.alpha=1", "fedasync.rho=0"]}.get(name, [])
    ours = finished(small(f"algorithm={name}", "finetune=local", *same, *keys), name="ours")
    tuned = finished(small("algorithm=fedavg-ft", *keys), name="tuned")
    assert ours["metrics"]["loss"]["personal"]["final"] == pytest.approx(tuned["metrics"]["loss"]["personal"]["final"])


@pytest.mark.parametrize("name", sorted(set(ALGORITHMS) - set(TUNED)))
def test_algorithms_without_a_global_model_refuse_fine_tuning(name: str, small: Small) -> None:
    why = SERVERS[name].no_finetune
    told = rf"finetune=3: {name} cannot be fine-tuned .*: {why}\. Algorithms that do: .*fedavg, .*scaffold"
    with pytest.raises(ConfigError, match=told):
        app.build(small(f"algorithm={name}", "finetune=3"))
    app.build(small(f"algorithm={name}", "finetune=0"))
