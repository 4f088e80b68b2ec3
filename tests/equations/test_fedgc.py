"""FedGC: the correction by hand, masked heads, and only the rows of own classes on the wire."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from fedsim import registry
from fedsim.clients.heads import head_bias
from fedsim.clients.task import TorchTask
from fedsim.config import RunConfig
from fedsim.errors import FedsimError
from fedsim.layout import Layout, Tensor
from fedsim.partitions.client_data import client_data
from fedsim.payload import Arrival, ClientState, Downlink, Uplink
from fedsim.server.fleet import Client, Fleet
from fedsim.strategies.fedgc import correction
from fedsim.weights import Weights

Small = Callable[..., RunConfig]
CLASSES = 10
LAYOUT = Layout(
    (Tensor("base.w", (1,), "base"), Tensor("head.weight", (2, 2), "head"), Tensor("head.bias", (2,), "head"))
)


def server(*labels: tuple[int, int], lam: float, lr: float = 0.1) -> Any:
    algorithm = registry.find("algorithm", "fedgc")
    made = algorithm.server(algorithm.params(lam=lam), RunConfig(clients=len(labels), lr=lr))
    clients = [Client(i, i, sum(counts), 1, counts) for i, counts in enumerate(labels)]
    made.attach(Fleet(clients, LAYOUT, Weights(np.float32([5, 1, 0, 0, 1, 7, 7]))))
    return made


def arrived(client: int, examples: int, delta: float, *rows: list[float]) -> Arrival:
    uplink = Uplink(examples, {"delta": Weights(np.float32([delta]))}, {"rows": np.float32(rows).reshape(-1, 2)})
    return Arrival(client, 0, uplink, 0.0, 1.0)


def test_rows_of_other_clients_push_and_the_own_term_draws() -> None:
    """Rows (1, 0) and (0, 1) of two clients with a class each: p_self = e / (e + 1) = 0.7311, the other 0.2689."""
    half = server((3, 0), (0, 1), lam=10, lr=0.1)
    state = half.init(half.fleet.initial, half.fleet)
    assert half.instruct(state, 0, train=True).arrays["rows"].tolist() == [[1, 0]]
    state = half.update(state, [arrived(0, 3, 4, [0, 0]), arrived(1, 1, 8, [0, 0])])
    rows = [half.instruct(state, client, train=False).arrays["rows"][0] for client in (0, 1)]
    np.testing.assert_allclose(rows, [[1.2689, -0.2689], [-0.2689, 1.2689]], atol=1e-4)  # (3)
    assert state.model.parameters.tolist() == [5 + (3 * 4 + 1 * 8) / 4]  # (2)
    assert half.global_model(state) is None


def test_rows_of_one_class_or_of_one_client_do_not_push_each_other() -> None:
    rows = np.float32([[1, 0], [0, 1], [1, 1], [2, 0]])
    owners, classes = np.array([0, 0, 1, 2]), np.array([0, 1, 0, 0])
    by_hand = np.zeros((4, 2))
    allowed = {0: [0], 1: [1, 2, 3], 2: [2, 1], 3: [3, 1]}  # the row itself, then other clients' other classes
    for anchor, terms in allowed.items():
        shares = np.exp(rows[terms] @ rows[anchor])
        shares /= shares.sum()
        for row, share in zip(terms, shares, strict=True):
            by_hand[row] += share * rows[anchor]
        by_hand[anchor] -= rows[anchor]
    np.testing.assert_allclose(correction(rows, owners, classes), by_hand, atol=1e-6)
    assert np.array_equal(correction(rows[:1], owners[:1], classes[:1]), [[0, 0]])  # nobody else: no correction
    assert np.isfinite(correction(rows * 100, owners, classes)).all()  # e^40000 is none


def test_an_absent_client_keeps_its_rows_and_they_are_pushed() -> None:
    half = server((1, 1), (0, 1), lam=0)
    state = half.update(half.init(half.fleet.initial, half.fleet), [arrived(0, 2, 0, [1, 2], [3, 4])])
    assert half.instruct(state, 0, train=True).arrays["rows"].tolist() == [[2, 2], [3, 5]]
    assert half.instruct(state, 1, train=True).arrays["rows"].tolist() == [[0, 1]]
    pushed = server((1, 1), (0, 1), lam=1)
    state = pushed.update(pushed.init(pushed.fleet.initial, pushed.fleet), [arrived(0, 2, 0, [1, 2], [3, 4])])
    assert not np.allclose(pushed.instruct(state, 1, train=True).arrays["rows"], [[0, 1]])


def test_rows_of_another_shape_are_refused_by_the_clients_name() -> None:
    half = server((1, 0), (0, 1), lam=1)
    with pytest.raises(FedsimError, match=r"client 0 sent rows of shape \(2, 2\) instead of \(1, 2\)"):
        half.update(half.init(half.fleet.initial, half.fleet), [arrived(0, 1, 0, [0, 0], [0, 0])])


def test_without_correction_it_is_fedper_with_masked_heads(small: Small) -> None:
    """Two rounds by hand: cross-entropy over own classes, the mean of the bases, rows that stay with their clients."""
    config = small(
        "algorithm=fedgc", "fedgc.lam=0", "model=mlp", "partition.alpha=0.1", "local-steps=3", "momentum=0.5"
    )
    algorithm, params = registry.find("algorithm", "fedgc"), config.params("fedgc")
    tasks = [TorchTask(config, client_data(config, c), CLASSES) for c in range(2)]
    layout = tasks[0].layout
    half, strategy = registry.load(algorithm.client)(params), algorithm.server(params, config)
    clients = [Client(c, c, t.examples, 1, tuple(t.labels.tolist())) for c, t in enumerate(tasks)]
    strategy.attach(Fleet(clients, layout, tasks[0].initial()))
    state, head, bias = strategy.init(tasks[0].initial(), strategy.fleet), layout.part("head"), head_bias(layout)
    assert any((task.labels == 0).any() for task in tasks)

    def masked(own: Any) -> Any:
        def loss(trainer: Any, batch: Any) -> Any:
            return cross_entropy(trainer.network(batch[0]).masked_fill(~own, -np.inf), batch[1])

        return loss

    zero = Weights(np.zeros(CLASSES, np.float32))
    start = tasks[0].initial().with_part(bias, zero)
    own = [start, start]
    for _ in range(2):
        rng = np.random.default_rng
        sent = [half.train(t, strategy.instruct(state, c, True), ClientState(), rng(0)) for c, t in enumerate(tasks)]
        state = strategy.update(state, [Arrival(c, state.step, uplink, 0.0, 1.0) for c, uplink in enumerate(sent)])
        trained = []
        for task, before in zip(tasks, own, strict=True):
            loss = masked(torch.from_numpy(task.labels > 0))
            trained.append(task.fit(before, rng(0), train=~bias, loss=loss).weights)
        sizes = np.array([task.examples for task in tasks])
        base = Weights(sum(w.only(~head).parameters * n for w, n in zip(trained, sizes / sizes.sum(), strict=True)))
        own = [w.with_part(~head, base) for w in trained]
    for c, task in enumerate(tasks):
        ours = half.personalize(task, strategy.instruct(state, c, False), ClientState(), rng(0))
        held = np.concatenate([np.repeat(task.labels > 0, layout.features), np.zeros(CLASSES, bool)])
        rows = [w.only(head).parameters[held] for w in (ours, own[c])]
        np.testing.assert_allclose(*rows, atol=1e-5)
        np.testing.assert_allclose(ours.only(~head).parameters, own[c].only(~head).parameters, atol=1e-5)


def test_the_personal_model_never_predicts_a_class_the_client_lacks(small: Small) -> None:
    config = small("algorithm=fedgc", "partition.alpha=0.1")
    task = TorchTask(config, client_data(config, 0), CLASSES)
    half = registry.load(registry.find("algorithm", "fedgc").client)(config.params("fedgc"))
    rows = np.full((int((task.labels > 0).sum()), task.layout.features), -1, np.float32)
    shared = task.initial().only(~task.layout.part("head"))
    down = Downlink({"shared": shared}, {"rows": rows}, shared=False)
    personal = half.personalize(task, down, ClientState(), np.random.default_rng(0))
    tensors = task.layout.named(personal)
    assert ((tensors["head.bias"] < -1e8) == (task.labels == 0)).all()
    uplink = half.train(task, down, ClientState(), np.random.default_rng(0))
    assert uplink.arrays["rows"].shape == rows.shape
    bias = task.layout.named(uplink.local)["head.bias"]
    assert np.array_equal(bias, tensors["head.bias"])
