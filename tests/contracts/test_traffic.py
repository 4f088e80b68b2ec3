"""What a run moves, against the formula of each algorithm: a method that shares a part of a model sends that part alone."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from fedsim.clients.task import TorchTask
from fedsim.config import RunConfig
from fedsim.layout import Part
from fedsim.partitions.client_data import client_data
from tests.contracts.short import PHASES

CLIENTS, ROUNDS, CLASSES = 4, 2, 10
PUBLIC = 60  # samples, of algorithms that use them
INTEGER = 2  # an int64 in floats of 4 bytes


@dataclass(frozen=True)
class Sizes:
    """Of the run's model, in floats; buffers count."""

    model: int
    head: int
    base: int
    norm: int  # BatchNorm layers
    features: int  # inputs of the head
    first: int  # the first layer


@dataclass(frozen=True)
class Traffic:
    """Floats of one job: down to train, down to evaluate only, and up."""

    train: int
    evaluate: int
    up: int
    first: int | None = None  # down to train in the first round, where it differs


def symmetric(size: int) -> Traffic:
    """The same floats in all directions."""
    return Traffic(size, size, size)


def prototypes(s: Sizes) -> int:
    """A feature vector per class, with the number of samples behind each."""
    return CLASSES * s.features + CLASSES * INTEGER


def generator(s: Sizes, noise: int = 32, hidden: int = 256) -> int:
    """Two dense layers with BatchNorm between them."""
    return (noise + CLASSES + 1) * hidden + 4 * hidden + (hidden + 1) * s.features


FORMULAS: dict[str, Callable[[Sizes], Traffic]] = {
    "apple": lambda s: Traffic((CLIENTS - 1) * s.model + CLIENTS, 0, s.model),  # the others' cores, shares of samples
    "cfl": lambda s: symmetric(s.model),
    "ditto": lambda s: symmetric(s.model),
    "fedadam": lambda s: symmetric(s.model),
    "fedala": lambda s: symmetric(s.model),
    "fedavg": lambda s: symmetric(s.model),
    "fedbabu": lambda s: symmetric(s.base),
    "fedbn": lambda s: symmetric(s.model - s.norm),
    "feddistill": lambda s: Traffic(CLASSES**2, 0, CLASSES**2 + CLASSES * INTEGER, first=0),
    # at most 4 peers; there are 3, in the second of two rounds
    "fedfomo": lambda s: Traffic((CLIENTS - 1) * s.model // ROUNDS, 0, s.model + CLIENTS),
    "fedmtl": lambda s: Traffic(s.model, 0, s.model),
    "fedcp": lambda s: symmetric(s.model + 2 * s.features**2 + 6 * s.features),
    "fedgc": lambda s: symmetric(s.base + CLASSES * s.features),  # every client holds every class
    "feddyn": lambda s: symmetric(s.model),
    "fedma": lambda s: symmetric(s.model),
    "fedma-growth": lambda s: symmetric(s.model),
    "fedma-layerwise": lambda s: symmetric(s.model),
    "fednova": lambda s: Traffic(s.model, s.model, s.model + 1),
    "fedper": lambda s: symmetric(s.base),
    "fedphp": lambda s: symmetric(s.model),
    "fedrep": lambda s: symmetric(s.base),
    "fedrod": lambda s: symmetric(s.model),
    "ifca": lambda s: Traffic(2 * s.model, 2 * s.model, s.model + INTEGER),  # K models, to test as well
    "kt-pfl": lambda s: Traffic(PUBLIC * CLASSES, 0, PUBLIC * CLASSES, first=0),
    "lg-fedavg": lambda s: symmetric(s.model - s.first),
    "local": lambda s: symmetric(0),
    "pfedhn": lambda s: symmetric(s.model),
    "fedgen": lambda s: Traffic(s.model + generator(s) + CLASSES * INTEGER, s.model, s.model, first=s.model),
    "fedpac": lambda s: Traffic(s.model + prototypes(s), s.model, s.model + 2 * CLASSES * s.features + 1),
    "fedpcl": lambda s: Traffic((CLIENTS + 1) * CLASSES * s.features, 0, prototypes(s), first=0),
    "fedproto": lambda s: symmetric(prototypes(s)),
    "fml": lambda s: symmetric(s.model),
    "moon": lambda s: symmetric(s.model),
    "sageflow": lambda s: symmetric(s.model),
    "scaffold": lambda s: Traffic(2 * s.model, s.model, 2 * s.model),
}
MODELS = {"fedbn": "cnn-bn"}  # others: mlp
KEYS = {"fedgc": ["partition=iid"], "sageflow": ["pace=synchronous"]}


@pytest.mark.parametrize("name", FORMULAS)
def test_the_bytes_of_a_run_are_those_of_its_formula(
    name: str, small: Callable[..., RunConfig], finished: Callable[..., dict[str, Any]]
) -> None:
    """Evaluation is part of the training jobs, except for the last one, which every client gets by itself."""
    config = small(f"algorithm={name}", f"model={MODELS.get(name, 'mlp')}", *KEYS.get(name, []), *PHASES)
    summary, expected = finished(config), FORMULAS[name](sizes_of(config))
    assert summary["bytes_up"] == 4 * CLIENTS * ROUNDS * expected.up
    first = expected.train if expected.first is None else expected.first
    assert summary["bytes_down"] == 4 * CLIENTS * (first + (ROUNDS - 1) * expected.train + expected.evaluate)


def test_pacfl_sends_its_signatures_once(
    small: Callable[..., RunConfig], finished: Callable[..., dict[str, Any]]
) -> None:
    """Besides what FedAvg moves: p vectors of 64 pixels for every class that a client holds, before the first round."""
    config = small("algorithm=pacfl", "model=mlp")
    summary, model = finished(config), sizes_of(config).model
    counts = [np.bincount(client_data(config, client).y_train, minlength=CLASSES) for client in range(CLIENTS)]
    vectors = sum(min(3, int(count)) for client in counts for count in client)
    assert summary["bytes_up"] == 4 * (CLIENTS * ROUNDS * model + vectors * 64)
    assert summary["bytes_down"] == 4 * CLIENTS * (ROUNDS + 1) * model


def test_fedkd_sends_the_ranks_that_its_energy_needs(
    small: Callable[..., RunConfig], finished: Callable[..., dict[str, Any]]
) -> None:
    """Energy 0: rank 1 of every matrix a x b, 1 + a + b floats; vectors as they are; down the whole model."""
    config = small("algorithm=fedkd", "model=mlp", "fedkd.start=0", "fedkd.end=0")
    summary = finished(config)
    up = sum(1 + a + b for a, b in ((200, 64), (200, 200), (10, 200))) + 200 + 200 + 10
    assert summary["bytes_up"] == 4 * CLIENTS * ROUNDS * up
    assert summary["bytes_down"] == 4 * CLIENTS * (ROUNDS + 1) * sizes_of(config).model


def sizes_of(config: RunConfig) -> Sizes:
    layout = TorchTask(config, client_data(config, 0), CLASSES).layout

    def floats(part: Part) -> int:
        return part.size + part.buffer_size

    model, head, base, norm = (floats(layout.part(name)) for name in ("all", "head", "base", "batch-norm"))
    return Sizes(model, head, base, norm, layout.features, floats(layout.part(layout.layers[0])))
