"""A model as a value, and the few operations on flat vectors that every strategy shares. No torch here."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from fedsim.layout import Part

Vec = NDArray[np.float32]
BLOCK = 1 << 13  # floats per block of the blocked sums: N x BLOCK stays in cache, memory stays flat


def no_buffers() -> Vec:
    return np.empty(0, np.float32)


@dataclass(frozen=True, eq=False)
class Weights:
    """A model: its trainable parameters and its buffers (BatchNorm statistics), each as one flat float32 vector.

    An update is also a `Weights`: the difference of the parameters, beside the buffers as they are after training.
    """

    parameters: Vec
    buffers: Vec = field(default_factory=no_buffers)

    def only(self, part: "Part") -> "Weights":
        """The entries of a part alone."""
        return Weights(self.parameters[part.parameters], self.buffers[part.buffers])

    def with_part(self, part: "Part", values: "Weights") -> "Weights":
        """A copy in which `values` take the place of a part."""
        whole = self.copy()
        whole.parameters[part.parameters], whole.buffers[part.buffers] = values.parameters, values.buffers
        return whole

    def delta(self, received: "Weights") -> "Weights":
        """The update from `received` to this model: local - received, with this model's buffers."""
        return Weights(self.parameters - received.parameters, self.buffers)

    def copy(self) -> "Weights":
        return Weights(self.parameters.copy(), self.buffers.copy())

    @property
    def nbytes(self) -> int:
        return self.parameters.nbytes + self.buffers.nbytes


def blocks(size: int, length: int = BLOCK) -> Iterator[slice]:
    return (slice(start, min(start + length, size)) for start in range(0, size, length))


def weighted_sum(vectors: Sequence[Vec], weights: Sequence[float]) -> Vec:
    """sum_k weights[k] * vectors[k], accumulated in float64, block by block: no N x d copy is made."""
    scale = np.asarray(weights, np.float64)
    total = np.empty(vectors[0].size, np.float32)
    for block in blocks(total.size):
        total[block] = np.einsum("k,kd->d", scale, np.stack([v[block] for v in vectors]), dtype=np.float64)
    return total


def weighted_mean(vectors: Sequence[Vec], weights: Sequence[float]) -> Vec:
    """sum_k p_k * vectors[k] with p_k = weights[k] / sum(weights)."""
    scale = np.asarray(weights, np.float64)
    return weighted_sum(vectors, (scale / scale.sum()).tolist())


def mix(weights: NDArray[np.float64], vectors: Sequence[Vec], parts: Iterable[slice]) -> Iterator[tuple[slice, Vec]]:
    """weights @ vectors over these parts, block by block: each block with its rows of mixed values."""
    scale = weights.astype(np.float32)
    for block in blocks_of(parts):
        yield block, scale @ np.stack([vector[block] for vector in vectors])


def blocks_of(parts: Iterable[slice]) -> Iterator[slice]:
    """The blocks of several parts of a vector."""
    return (slice(p.start + b.start, p.start + b.stop) for p in parts for b in blocks(p.stop - p.start))


def is_finite(array: NDArray[np.generic]) -> bool:
    """Whether no number in an array is NaN or infinite. It is read once and not copied."""
    if not array.size or array.dtype.kind not in "fc":
        return True
    if array.dtype.kind == "c":
        return bool(np.isfinite(array).all())
    return bool(np.isfinite(array.min()) and np.isfinite(array.max()))  # NaN is the result if there is one


def fingerprint(vectors: Mapping[str, NDArray[np.generic]]) -> str:
    """sha256 over named arrays: equal exactly when every bit is."""
    digest = hashlib.sha256()
    for name in sorted(vectors):
        digest.update(name.encode() + b"\0")
        digest.update(np.ascontiguousarray(vectors[name]).reshape(-1).view(np.uint8).data)  # no copy
    return digest.hexdigest()
