"""Sageflow by hand, on models that carry their own judgement (value, public loss, public entropy); limits; filter."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fedsim.config import RunConfig
from fedsim.engine.launch import launch
from fedsim.errors import ConfigError
from fedsim.layout import Layout, Tensor
from fedsim.report.figures import judged_figure
from fedsim.report.runs import RunResult
from fedsim.results.record import read_events
from fedsim.server.app import build
from fedsim.strategies.sageflow import State
from fedsim.weights import Weights
from tests.equations import halves
from tests.equations.halves import arrival, vec

Small, Finished = Callable[..., RunConfig], Callable[..., dict[str, Any]]
SIZES = [10, 20, 30, 40]
LAYOUT = Layout((Tensor("head.w", (3,), "head"),), (Tensor("norm.mean", (1,), "norm"),))
PLAIN = ["sageflow.entropy=inf", "sageflow.delta=0", "sageflow.lam=0", "sageflow.gamma=1"]


def server(**params: Any) -> Any:
    strategy = halves.server("sageflow", SIZES, LAYOUT, **params)

    def test(model: Weights) -> dict[str, float]:
        _, loss, entropy = model.parameters.tolist()
        return {"loss": loss, "entropy": entropy}

    strategy._public_task = SimpleNamespace(test=test)
    return strategy


def sent(client: int, value: float, loss: float, entropy: float, step: int = 0, staleness: int = 0) -> Any:
    """The result of a client whose model is (value, loss, entropy) and whose base is zero."""
    return arrival(client, SIZES[client], step, staleness, delta=vec(value, loss, entropy), buffers=vec(value))


def state(step: int = 0, value: float = 0.0) -> State:
    """At this step, with the model (value, 0, 0); all models before were zero."""
    return State(Weights(vec(value, 0, 0), vec(value)), step, {i: vec(0, 0, 0) for i in range(step)})


def after(strategy: Any, before: State, *arrivals: Any) -> list[float]:
    """Value and buffer of the next global model."""
    found = strategy.update(before, arrivals)
    assert found.step == before.step + 1
    return [float(found.model.parameters[0]), float(found.model.buffers[0])]


def test_the_filter_and_the_weights_of_a_group() -> None:
    strategy = server()
    three = sent(0, 1, 1, 0.5), sent(1, 4, 4, 0.9), sent(2, 100, 0.1, 1.0)
    # 10 / 1 and 20 / 4: two thirds and one third; the third model is exactly at the limit
    assert after(strategy, state(), *three) == pytest.approx([2, 2])
    found = strategy.result_metrics(strategy.update(state(), three))
    assert [row["share"] for row in found] == pytest.approx([2 / 3, 1 / 3, 0])
    assert [row["public-loss"] for row in found] == pytest.approx([1, 4, 0.1])
    assert [row["public-entropy"] for row in found] == pytest.approx([0.5, 0.9, 1.0])
    assert after(server(delta=2), state(), *three) == pytest.approx([(10 + 4 * 1.25) / 11.25] * 2)


def test_groups_of_staleness_0_1_and_2() -> None:
    strategy, weights = server(delta=0), np.array([1, 0.7071, 0.5774])
    three = [sent(0, value, 1, 0, step, 2 - step) for value, step in ((1, 2), (2, 1), (5, 0))]
    assert after(strategy, state(2), *three) == pytest.approx([weights @ [1, 2, 5] / weights.sum()] * 2, abs=1e-4)
    unequal = sent(0, 1, 1, 0, 1), sent(1, 4, 1, 0, 0, 1), sent(2, 4, 1, 0, 0, 1)
    assert after(server(delta=0, lam=0), state(1), *unequal) == pytest.approx([(10 + 50 * 4) / 60] * 2)


def test_stale_models_are_mixed_not_their_updates() -> None:
    """w = 8, a stale model is 2: half of the way to the mean of the models 2 and 10."""
    before = state(1, value=8)
    fresh = arrival(0, 10, 1, delta=vec(2, 1, 0), buffers=vec(10))
    stale = arrival(1, 10, 0, 1, delta=vec(2, 1, 0), buffers=vec(2))
    assert after(server(lam=0, gamma="0.5"), before, fresh, stale) == pytest.approx([7, 7])


def test_gamma_is_halved_after_every_so_many_steps() -> None:
    one = arrival(0, 10, 0, delta=vec(1, 1, 0), buffers=vec(1))
    strategy = server(gamma="1:0.5:15")
    for step, gamma in ((0, 1), (14, 1), (15, 0.5), (44, 0.25)):
        now = arrival(0, 10, step, delta=one.uplink.weights["delta"].parameters, buffers=vec(1))
        assert after(strategy, state(step), now) == pytest.approx([gamma, gamma])


def test_a_group_that_the_filter_would_empty_is_weighted_by_loss_alone(caplog: pytest.LogCaptureFixture) -> None:
    unsure = sent(0, 1, 1, 2, 0, 1), sent(1, 4, 2, 2.3, 0, 1)
    sure = sent(2, 10, 1, 0, 1)
    with caplog.at_level("INFO", "fedsim"):
        kept = after(server(lam=0), state(1), *unsure, sure)
    assert kept == pytest.approx([(0.5 * 1 + 0.5 * 4) * 30 / 60 + 10 * 30 / 60] * 2)
    assert "all results that started from round 1 (2) have an entropy of 1 or more" in caplog.text
    assert after(server(emptied="drop"), state(1), *unsure, sure) == pytest.approx([10, 10])


def test_if_no_group_is_left_the_model_stays(caplog: pytest.LogCaptureFixture) -> None:
    before = state(1, value=8)
    assert after(server(emptied="drop"), before, sent(0, 1, 1, 2, 0, 1), sent(1, 1, 1, 2, 1)) == [8, 8]
    assert "round 2: no result passed the filter" in caplog.text


@pytest.mark.parametrize("bad", [(1, np.nan, 0.5), (1, np.inf, 0.5), (1, 1, np.nan)])
def test_a_model_that_cannot_be_judged_is_left_out(bad: tuple[float, float, float]) -> None:
    strategy = server(entropy=np.inf)
    judgement = iter([dict(zip(("value", "loss", "entropy"), bad, strict=True)), {"loss": 1.0, "entropy": 0.5}])
    strategy._public_task.test = lambda model: next(judgement)
    made = strategy.update(state(), [sent(0, 100, 1, 1), sent(1, 4, 1, 1)])
    assert made.model.parameters[0] == 4
    assert all(np.isfinite(list(row.values())).all() for row in made.judged)


def test_losses_of_zero_and_of_any_size_count() -> None:
    assert after(server(), state(), sent(0, 1, 0, 0), sent(1, 4, 1, 0)) == pytest.approx([1, 1])
    assert after(server(delta=50), state(), sent(0, 1, 1e30, 0), sent(1, 4, 1e-30, 0)) == pytest.approx([4, 4])


def test_groups_go_through_the_runs_aggregator() -> None:
    strategy = server(entropy=np.inf, delta=0, lam=0)
    strategy.config = strategy.config.replace(aggregator="median")
    three = [sent(i, value, 1, 0, 1) for i, value in enumerate((1, 2, 1e6))]
    late = sent(3, 12, 1, 0, 0, 1)
    assert after(strategy, state(1), *three, late) == pytest.approx([2 * 0.6 + 12 * 0.4] * 2)


@pytest.mark.parametrize("model", ["mlr", "cnn-bn"])
def test_without_its_parts_it_is_fedavg_bit_by_bit(model: str, small: Small, finished: Finished) -> None:
    keys = [f"model={model}", "local-steps=2", "public=60"]
    ours = finished(small("algorithm=sageflow", *PLAIN, *keys), name="ours")
    assert ours["weights_sha256"] == finished(small(*keys), name="fedavg")["weights_sha256"]


def test_without_its_parts_stale_results_count_as_fedavgs(small: Small, tmp_path: Path) -> None:
    keys = ["public=60", "stragglers=uniform-rounds", "pace=periodic", "rounds=6"]
    for name, more in (("sageflow", PLAIN), ("fedavg", [])):
        launch(small(f"algorithm={name}", *more, *keys, f"out={tmp_path / name}"), "inline")
    assert any(
        row["staleness"] for e in read_events(tmp_path / "fedavg") for row in e["clients"] if e["kind"] == "step"
    )
    ours, theirs = (np.load(tmp_path / name / "model.npz") for name in ("sageflow", "fedavg"))
    for name in theirs:
        np.testing.assert_allclose(ours[name], theirs[name], atol=1e-6)


def test_scaled_models_are_filtered_and_flipped_labels_weigh_little(small: Small, tmp_path: Path) -> None:
    keys = [
        "clients=8",
        "partition=iid",
        "model=mlp",
        "batch-size=16",
        "momentum=0.9",
        "local-epochs=4",
        "algorithm=sageflow",
    ]
    rows = {}
    for attack in ("scale", "label-flip"):
        out = tmp_path / attack
        who = ["attack.clients=0,5", "attack.from-round=3", "rounds=5"]
        launch(small(*keys, f"attack={attack}", *who, f"out={out}"), "inline")
        events = [event for event in read_events(out) if event["kind"] == "step"]
        rows[attack] = [row for event in events[2:] for row in event["clients"]]
    assert judged_figure(RunResult.load(tmp_path / "scale"), tmp_path / "judged.png")
    assert (tmp_path / "judged.png").stat().st_size > 10_000
    malicious = [row for row in rows["scale"] if row["malicious"]]
    assert {row["share"] for row in malicious} == {0.0}
    assert min(row["public-entropy"] for row in malicious) > 2
    assert all(row["share"] > 0 for row in rows["scale"] if not row["malicious"])
    flipped, honest = ([row for row in rows["label-flip"] if row["malicious"] is bad] for bad in (True, False))
    assert max(row["public-entropy"] for row in flipped) < 1
    assert min(r["public-loss"] for r in flipped) > 2 * max(r["public-loss"] for r in honest)
    assert max(r["share"] for r in flipped) < min(r["share"] for r in honest) / 2


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (["sageflow.gamma=2"], "sageflow.gamma is 2: its start and its factor must be at most 1"),
        (["sageflow.gamma=often"], "sageflow.gamma cannot be 'often'. Choices: a number above 0, START:FACTOR:ROUNDS"),
        (["sageflow.entropy=0"], "sageflow.entropy must be above 0"),
        (["sageflow.emptied=wait"], "unknown sageflow.emptied 'wait'.*Choices: drop, keep"),
        (["public=0"], "sageflow needs public data: set public=N"),
    ],
)
def test_what_cannot_work_is_refused(keys: list[str], message: str, small: Small) -> None:
    with pytest.raises(ConfigError, match=message):
        build(small("algorithm=sageflow", *keys))
