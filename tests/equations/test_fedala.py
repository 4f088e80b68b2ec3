"""FedALA: the combination of received and own model by hand, and its limits FedAvg and FedPer."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fedsim import registry
from fedsim.clients.task import TorchTask
from fedsim.config import RunConfig
from fedsim.errors import ConfigError
from fedsim.partitions.client_data import client_data
from fedsim.payload import ClientState, Downlink
from fedsim.weights import Weights
from tests.equations.halves import params_of, vec
from tests.quadratics import QuadraticTask

Small = Callable[..., RunConfig]
Finished = Callable[..., dict[str, Any]]


def half_of(name: str, **params: Any) -> Any:
    return registry.load(registry.find("algorithm", name).client)(params_of(name, **params))


class Counted(QuadraticTask):
    """Counts the calls of `fit`."""

    fits = 0

    def fit(self, *args: Any, **kwargs: Any) -> Any:
        self.fits += 1
        return super().fit(*args, **kwargs)


def quadratic(b: float = 0.25) -> Counted:
    return Counted(np.array([1.0]), np.array([b]), RunConfig(clients=1, lr=0.1, local_steps=1), 4)


def test_one_step_of_the_rates_by_hand() -> None:
    """l = 0, g = 1, loss (theta - 0.25)^2 / 2, eta 1: theta = A = 1 - 0.75 = 0.25, where the gradient is zero."""
    task, down, state = quadratic(), Downlink({"model": Weights(vec(1))}), ClientState({"own": Weights(vec(0))})
    half = half_of("fedala", epochs=1)
    assert half.personalize(task, down, state, np.random.default_rng(0)).parameters.tolist() == [0.25]
    assert not state.arrays  # what was learned to evaluate is forgotten
    uplink = half.train(task, down, state, np.random.default_rng(0))
    assert state.arrays["rates"].tolist() == [0.25]
    assert uplink.weights["delta"].parameters.tolist() == pytest.approx(
        [0.25 - 1]
    )  # trained from theta, at its optimum
    assert state.weights["own"].parameters.tolist() == pytest.approx([0.25])


@pytest.mark.parametrize(("b", "rate"), [(-3, 0.0), (3, 1.0)])
def test_rates_stay_between_0_and_1(b: float, rate: float) -> None:
    down, state = Downlink({"model": Weights(vec(1))}), ClientState({"own": Weights(vec(0))})
    half_of("fedala").train(quadratic(b), down, state, np.random.default_rng(0))
    assert state.arrays["rates"].tolist() == [rate]


@pytest.mark.parametrize(("threshold", "epochs", "expected"), [(0.0, 7, 7), (1e9, 100, 10), (1e9, 3, 3)])
def test_the_first_time_goes_on_until_losses_agree_and_later_ones_take_an_epoch(
    threshold: float, epochs: int, expected: int
) -> None:
    task, down, state = quadratic(), Downlink({"model": Weights(vec(1))}), ClientState({"own": Weights(vec(0))})
    half = half_of("fedala", eta=0.01, threshold=threshold, epochs=epochs)
    half.train(task, down, state, np.random.default_rng(0))
    assert task.fits == expected + 1  # and the training itself
    half.train(task, down, state, np.random.default_rng(0))
    assert task.fits == expected + 3


def test_nothing_is_learned_without_an_own_model_or_at_the_received_one() -> None:
    task, down = quadratic(), Downlink({"model": Weights(vec(1))})
    for state in (ClientState(), ClientState({"own": Weights(vec(1))})):
        assert half_of("fedala").personalize(task, down, state, np.random.default_rng(0)) is down.model
    assert task.fits == 0


@pytest.mark.parametrize(("model", "top"), [("mlp", "head"), ("cnn-bn", "all")])
def test_with_fixed_rates_of_1_it_is_fedavg_bitwise(model: str, top: str, small: Small, finished: Finished) -> None:
    keys = (f"model={model}", "local-steps=2", "participation=0.5", "rounds=3")
    own = ("fedala.eta=0", "fedala.epochs=1", f"fedala.top={top}")
    ours = finished(small("algorithm=fedala", *own, *keys), name="fedala")
    fedavg = finished(small("algorithm=fedavg", *keys), name="fedavg")
    assert ours["metrics"]["loss"] == fedavg["metrics"]["loss"]


def test_with_fixed_rates_of_0_a_job_is_fedpers_bitwise(small: Small) -> None:
    config = small("algorithm=fedala", "model=mlp", "local-steps=2")
    task = TorchTask(config, client_data(config, 0), 10)
    head = task.layout.part("head")
    own = Weights(task.initial().parameters + np.float32(0.1))
    ala_state = ClientState({"own": own}, {"rates": np.zeros(head.size, np.float32)})
    per_state = ClientState({"private": own.only(head)})
    shared = Downlink({"shared": task.initial().only(~head)}, numbers={"private": "head"})
    jobs = [
        (half_of("fedala", eta=0.0), Downlink({"model": task.initial()}), ala_state),
        (half_of("fedper"), shared, per_state),
    ]
    personal = [half.personalize(task, down, state, np.random.default_rng(0)) for half, down, state in jobs]
    assert np.array_equal(personal[0].parameters, personal[1].parameters)
    local = [half.train(task, down, state, np.random.default_rng(0)).local for half, down, state in jobs]
    assert np.array_equal(local[0].parameters, local[1].parameters)


def test_only_the_top_adapts_and_lower_layers_are_the_received_ones(small: Small) -> None:
    config = small("algorithm=fedala", "model=mlp", "local-steps=2")
    task, half = TorchTask(config, client_data(config, 0), 10), half_of("fedala", epochs=2)
    head, received = task.layout.part("head"), task.initial()
    state = ClientState({"own": Weights(received.parameters + np.float32(0.3))})
    theta = half.personalize(task, Downlink({"model": received}), state, np.random.default_rng(0))
    assert np.array_equal(theta.only(~head).parameters, received.only(~head).parameters)
    moved = theta.only(head).parameters - received.only(head).parameters
    assert ((moved >= -1e-6) & (moved <= 0.3 + 1e-6)).all()
    assert np.count_nonzero(moved) > 0
    assert task.examples == len(client_data(config, 0).y_train)  # the slice is a task of its own


def test_an_unknown_stage_is_refused(small: Small, finished: Finished) -> None:
    with pytest.raises(ConfigError, match=r"unknown part of the model 'neck'"):
        finished(small("algorithm=fedala", "fedala.top=neck"))
