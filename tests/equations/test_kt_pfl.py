"""KT-pFL: equations (1) to (4) by hand, the coefficients on the simplex, and local training as its limit."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsim import registry
from fedsim.clients.task import TorchTask
from fedsim.config import RunConfig
from fedsim.errors import ConfigError
from fedsim.partitions.client_data import client_data
from fedsim.payload import Arrival, ClientState, Downlink, Uplink
from fedsim.report.matrix_figure import load_matrices, matrix_figure
from fedsim.report.runs import RunResult
from fedsim.server.app import build
from fedsim.server.fleet import Client, Fleet
from fedsim.strategies.simplex import onto_simplex
from tests.equations.halves import SMALL, params_of, started

Small = Callable[..., RunConfig]
Finished = Callable[..., dict[str, Any]]
S = ([[0.8, 0.2]], [[0.5, 0.5]])  # predictions of two clients for one public sample


def server_of(sizes: list[int], samples: int = 1, classes: int = 2, **params: object) -> Any:
    config = RunConfig(clients=len(sizes), public=samples)
    made = registry.find("algorithm", "kt-pfl").server(params_of("kt-pfl", **params), config)
    clients = [Client(i, i, size, 1, (1,) * classes) for i, size in enumerate(sizes)]
    made.attach(Fleet(clients, SMALL, None))  # type: ignore[arg-type]
    return made


def arrived(client: int, predictions: Any) -> Arrival:
    return Arrival(client, 0, Uplink(1, arrays={"predictions": np.float32(predictions)}), 0.0, 1.0)


def softmax(z: Any) -> Any:
    powers = np.exp(z - z.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def test_equal_coefficients_give_everyone_the_mean() -> None:
    server = server_of([1, 1], lam=0.0)
    state = started(server, 0, 0, 0)
    assert dict(server.instruct(state, 0, train=True).arrays) == {}  # nothing was heard
    state = server.update(state, [arrived(i, s) for i, s in enumerate(S)])
    for client in (0, 1):
        down = server.instruct(state, client, train=True)
        np.testing.assert_allclose(down.arrays["targets"], [[0.65, 0.35]], rtol=1e-6)  # (1), as FedMD
        assert (dict(down.weights), down.shared) == ({}, False)
    assert server.instruct(state, 0, train=False).nbytes == 0
    assert np.array_equal(state.coefficients, np.full((2, 2), 0.5))  # lambda = 0: only the pull to 1/N, already there


def test_targets_follow_the_coefficients_and_leave_out_who_was_never_heard() -> None:
    server = server_of([1, 1, 1], coef_lr=0.0)
    state = server.update(started(server, 0, 0, 0), [arrived(i, s) for i, s in enumerate(S)])
    state.coefficients[0] = [0.2, 0.6, 0.2]
    target = server.instruct(state, 0, train=True).arrays["targets"]
    np.testing.assert_allclose(target, [[0.25 * 0.8 + 0.75 * 0.5, 0.25 * 0.2 + 0.75 * 0.5]], rtol=1e-6)
    state.coefficients[0] = [0, 0, 1]
    np.testing.assert_allclose(server.instruct(state, 0, train=True).arrays["targets"], [[0.65, 0.35]], rtol=1e-6)
    state = server.update(state, [arrived(2, [[0.0, 1.0]])])  # clients 0 and 1 are absent: their last ones count
    np.testing.assert_allclose(server.instruct(state, 0, train=True).arrays["targets"], [[0.0, 1.0]], rtol=1e-6)


def test_a_step_of_the_coefficients_by_hand() -> None:
    """q = (.65, .35). Client 0: slope ln(q/s) + 1 = (.79236, 1.55962), gradient (.94581, 1.17599), half of it by D_n/D;
    (.5 - .47291, .5 - .58799) lies .53044 a coordinate below the simplex."""
    server = server_of([1, 1], coef_lr=1.0, rho=0.0)
    state = server.update(started(server, 0, 0, 0), [arrived(i, s) for i, s in enumerate(S)])
    np.testing.assert_allclose(state.coefficients[0], [0.55754, 0.44246], atol=1e-4)  # (4)
    np.testing.assert_allclose(state.coefficients.sum(axis=1), 1)


@pytest.mark.parametrize(("rule", "samples"), [("kl", 3), ("official", 5)])
def test_the_gradient_is_that_of_the_distance(rule: str, samples: int) -> None:
    draw = np.random.default_rng(0)
    server = server_of([1, 2, 3], samples, 4, coef_update=rule)
    state = started(server, 0, 0, 0)
    s = softmax(draw.standard_normal((3 * samples, 4))).reshape(3, samples, 4)
    state.predictions[:], state.heard[:] = s.reshape(3, -1), True
    state.coefficients[:] = [[0.2, 0.5, 0.3], [0.1, 0.1, 0.8], [0.4, 0.3, 0.3]]

    def distance(c: Any, row: int) -> float:
        q = np.tensordot(c, s, 1)
        if rule == "official":
            return float(np.square(q - s[row]).mean())
        return float((q * np.log(q / s[row])).sum(axis=1).mean())  # KL(teacher || student)

    found = server._gradient(state, [0, 2])
    for place, row in enumerate((0, 2)):
        c, step = state.coefficients[row], 1e-5 * np.eye(3)
        wanted = [(distance(c + e, row) - distance(c - e, row)) / 2e-5 for e in step]
        np.testing.assert_allclose(found[place], wanted, rtol=1e-4)


def test_the_whole_step_weighs_by_samples_and_pulls_to_equal_coefficients() -> None:
    server = server_of([1, 3], coef_lr=0.2, rho=0.5, lam=2.0)
    state = started(server, 0, 0, 0)
    state.coefficients[:] = [[0.7, 0.3], [0.4, 0.6]]
    state.predictions[:], state.heard[:] = np.float32(S).reshape(2, -1), True
    before, gradient = state.coefficients.copy(), server._gradient(state, [0, 1])
    after = server.update(state, [arrived(i, s) for i, s in enumerate(S)]).coefficients
    moved = before - 0.2 * 2 * np.array([[0.25], [0.75]]) * gradient - 2 * 0.2 * 0.5 * (before - 0.5)
    np.testing.assert_allclose(after, onto_simplex(moved), rtol=1e-9)
    only = server.update(state, [arrived(1, S[1])]).coefficients
    assert np.array_equal(only[0], after[0])  # the row of an absent client stays


def test_the_official_rule_ends_in_a_softmax() -> None:
    server = server_of([1, 1], coef_update="official", rho=0.0)
    state = server.update(started(server, 0, 0, 0), [arrived(i, s) for i, s in enumerate(S)])
    # (q - s_0) = (-.15, .15): gradient (2/2) (-.15 * .8 + .15 * .2, 0); that of client 1 is its opposite: (.09, 0).
    # Their mean size is .045, times 5^-1 (the power nearest to .01): .009.
    wanted = softmax(5 * np.array([[0.5 + 0.018, 0.5], [0.5 - 0.018, 0.5]]))
    np.testing.assert_allclose(state.coefficients, wanted, rtol=1e-6)


def test_a_client_that_was_never_heard_neither_gains_nor_loses_by_the_distance() -> None:
    server = server_of([1, 1, 1], coef_lr=1.0, rho=0.0)
    state = server.update(started(server, 0, 0, 0), [arrived(i, s) for i, s in enumerate(S)])
    gained = state.coefficients[0] - 1 / 3
    assert gained[0] > 0 > gained[1]
    assert gained[2] == pytest.approx(0, abs=1e-12)
    assert np.array_equal(state.coefficients[2], [1 / 3] * 3)


def test_the_nearest_point_of_the_simplex() -> None:
    rows = np.array([[0.2, 0.3, 0.5], [2.0, 0.0, -1.0], [0.6, 0.6, -5.0], [-1.0, -1.0, -1.0]])
    wanted = [[0.2, 0.3, 0.5], [1, 0, 0], [0.5, 0.5, 0], [1 / 3] * 3]
    np.testing.assert_allclose(onto_simplex(rows), wanted, atol=1e-12)


def task_and_half(config: RunConfig) -> tuple[TorchTask, Any]:
    task = TorchTask(config, client_data(config, 0), 10)
    return task, registry.load(registry.find("algorithm", "kt-pfl").client)(config.params("kt-pfl"))


def test_distillation_takes_a_step_down_the_divergence_from_the_target(small: Small) -> None:
    keys = ["kt-pfl.temperature=2", "kt-pfl.distill-lr=0.3", "kt-pfl.distill-batch=100", "local-epochs=0"]
    config = small("algorithm=kt-pfl", *keys)
    (task, half), state = task_and_half(config), ClientState()
    target = softmax(np.random.default_rng(0).standard_normal((60, 10))).astype(np.float32)
    half.train(task, Downlink(arrays={"targets": target}), state, np.random.default_rng(0))
    public = client_data(config, 0).public
    assert public is not None
    x = public.x.reshape(60, -1).astype(np.float64)
    start, found = (task.layout.named(w) for w in (task.initial(), state.weights["model"]))
    slope = (softmax((x @ start["head.weight"].T + start["head.bias"]) / 2) - target) / 2 / 60  # grad KL(q || s) in z
    np.testing.assert_allclose(found["head.weight"], start["head.weight"] - 0.3 * slope.T @ x, atol=1e-5)  # (3)
    np.testing.assert_allclose(found["head.bias"], start["head.bias"] - 0.3 * slope.sum(axis=0), atol=1e-5)


def test_a_job_distills_then_trains_then_predicts_once(small: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    config = small("algorithm=kt-pfl")
    (task, half), state = task_and_half(config), ClientState()
    target, passes = np.full((60, 10), 0.1, np.float32), []
    outputs = TorchTask.outputs
    monkeypatch.setattr(TorchTask, "outputs", lambda *a, **k: passes.append(k) or outputs(*a, **k))
    uplink = half.train(task, Downlink(arrays={"targets": target}), state, np.random.default_rng(0))
    assert passes == [{"on": "public"}]
    assert dict(uplink.weights) == {}
    rng = np.random.default_rng(0)
    distilled = half.start(task, Downlink(arrays={"targets": target}), ClientState(), rng)
    trained = task.fit(distilled, rng).weights  # (2)
    assert np.array_equal(trained.parameters, state.weights["model"].parameters)
    wanted = softmax(outputs(task, trained, on="public").astype(np.float64) / 10)
    np.testing.assert_allclose(uplink.arrays["predictions"], wanted, atol=1e-6)


def test_without_distillation_it_is_local_training(small: Small, finished: Finished) -> None:
    keys = ["rounds=3", "public=60"]
    ours = finished(small("algorithm=kt-pfl", "kt-pfl.distill-epochs=0", *keys), name="kt-pfl")
    local = finished(small("algorithm=local", *keys), name="local")
    assert ours["metrics"] == local["metrics"]
    assert finished(small("algorithm=kt-pfl", *keys), name="distilled")["metrics"] != local["metrics"]


@pytest.mark.parametrize("rule", ["kl", "official"])
def test_the_coefficients_are_recorded_and_drawn_over_the_rounds(
    rule: str, small: Small, finished: Finished, tmp_path: Path
) -> None:
    finished(small("algorithm=kt-pfl", f"kt-pfl.coef-update={rule}", "kt-pfl.lam=10", "rounds=3", "participation=0.5"))
    run = RunResult.load(tmp_path / "run")
    found = [matrices["knowledge"] for matrices in load_matrices(run).values()]
    assert len(found) == 3
    for matrix in found:
        assert matrix.min() >= 0
        np.testing.assert_allclose(matrix.sum(axis=1), 1)
    assert matrix_figure(run, tmp_path / "knowledge.png")


def test_it_needs_public_data_and_refuses_predictions_of_other_samples(small: Small) -> None:
    with pytest.raises(ConfigError, match="kt-pfl needs public data: set public=N"):
        build(small("algorithm=kt-pfl", "public=0"))
    assert server_of([1], samples=7, classes=3).expects()["predictions"].shape == (7, 3)
    with pytest.raises(ConfigError, match=r"kt-pfl.temperature must be above 0"):
        small("algorithm=kt-pfl", "kt-pfl.temperature=0")
