"""Training a group of clients at once gives what training each of them alone gives."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from torch import Tensor, nn

from fedsim import registry
from fedsim.algorithm import Fit
from fedsim.clients.fedprox import proximal
from fedsim.clients.models import FlatSequential, HeadOnBase
from fedsim.clients.scaffold import ScaffoldClient
from fedsim.clients.task import TorchTask
from fedsim.clients.training import GradientHook
from fedsim.clients.vectorized import Member, can_vectorize, dense_layers, fit_group, pays_to_keep
from fedsim.config import RunConfig
from fedsim.partitions.client_data import ClientData
from fedsim.payload import ClientState, Downlink
from fedsim.weights import Weights

Small = Callable[..., RunConfig]
Hooks = Callable[[TorchTask, int], GradientHook | None]
COUNTS = (7, 20, 1, 13, 20, 8)  # samples of each client: with batches of 8 one to three steps an epoch, most end short


def task_of(config: RunConfig, number: int, samples: int, shape: tuple[int, ...] = (1, 4, 4)) -> TorchTask:
    rng = np.random.default_rng(number)
    x, y = rng.normal(size=(samples, *shape)).astype(np.float32), rng.integers(5, size=samples)
    return TorchTask(config, ClientData(x, y, x[:1], y[:1], 5), 5)


def no_hook(task: TorchTask, number: int) -> None:
    return None


def group(
    config: RunConfig, counts: Sequence[int] = COUNTS, hook: Hooks = no_hook, shape: tuple[int, ...] = (1, 4, 4)
) -> list[Member]:
    """Clients with data, generators and hooks of their own, and a common start."""
    tasks = [task_of(config, number, samples, shape) for number, samples in enumerate(counts)]
    start = tasks[0].initial()
    return [Member(t, start, np.random.default_rng(n), hook(t, n)) for n, t in enumerate(tasks)]


def at_once(members: Sequence[Member]) -> list[Fit]:
    return fit_group(members).fits()


def one_by_one(members: Sequence[Member]) -> list[Fit]:
    return [m.task.fit(m.start, m.rng, gradient=m.gradient) for m in members]


def assert_same(got: Sequence[Fit], wanted: Sequence[Fit]) -> None:
    assert [fit.steps for fit in got] == [fit.steps for fit in wanted]
    for one, other in zip(got, wanted, strict=True):
        np.testing.assert_allclose(one.weights.parameters, other.weights.parameters, rtol=0, atol=1e-6)
        assert one.weights.parameters.dtype == np.float32
        assert one.weights.buffers.size == 0
        assert one.loss == pytest.approx(other.loss, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("model", ["mlr", "mlp"])
@pytest.mark.parametrize("length", ["local-epochs=1", "local-epochs=2", "local-steps=7"])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_a_group_trains_like_its_members(model: str, length: str, momentum: float, decay: float, small: Small) -> None:
    keys = (f"model={model}", length, "batch-size=8", f"momentum={momentum}", f"weight-decay={decay}")
    config = small(*keys)
    members = group(config)
    start = members[0].start.copy()
    assert all(can_vectorize(m.task) for m in members)
    got = at_once(members)
    assert_same(got, one_by_one(group(config)))
    assert np.array_equal(members[0].start.parameters, start.parameters)  # the caller's own weights
    assert len({fit.weights.parameters.tobytes() for fit in got}) == len(COUNTS)


def test_a_group_trains_on_whole_batches(small: Small) -> None:
    config = small("model=mlp", "local-epochs=3", "batch-size=0")
    got = at_once(group(config))
    assert_same(got, one_by_one(group(config)))
    assert {fit.steps for fit in got} == {3}


@pytest.mark.parametrize("length", ["local-epochs=1", "local-steps=4"])
def test_batches_in_order_go_on_from_job_to_job(length: str, small: Small) -> None:
    config = small("model=mlp", length, "batch-size=8", "batches=in-order")
    together, alone = group(config), group(config)
    for _ in range(3):
        assert_same(at_once(together), one_by_one(alone))
        assert [m.task.batches_read for m in together] == [m.task.batches_read for m in alone]


def test_generators_are_left_as_training_alone_leaves_them(small: Small) -> None:
    config = small("model=mlr", "local-epochs=2", "batch-size=8")
    together, alone = group(config), group(config)
    at_once(together)
    one_by_one(alone)
    assert [m.rng.random() for m in together] == [m.rng.random() for m in alone]


def test_members_may_start_from_models_of_their_own_at_another_learning_rate(small: Small) -> None:
    def members() -> list[Member]:
        made = group(small("model=mlp", "batch-size=8"))
        for number, member in enumerate(made):
            member.task.lr = 0.2
            member.start = Weights(member.start.parameters * np.float32(1 + 0.1 * number))
            member.start.parameters.flags.writeable = False
        return made

    assert_same(at_once(members()), one_by_one(members()))


@pytest.mark.parametrize("epochs", [1, 2])
def test_the_mean_of_a_group_is_that_of_its_members(epochs: int, small: Small) -> None:
    """By samples; the last member holds it. One start for all, and one for each; few steps and many."""
    config = small("model=mlp", "batch-size=8", f"local-epochs={epochs}")
    for spread in (0.0, 0.1):
        members = group(config)
        for number, member in enumerate(members):
            member.start = (
                Weights(member.start.parameters * np.float32(1 + spread * number)) if spread else member.start
            )
        fits = at_once(members)
        updates = np.array([f.weights.parameters - m.start.parameters for f, m in zip(fits, members, strict=True)])
        for number, member in enumerate(members):
            member.rng = np.random.default_rng(number)
        *others, last = fit_group(members).averaged_uplinks()
        wanted = np.average(updates, axis=0, weights=COUNTS)
        np.testing.assert_allclose(last.weights["delta"].parameters, wanted, rtol=0, atol=1e-6)
        assert (last.averaged, last.examples) == (sum(COUNTS), COUNTS[-1])
        assert [(u.averaged, u.examples, u.nbytes) for u in others] == [(0, n, last.nbytes) for n in COUNTS[:-1]]
        assert [u.metrics["loss"] for u in (*others, last)] == [fit.loss for fit in fits]


def test_weights_stay_as_they_are_during_few_steps_of_wide_layers(small: Small) -> None:
    """Per sample 16 + 200 + 200 + 200 + 200 + 5 numbers are kept; the layers have 44,200 weights."""
    layers = dense_layers(task_of(small("model=mlp"), 0, 3).network("model").module)
    assert layers is not None
    assert [pays_to_keep(layers, rows) for rows in (24, 26, 27, 48)] == [True, True, False, False]


def test_a_group_of_one(small: Small) -> None:
    config = small("model=mlp", "batch-size=8")
    assert_same(at_once(group(config, [13])), one_by_one(group(config, [13])))


def test_no_training_returns_the_start(small: Small) -> None:
    members = group(small("local-epochs=0"))
    for fit in at_once(members):
        assert np.array_equal(fit.weights.parameters, members[0].start.parameters)
        assert (fit.loss, fit.steps) == (0.0, 0)


def test_a_member_does_not_depend_on_the_others(small: Small) -> None:
    """Not even on one whose training diverges."""
    config = small("model=mlp", "batch-size=8", "momentum=0.9", "local-epochs=3")
    members = group(config)
    members[1].start = Weights(members[1].start.parameters * np.float32(1e30))
    got, wanted = at_once(members), one_by_one(group(config))
    assert not np.isfinite(got[1].weights.parameters).all()
    assert_same(got[:1] + got[2:], wanted[:1] + wanted[2:])


# Gradient hooks


def pulled(task: TorchTask, number: int) -> GradientHook | None:
    """FedProx; the weight of the second client is 0, so that it has no hook."""
    return proximal(task.layout, task.initial(), 0.3 * abs(number - 1))


def controlled(task: TorchTask, number: int) -> GradientHook:
    """SCAFFOLD, with control variates that differ from client to client."""
    rng = np.random.default_rng(100 + number)
    control, own = (rng.normal(size=task.layout.size).astype(np.float32) for _ in range(2))
    down = Downlink({"model": task.initial()}, {"control": control})
    return ScaffoldClient(None).gradient_hook(task, down, ClientState({"control": own}))


def replaced(task: TorchTask, number: int) -> GradientHook:
    """Puts new tensors in the place of the gradients."""

    def twice(parameters: Sequence[Tensor]) -> None:
        for parameter in parameters:
            assert parameter.grad is not None
            parameter.grad = 2 * parameter.grad

    return twice


@pytest.mark.parametrize("hook", [pulled, controlled, replaced])
@pytest.mark.parametrize("keys", [(), ("momentum=0.9", "weight-decay=0.1")])
def test_gradient_hooks_work_unchanged(hook: Hooks, keys: tuple[str, ...], small: Small) -> None:
    config = small("model=mlp", "batch-size=8", "local-epochs=2", *keys)
    wanted = one_by_one(group(config, hook=hook))
    assert_same(at_once(group(config, hook=hook)), wanted)
    plain = one_by_one(group(config))
    assert not np.allclose(wanted[0].weights.parameters, plain[0].weights.parameters, rtol=0, atol=1e-5)


def test_a_hook_that_removes_a_gradient_is_refused(small: Small) -> None:
    def removing(task: TorchTask, number: int) -> GradientHook:
        def hook(parameters: Sequence[Tensor]) -> None:
            parameters[0].grad = None

        return hook

    with pytest.raises(ValueError, match="must not remove the gradient"):
        at_once(group(small("model=mlr"), hook=removing))


def test_a_hook_is_called_once_for_every_step_of_its_member(small: Small) -> None:
    seen: list[int] = []
    layout = task_of(small("model=mlp"), 0, 1).layout

    def counted(task: TorchTask, number: int) -> GradientHook:
        def hook(parameters: Sequence[Tensor]) -> None:
            assert [tuple(p.shape) for p in parameters] == [t.shape for t in layout.parameters]
            seen.append(number)

        return hook

    fits = at_once(group(small("model=mlp", "batch-size=8", "local-epochs=2"), hook=counted))
    assert [seen.count(number) for number in range(len(COUNTS))] == [fit.steps for fit in fits]


# Which networks


class Deep(HeadOnBase):
    """Layers with and without bias in nested containers, the head's parameters first, on images of two channels."""

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.head = nn.Sequential(nn.Linear(6, 9), nn.ReLU(inplace=True), nn.ReLU(), nn.Linear(9, classes), nn.ReLU())
        inner = nn.Sequential(nn.Linear(int(np.prod(shape)), 7, bias=False), nn.ReLU(), nn.Flatten())
        self.base = FlatSequential(inner, nn.Linear(7, 6))


class OnVectors(HeadOnBase):
    """Without any flattening."""

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.base, self.head = nn.Sequential(nn.Linear(shape[-1], 4), nn.ReLU()), nn.Linear(4, classes)


class Shared(HeadOnBase):
    """The same layer twice."""

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        layer = nn.Linear(4, 4)
        self.base, self.head = FlatSequential(nn.Linear(int(np.prod(shape)), 4), layer, layer), nn.Linear(4, classes)


class Scaled(Deep):
    """A forward pass of its own."""

    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


class Smooth(HeadOnBase):
    """Another activation."""

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.base, self.head = nn.Sequential(nn.Flatten(), nn.Tanh()), nn.Linear(int(np.prod(shape)), classes)


@pytest.fixture
def third_party(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in (Deep, OnVectors, Shared, Scaled, Smooth):
        monkeypatch.setitem(registry.providers("model"), kind.__name__.lower(), f"{__name__}:{kind.__name__}")


@pytest.mark.usefixtures("third_party")
@pytest.mark.parametrize(("model", "shape"), [("deep", (2, 4, 4)), ("onvectors", (6,))])
def test_dense_networks_of_third_parties(model: str, shape: tuple[int, ...], small: Small) -> None:
    config = small(f"model={model}", "batch-size=8", "local-epochs=3", "lr=0.5")
    members = group(config, shape=shape)
    assert can_vectorize(members[0].task)
    assert_same(at_once(members), one_by_one(group(config, shape=shape)))


@pytest.mark.usefixtures("third_party")
@pytest.mark.parametrize("model", ["cnn", "cnn-bn", "onvectors", "shared", "scaled", "smooth"])
def test_other_networks_are_refused(model: str, small: Small) -> None:
    assert not can_vectorize(task_of(small(f"model={model}"), 0, 3, (1, 8, 8)))


def test_other_optimizers_and_objectives_are_refused(small: Small) -> None:
    assert not can_vectorize(task_of(small("model=mlp", "optimizer=adam"), 0, 3))
    x, y = np.zeros((3, 2), np.float32), np.zeros(3, np.float32)
    assert not can_vectorize(TorchTask(small("model=mlp"), ClientData(x, y, x, y, 0, "regression"), 0))
