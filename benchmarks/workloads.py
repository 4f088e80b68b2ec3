"""The workloads of fedsim, the PyTorch loop and the peers. Needs numpy alone: peers have their own environments."""

from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

CLASSES, LR = 10, 0.05
REFERENCE = "A: bare PyTorch loop, 2 processes"


@dataclass(frozen=True)
class Workload:
    """FedAvg with one local epoch of SGD: `cohort` of `clients` clients a round, each with `samples` samples."""

    name: str
    model: str  # a name of fedsim's models
    shape: tuple[int, int, int]  # of a sample: channels, height, width
    clients: int
    samples: int
    cohort: int
    batch: int
    rounds: int  # how many are timed in one measurement

    @property
    def steps(self) -> int:
        """Mini-batches of a client's epoch."""
        return -(-self.samples // self.batch)

    @property
    def dataset(self) -> str:
        """The name of the data: workloads with the same samples share it."""
        return f"bench-{'x'.join(map(str, self.shape))}-{self.clients * self.samples}"


W1 = Workload("W1", "cnn", (1, 28, 28), clients=10, samples=600, cohort=10, batch=64, rounds=5)
W2 = Workload("W2", "mlp", (1, 8, 8), clients=1_000, samples=20, cohort=1_000, batch=10, rounds=3)
W3 = Workload("W3", "cnn", (3, 32, 32), clients=1_000, samples=50, cohort=50, batch=10, rounds=3)
WORKLOADS = {workload.name: workload for workload in (W1, W2, W3)}


def of_size(clients: int, cohort: int | None = None) -> Workload:
    """W2 with another number of clients."""
    return replace(W2, name=f"W2 x {clients}", clients=clients, cohort=cohort or clients)


def write(workload: Workload, root: Path) -> Path:
    """Noise with random labels as `root/DATASET.npz`, the same on every machine; written once."""
    path = root / f"{workload.dataset}.npz"
    if not path.exists():
        channels, *image = workload.shape
        shape = (*image, channels) if channels > 1 else tuple(image)
        count = workload.clients * workload.samples
        tests = max(workload.clients, count // 10)
        save_noise(path, shape, count, tests, CLASSES)
    return path


def save_noise(path: Path, shape: tuple[int, ...], count: int, tests: int, classes: int) -> None:
    """Samples of random bytes and labels in which every class occurs."""
    rng = np.random.default_rng(0)
    arrays: dict[str, Any] = {}
    for part, size in (("train", count), ("test", tests)):
        arrays[f"x_{part}"] = rng.integers(0, 256, (size, *shape), np.uint8)
        arrays[f"y_{part}"] = rng.permutation(np.arange(size) % classes)
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}")  # np.savez appends .npz to any other ending
    np.savez(unfinished, **arrays)
    unfinished.replace(path)


def load(workload: Workload, path: Path) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """All clients' training samples (clients x samples x channels x height x width, normalized) and their labels."""
    with np.load(path) as file:
        x, y = file["x_train"].astype(np.float32), file["y_train"]
    x = x[:, None] if x.ndim == 3 else x.transpose(0, 3, 1, 2)
    x = (x - x.mean()) / x.std()
    each = (workload.clients, workload.samples)
    return np.ascontiguousarray(x).reshape(*each, *workload.shape), y.astype(np.int64).reshape(each)


def cohorts(workload: Workload, rounds: int) -> list[list[int]]:
    """The clients of each round."""
    rng = np.random.default_rng(1)
    return [rng.choice(workload.clients, workload.cohort, replace=False).tolist() for _ in range(rounds)]


def features(workload: Workload) -> int:
    """Values of one sample."""
    return prod(workload.shape)
