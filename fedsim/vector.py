"""Models as flat float32 vectors, and the few operations on them that every strategy shares. No torch here."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

Vec = NDArray[np.float32]
BLOCK = 1 << 13  # floats per block of the blocked sums: N x BLOCK stays in cache, memory stays flat


@dataclass(frozen=True)
class Tensor:
    """One named parameter of a model, and the stage it belongs to."""

    name: str
    shape: tuple[int, ...]
    stage: str

    @property
    def size(self) -> int:
        return prod(self.shape)


@dataclass(frozen=True)
class Layout:
    """How named tensors lie in the flat vector, in order. Buffers (BatchNorm statistics) are kept apart: not parameters."""

    parameters: tuple[Tensor, ...]
    buffers: tuple[Tensor, ...] = ()

    @cached_property
    def size(self) -> int:
        return sum(t.size for t in self.parameters)

    @cached_property
    def buffer_size(self) -> int:
        return sum(t.size for t in self.buffers)

    @cached_property
    def slices(self) -> Mapping[str, slice]:
        """Where each parameter lies in the flat vector."""
        ends = np.cumsum([t.size for t in self.parameters]).tolist()
        return {t.name: slice(end - t.size, end) for t, end in zip(self.parameters, ends, strict=True)}

    @cached_property
    def stages(self) -> Mapping[str, tuple[slice, ...]]:
        """Stage -> the runs of the flat vector it covers (neighbouring tensors merged), in the model's order."""
        runs: dict[str, list[slice]] = {}
        for tensor in self.parameters:
            where = self.slices[tensor.name]
            stage = runs.setdefault(tensor.stage, [])
            if stage and stage[-1].stop == where.start:
                stage[-1] = slice(stage[-1].start, where.stop)
            else:
                stage.append(where)
        return {stage: tuple(parts) for stage, parts in runs.items()}

    def mask(self, stages: Iterable[str]) -> NDArray[np.bool_]:
        """Which entries of the flat vector belong to these stages."""
        chosen = np.zeros(self.size, bool)
        for stage in stages:
            for part in self.stages[stage]:
                chosen[part] = True
        return chosen

    def split(self, vector: Vec) -> Iterator[tuple[Tensor, Vec]]:
        """Each parameter with its values, as views into the vector."""
        for tensor in self.parameters:
            yield tensor, vector[self.slices[tensor.name]].reshape(tensor.shape)

    def named(self, vector: Vec, buffers: Vec) -> dict[str, Vec]:
        """A model by tensor name, buffers included."""
        ends = np.cumsum([t.size for t in self.buffers])[:-1]
        values = np.split(buffers, ends) if self.buffers else []
        kept = {t.name: v.reshape(t.shape) for t, v in zip(self.buffers, values, strict=True)}
        return {t.name: v for t, v in self.split(vector)} | kept

    def to_json(self) -> str:
        rows = {"parameters": self.parameters, "buffers": self.buffers}
        return json.dumps({k: [[t.name, list(t.shape), t.stage] for t in v] for k, v in rows.items()})

    @classmethod
    def from_json(cls, text: str) -> "Layout":
        def tensors(rows: Iterable[Any]) -> tuple[Tensor, ...]:
            return tuple(Tensor(name, tuple(shape), stage) for name, shape, stage in rows)

        tree = json.loads(text)
        return cls(tensors(tree["parameters"]), tensors(tree["buffers"]))


def blocks(size: int) -> Iterator[slice]:
    return (slice(start, min(start + BLOCK, size)) for start in range(0, size, BLOCK))


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


def fingerprint(vectors: Mapping[str, Vec]) -> str:
    """sha256 over named vectors: equal exactly when every bit is."""
    digest = hashlib.sha256()
    for name in sorted(vectors):
        digest.update(name.encode() + b"\0" + np.ascontiguousarray(vectors[name]).tobytes())
    return digest.hexdigest()
