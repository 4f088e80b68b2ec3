"""What algorithms build on: parts of a model, hooks of training, second networks, statistics and objectives."""

from collections.abc import Callable
from dataclasses import replace
from math import cos, pi
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedsim import registry
from fedsim.clients.models import HeadOnBase
from fedsim.clients.objectives import NextToken
from fedsim.clients.optimizers import make_optimizer
from fedsim.clients.task import TorchTask
from fedsim.clients.training import Batch, Trainer, load, one_step
from fedsim.config import RunConfig, lr_at
from fedsim.errors import ConfigError
from fedsim.layout import Part
from fedsim.partitions.client_data import ClientData, client_data
from fedsim.rng import stream
from fedsim.strategies.fedavg import FEDAVG
from fedsim.weights import Weights

Small = Callable[..., RunConfig]
Finished = Callable[..., dict[str, Any]]


def task_of(config: RunConfig) -> TorchTask:
    return TorchTask(config, client_data(config, 0), 10)


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def same(one: Weights, two: Weights) -> bool:
    return np.array_equal(one.parameters, two.parameters) and np.array_equal(one.buffers, two.buffers)


# Parts


@pytest.mark.parametrize("names", [("head",), ("base",), ("batch-norm",), ("head", "batch-norm")])
def test_training_a_part_leaves_everything_else_as_it_was(names: tuple[str, ...], small: Small) -> None:
    task = task_of(small("model=cnn-bn", "local-steps=3", "momentum=0.9", "weight-decay=0.1"))
    start, part = task.initial(), task.layout.part(*names)
    before, whole = start.copy(), task.fit(start, rng()).weights
    after = task.fit(start, rng(), train=part).weights
    assert same(start, before)  # the caller's own weights
    assert same(after.only(~part), start.only(~part))
    assert not np.array_equal(after.parameters[part.parameters], start.parameters[part.parameters])
    if part.buffer_size:
        assert not np.array_equal(after.buffers[part.buffers], start.buffers[part.buffers])
    assert part.buffer_size == (0 if names == ("head",) else task.layout.buffer_size)
    assert same(task.fit(start, rng()).weights, whole)  # the next training trains everything again


def test_a_part_that_cuts_through_a_tensor_is_refused(small: Small) -> None:
    task = task_of(small())
    half = np.arange(task.layout.size) < 5
    with pytest.raises(ConfigError, match="must cover whole tensors"):
        task.fit(task.initial(), rng(), train=Part(half, np.zeros(0, bool)))


# Hooks


def test_loss_gradient_and_step_each_change_training(small: Small) -> None:
    """Twice the loss or twice the gradient is exactly twice the learning rate."""
    task = task_of(small("local-steps=5", "model=mlp"))
    start = task.initial()
    task.lr = 2 * task.config.lr
    faster = task.fit(start, rng())
    task.lr = task.config.lr

    def twice_the_loss(trainer: Trainer, batch: Batch) -> Tensor:
        return 2 * trainer.objective.loss(trainer.forward(batch[0])[1], batch[1])

    def twice_the_gradient(parameters: Any) -> None:
        for parameter in parameters:
            parameter.grad.mul_(2)

    taken: list[int] = []

    def counted(trainer: Trainer, batch: Batch) -> Tensor:
        taken.append(len(batch[1]))
        return one_step(twice_the_gradient)(trainer, batch)

    by_loss = task.fit(start, rng(), loss=twice_the_loss)
    by_gradient, by_step = task.fit(start, rng(), gradient=twice_the_gradient), task.fit(start, rng(), step=counted)
    for changed in (by_loss, by_gradient, by_step):
        assert same(changed.weights, faster.weights)
        assert changed.steps == 5
    assert by_loss.loss == pytest.approx(2 * faster.loss)  # the reported loss is the one that was given
    assert by_gradient.loss == by_step.loss == faster.loss
    assert taken == [64] * 5


def test_features_are_what_the_head_receives(small: Small) -> None:
    task = task_of(small("model=mlp"))
    seen: list[bool] = []

    def look(trainer: Trainer, batch: Batch) -> Tensor:
        features, output = trainer.forward(batch[0])
        assert features.shape == (len(batch[1]), 200)
        seen.append(torch.equal(trainer.head(features), output) and torch.equal(trainer.network(batch[0]), output))
        return trainer.objective.loss(output, batch[1])

    task.fit(task.initial(), rng(), steps=2, loss=look)
    assert seen == [True, True]


# A second network


@pytest.mark.parametrize("model", ["mlp", "cnn-bn"])
def test_a_companion_and_the_network_train_as_if_each_were_alone(model: str, small: Small) -> None:
    task = task_of(small(f"model={model}", "local-steps=4", "momentum=0.9"))
    start = task.initial()
    other = Weights(start.parameters + np.float32(0.01), start.buffers + 1)
    alone, other_alone = task.fit(start, rng()), task.fit(other, rng())
    companion, plain = task.companion(other), one_step()

    def both(trainer: Trainer, batch: Batch) -> Tensor:
        plain(companion, batch)
        return plain(trainer, batch)

    beside = task.fit(start, rng(), step=both)
    assert same(beside.weights, alone.weights)
    assert beside.loss == alone.loss
    assert same(companion.weights(), other_alone.weights)


def test_a_companion_may_train_a_part(small: Small) -> None:
    task = task_of(small("model=cnn-bn", "local-steps=2"))
    start, head = task.initial(), task.layout.part("head")
    companion, plain = task.companion(start, train=head), one_step()

    def step(trainer: Trainer, batch: Batch) -> Tensor:
        plain(companion, batch)
        return plain(trainer, batch)

    task.fit(start, rng(), step=step)
    after = companion.weights()
    assert np.array_equal(after.parameters[~head.parameters], start.parameters[~head.parameters])
    assert not np.array_equal(after.parameters[head.parameters], start.parameters[head.parameters])


class Tiny(HeadOnBase):
    """One hidden layer of two units on flat samples; the number of outputs is that of the classes, at least one."""

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.base = nn.Sequential(nn.Flatten(), nn.Linear(int(np.prod(shape)), 2), nn.Tanh())
        self.head = nn.Linear(2, max(1, classes))


TWO_NETWORKS = replace(FEDAVG, name="two-networks", networks={"tiny": f"{__name__}:Tiny"})


def test_an_algorithm_may_have_another_network(small: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry.providers("algorithm"), "two-networks", f"{__name__}:TWO_NETWORKS")
    task = task_of(small("algorithm=two-networks", "local-steps=3"))
    tiny = task.initial("tiny")
    assert tiny.parameters.size == 2 * 64 + 2 + 10 * 2 + 10
    alone = task.fit(task.initial(), rng())
    companion, plain, losses = task.companion(tiny, "tiny"), one_step(), list[float]()

    def step(trainer: Trainer, batch: Batch) -> Tensor:
        losses.append(plain(companion, batch).item())
        return plain(trainer, batch)

    assert same(task.fit(task.initial(), rng(), step=step).weights, alone.weights)
    assert not same(companion.weights(), tiny)
    assert len(losses) == 3
    with pytest.raises(ConfigError, match=r"two-networks declares no network 'big'. It declares: tiny"):
        task.initial("big")


# Statistics per class


def by_hand(small: Small, x: Any, y: Any, classes: int, *keys: str, objective: str = "classification") -> TorchTask:
    """A client with this training data; its tests are the first two of it."""
    data = ClientData(x, y, x[:2], y[:2], classes, objective)
    return TorchTask(small(*keys), data, classes)


def softmax(logits: Any) -> Any:
    chances = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return chances / chances.sum(axis=-1, keepdims=True)


def test_statistics_per_class_by_hand(small: Small) -> None:
    """A linear model has its inputs as features: {1, 3} of class 0, {2} of class 2, none of class 1."""
    task = by_hand(small, np.array([[1], [3], [2]], np.float32), np.array([0, 0, 2]), 3, "model=mlr")
    assert task.labels.tolist() == [2, 0, 1]
    found = task.by_class(task.initial())
    assert found.counts.tolist() == [2, 0, 1]
    assert found.means.tolist() == [[2], [0], [2]]
    assert found.squares.tolist() == [5, 0, 4]  # (1 + 9) / 2, nothing, 4
    matrix, bias = task.initial().parameters[:3], task.initial().parameters[3:]
    chances = softmax(np.array([[1.0], [3.0], [2.0]]) * matrix + bias)
    found = task.by_class(task.initial(), of="probabilities")
    np.testing.assert_allclose(found.means, [chances[:2].mean(axis=0), np.zeros(3), chances[2]], rtol=1e-6)
    squares = (chances**2).sum(axis=1)
    np.testing.assert_allclose(found.squares, [squares[:2].mean(), 0, squares[2]], rtol=1e-6)


def test_statistics_are_of_the_features_in_evaluation_mode(small: Small) -> None:
    task = task_of(small("model=cnn-bn"))
    model = task.fit(task.initial(), rng()).weights
    found = task.by_class(model)
    assert found.means.shape == (10, 512)
    assert found.counts.tolist() == task.labels.tolist()
    network = task.network("model").module
    load(network, model)
    network.eval()
    data = client_data(task.config, 0)
    with torch.inference_mode():
        features = network.base(torch.from_numpy(data.x_train)).numpy().astype(np.float64)
    for label in np.flatnonzero(found.counts):
        own = features[data.y_train == label]
        np.testing.assert_allclose(found.means[label], own.mean(axis=0), atol=1e-5)
        np.testing.assert_allclose(found.squares[label], (own**2).sum(axis=1).mean(), rtol=1e-4)


# Objectives


def test_classification_on_training_and_test_data(small: Small) -> None:
    """Samples of shape N x F."""
    x, y = rng().normal(size=(7, 5)).astype(np.float32), np.array([0, 1, 2, 0, 1, 2, 2])
    task = by_hand(small, x, y, 3, "model=mlr")
    weights = task.initial()
    matrix, bias = weights.parameters[:15].reshape(3, 5), weights.parameters[15:]
    chances = softmax(x.astype(np.float64) @ matrix.T + bias)
    for on, count in (("train", 7), ("test", 2)):
        found = task.evaluate(weights, on=on)
        assert found is not None
        assert list(found) == ["accuracy", "loss"]
        assert found["accuracy"] == np.mean(chances[:count].argmax(axis=1) == y[:count])
        assert found["loss"] == pytest.approx(-np.log(chances[np.arange(count), y[:count]]).mean(), rel=1e-5)
    with pytest.raises(ConfigError, match=r"has no public data. It has: train, test"):
        task.evaluate(weights, on="public")


def test_a_prediction_of_its_own(small: Small) -> None:
    task = by_hand(small, np.zeros((4, 2), np.float32), np.array([1, 0, 1, 1]), 2, "model=mlr")

    def always_one(trainer: Trainer, x: Tensor) -> Tensor:
        return torch.tensor([[0.0, 1.0]]).repeat(len(x), 1)

    assert task.evaluate(task.initial(), on="train", predict=always_one)["accuracy"] == 0.75


def test_without_test_samples_there_are_no_metrics(small: Small) -> None:
    x, y = np.zeros((3, 2), np.float32), np.zeros(3, np.int64)
    task = TorchTask(small("model=mlr"), ClientData(x, y, x[:0], y[:0], 2), 2)
    assert task.evaluate(task.initial()) is None
    assert task.evaluate(task.initial(), on="train") is not None


def test_regression(small: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry.providers("model"), "tiny", f"{__name__}:Tiny")
    x = rng().normal(size=(40, 3)).astype(np.float32)
    y = (x[:, 0] - 2 * x[:, 2]).astype(np.float32)
    keys = ("model=tiny", "local-epochs=200", "batch-size=8", "lr=0.1")
    task = by_hand(small, x, y, 0, *keys, objective="regression")
    assert task.labels.tolist() == []
    start, trained = task.initial(), task.fit(task.initial(), rng())

    def output(weights: Weights) -> Any:
        named = task.layout.named(weights)
        hidden = np.tanh(x @ named["base.1.weight"].T + named["base.1.bias"])
        return (hidden @ named["head.weight"].T + named["head.bias"])[:, 0]

    for weights in (start, trained.weights):
        error = output(weights) - y
        found = task.evaluate(weights, on="train")
        assert found is not None
        assert list(found) == ["mse", "mae"]
        assert found["mse"] == pytest.approx(np.mean(error**2), rel=1e-4)
        assert found["mae"] == pytest.approx(np.mean(np.abs(error)), rel=1e-4)
    assert task.evaluate(trained.weights)["mse"] < 0.2 * task.evaluate(start)["mse"]


class Bigram(HeadOnBase):
    """The next token from the present one: tokens N x T to logits N x T x V."""

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.base, self.head = nn.Embedding(classes, 4), nn.Linear(4, classes)


def test_next_tokens(small: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    """Samples of shape N x T: after token t comes t + 1."""
    monkeypatch.setitem(registry.providers("model"), "bigram", f"{__name__}:Bigram")
    tokens = (np.arange(30)[:, None] + np.arange(7)) % 5 + 1
    x, y = tokens[:, :-1], tokens[:, 1:]
    keys = ("model=bigram", "batch-size=5", "lr=1", "local-epochs=50")
    task = by_hand(small, x, y, 6, *keys, objective="next-token")
    assert task.labels.sum() == y.size
    start, trained = task.initial(), task.fit(task.initial(), rng()).weights
    named = task.layout.named(start)
    chances = softmax(named["base.weight"][x].astype(np.float64) @ named["head.weight"].T + named["head.bias"])
    found = task.evaluate(start, on="train")
    assert found is not None
    assert found["accuracy"] == np.mean(chances.argmax(axis=2) == y)
    assert found["loss"] == pytest.approx(-np.log(np.take_along_axis(chances, y[..., None], 2)).mean(), rel=1e-5)
    assert found["perplexity"] == pytest.approx(np.exp(found["loss"]))
    after = task.evaluate(trained)
    assert after is not None
    assert (after["accuracy"], after["loss"]) == (1.0, pytest.approx(0, abs=0.1))


def test_padded_targets_do_not_count() -> None:
    logits = torch.log(torch.tensor([[[0.2, 0.5, 0.3], [0.2, 0.2, 0.6], [0.8, 0.1, 0.1]]]))
    task = NextToken()
    sums, count = task.measure(logits, torch.tensor([[1, 1, 0]]))  # the last one is padding
    assert (sums["accuracy"], count) == (1, 2)
    assert sums["loss"] == pytest.approx(-np.log(0.5) - np.log(0.2))
    assert float(task.loss(logits, torch.tensor([[1, 1, 0]]))) == pytest.approx(sums["loss"] / 2)
    assert task.derived({"loss": np.log(4.0)}) == {"perplexity": pytest.approx(4.0)}
    assert float(task.loss(logits, torch.tensor([[0, 0, 0]]))) == 0.0


def test_a_single_target_per_window_is_never_padding() -> None:
    sums, count = NextToken().measure(torch.log(torch.tensor([[0.7, 0.3], [0.6, 0.4]])), torch.tensor([0, 1]))
    assert (sums["accuracy"], count) == (1, 2)


# Optimizers and learning rates


@pytest.mark.parametrize("name", ["sgd", "adam", "adamw"])
def test_the_runs_optimizer_is_torchs(name: str) -> None:
    config = RunConfig(optimizer=name, momentum=0.9 if name == "sgd" else 0.0, weight_decay=0.01)
    torch.manual_seed(0)
    ours, theirs = nn.Linear(7, 3), nn.Linear(7, 3)
    theirs.load_state_dict(ours.state_dict())
    mine = make_optimizer(config, 0.02, list(ours.parameters()))
    kinds: dict[str, Any] = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
    extra = {"momentum": 0.9} if name == "sgd" else {}
    reference = kinds[name](theirs.parameters(), lr=0.02, weight_decay=0.01, **extra)
    for number in range(6):
        x, y = torch.randn(8, 7), torch.randint(3, (8,))
        if number == 3:
            mine.lr = reference.param_groups[0]["lr"] = 0.005
            assert mine.lr == 0.005
        for model, optimizer in ((ours, mine), (theirs, reference)):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
    assert all(torch.equal(a, b) for a, b in zip(ours.parameters(), theirs.parameters(), strict=True))


def test_runs_with_other_optimizers_differ_and_learn(small: Small, finished: Finished) -> None:
    found = {
        name: finished(small(f"optimizer={name}", "lr=0.01", "weight-decay=0.1", "rounds=4"), name=name)
        for name in ("sgd", "adam", "adamw")
    }
    assert len({summary["weights_sha256"] for summary in found.values()}) == 3
    assert all(found[name]["accuracy"]["global"]["final"] > 0.6 for name in ("adam", "adamw"))


def test_learning_rates_by_round() -> None:
    config = RunConfig(lr=0.4, rounds=20)
    assert [lr_at(config, step) for step in (0, 19, 30)] == [0.4, 0.4, 0.4]
    halved = config.replace(lr_schedule="0.5:10")
    assert [lr_at(halved, step) for step in (0, 9, 10, 19, 20)] == [0.4, 0.4, 0.2, 0.2, 0.1]
    cosine = config.replace(lr_schedule="cosine")
    assert [lr_at(cosine, step) for step in (0, 10)] == pytest.approx([0.4, 0.2])
    assert lr_at(cosine, 5) == pytest.approx(0.4 * (1 + cos(pi / 4)) / 2)
    assert lr_at(cosine, 20) == lr_at(cosine, 19) > 0  # jobs after the last round, such as fine-tuning


@pytest.mark.parametrize("wrong", ["sometimes", "0.5", "0:10", "0.5:0", "-1:3", "0.5:x"])
def test_unknown_schedules_are_refused(wrong: str) -> None:
    with pytest.raises(ConfigError, match=rf"unknown lr-schedule '{wrong}'.*Choices: .*constant, cosine"):
        RunConfig(lr_schedule=wrong)


def test_a_run_follows_its_schedule(small: Small, finished: Finished, tmp_path: Any) -> None:
    config = small("clients=1", "rounds=3", "partition=iid", "lr-schedule=0.1:1")
    finished(config)
    task = task_of(config)
    model = task.initial()
    for step, lr in enumerate((0.05, 0.005, 0.0005)):
        task.lr = lr
        model = task.fit(model, stream(config.seed, 0, step, 0, "train")).weights
    with np.load(tmp_path / "run" / "model.npz") as saved:
        got = np.concatenate([saved[t.name].reshape(-1) for t in task.layout.parameters])
    np.testing.assert_allclose(got, model.parameters, rtol=1e-5, atol=1e-7)
