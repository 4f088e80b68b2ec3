"""How the named tensors of a model lie in flat vectors, and which entries form its parts. No torch here."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsim.errors import ConfigError, unknown
from fedsim.weights import Vec, Weights

Mask = NDArray[np.bool_]
BATCH_NORM, NORM = "batch-norm", "norm"  # kinds of tensors that normalization layers own
VECTORS = "vectors"


@dataclass(frozen=True)
class Tensor:
    """One named parameter or buffer of a model."""

    name: str
    shape: tuple[int, ...]
    stage: str  # the top-level child of the model that it belongs to
    kind: str = ""  # "batch-norm", "norm" (layer, group and instance normalization), or empty

    @property
    def size(self) -> int:
        return prod(self.shape)

    @property
    def layer(self) -> str:
        """The module that owns it."""
        return self.name.rpartition(".")[0] or self.name


@dataclass(frozen=True, eq=False)
class Part:
    """Which entries of a model's parameters and buffers belong to a part of it."""

    parameters: Mask
    buffers: Mask

    def __invert__(self) -> "Part":
        return Part(~self.parameters, ~self.buffers)

    def __or__(self, other: "Part") -> "Part":
        return Part(self.parameters | other.parameters, self.buffers | other.buffers)

    @property
    def size(self) -> int:
        return int(self.parameters.sum())

    @property
    def buffer_size(self) -> int:
        return int(self.buffers.sum())


@dataclass(frozen=True)
class Layout:
    """The parameters and the float buffers (BatchNorm statistics) of a model, in the order of its flat vectors."""

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
        return _slices(self.parameters)

    @cached_property
    def stages(self) -> Mapping[str, tuple[slice, ...]]:
        """Stage -> the ranges of the flat vector it covers (neighbouring tensors merged), in the model's order."""
        ranges: dict[str, list[slice]] = {}
        for tensor in self.parameters:
            where = self.slices[tensor.name]
            stage = ranges.setdefault(tensor.stage, [])
            if stage and stage[-1].stop == where.start:
                stage[-1] = slice(stage[-1].start, where.stop)
            else:
                stage.append(where)
        return {stage: tuple(parts) for stage, parts in ranges.items()}

    def part(self, *names: str) -> Part:
        """The union of these parts; raises ConfigError with the choices for an unknown name.

        "all"; "head": the stage of that name, else the last stage; "base": everything but the head; "norm": all
        normalization layers; "batch-norm": BatchNorm alone; "buffers": no parameter and every buffer; "vectors": every
        buffer and the parameters of one axis; or the name of a stage or of a module inside one, such as "base.2". No
        name: the empty part.
        """
        union = self._where(lambda t: False)
        for name in names:
            union |= self._part(name)
        return union

    @cached_property
    def layers(self) -> tuple[str, ...]:
        """The modules that own parameters, by name, in the model's order."""
        return tuple(dict.fromkeys(t.layer for t in self.parameters))

    @cached_property
    def features(self) -> int:
        """The width of the head's input; raises ConfigError if the head is not one linear layer with a bias."""
        shapes = [t.shape for t in self.parameters if t.stage == self._head]
        if len(shapes) != 2 or len(shapes[0]) != 2 or shapes[1] != shapes[0][:1]:
            raise ConfigError(f"the head of this model is not one linear layer: its tensors have the shapes {shapes}")
        return shapes[0][1]

    @cached_property
    def matrices(self) -> tuple[Tensor, ...]:
        """Parameters of more than one axis, which are not in the part "vectors"."""
        return tuple(t for t in self.parameters if len(t.shape) > 1)

    @property
    def _head(self) -> str:
        return "head" if "head" in self.stages else list(self.stages)[-1]

    def _part(self, name: str) -> Part:
        if name == "all":
            return self._where(lambda t: True)
        if name == "head":
            return self._where(lambda t: t.stage == self._head)
        if name == "base":
            return self._where(lambda t: t.stage != self._head)
        if name == VECTORS:
            return Part(~self._where(lambda t: t in self.matrices).parameters, np.ones(self.buffer_size, bool))
        if name in (NORM, BATCH_NORM):
            return self._where(lambda t: t.kind == BATCH_NORM or t.kind == name)
        if name == "buffers":
            return Part(np.zeros(self.size, bool), np.ones(self.buffer_size, bool))
        inside = self._where(lambda t: t.stage == name or t.name.startswith(f"{name}."))
        if not inside.size:
            parts = {"all", "head", "base", NORM, BATCH_NORM, "buffers", VECTORS, *self.stages, *self.layers}
            unknown("part of the model", name, parts)
        return inside

    def _where(self, chosen: Any) -> Part:
        def mask(tensors: Iterable[Tensor]) -> Mask:
            flags = [np.full(t.size, chosen(t)) for t in tensors]
            return np.concatenate(flags) if flags else np.zeros(0, bool)

        return Part(mask(self.parameters), mask(self.buffers))

    def split(self, vector: Vec) -> Iterator[tuple[Tensor, Vec]]:
        """Each parameter with its values, as views into the vector."""
        for tensor in self.parameters:
            yield tensor, vector[self.slices[tensor.name]].reshape(tensor.shape)

    def named(self, weights: Weights) -> dict[str, Vec]:
        """A model by tensor name, buffers included."""
        places = _slices(self.buffers)
        buffers = {t.name: weights.buffers[places[t.name]].reshape(t.shape) for t in self.buffers}
        return {t.name: v for t, v in self.split(weights.parameters)} | buffers

    def check(self, weights: Weights, what: str) -> None:
        """Raises ConfigError if `weights` are not of this layout."""
        found, wanted = (weights.parameters.size, weights.buffers.size), (self.size, self.buffer_size)
        if found != wanted:
            raise ConfigError(
                f"{what} has {found[0]} parameters and {found[1]} buffers; the model has {wanted[0]} and {wanted[1]}"
            )

    def to_json(self) -> str:
        rows = {"parameters": self.parameters, "buffers": self.buffers}
        return json.dumps({k: [[t.name, list(t.shape), t.stage, t.kind] for t in v] for k, v in rows.items()})

    @classmethod
    def from_json(cls, text: str) -> "Layout":
        """Raises ValueError, TypeError or KeyError for a text that `to_json` did not make."""

        def tensors(rows: Iterable[Any]) -> tuple[Tensor, ...]:
            return tuple(tensor(*row) for row in rows)

        def tensor(name: str, shape: list[int], stage: str, kind: str) -> Tensor:
            if not all(isinstance(text, str) for text in (name, stage, kind)):
                raise ValueError("a tensor without a name")
            if not all(isinstance(n, int) and not isinstance(n, bool) and n >= 0 for n in shape):
                raise ValueError(f"tensor {name} of shape {shape}")
            return Tensor(name, tuple(shape), stage, kind)

        tree = json.loads(text)
        return cls(tensors(tree["parameters"]), tensors(tree["buffers"]))


def _slices(tensors: Iterable[Tensor]) -> dict[str, slice]:
    places, start = {}, 0
    for tensor in tensors:
        places[tensor.name] = slice(start, start + tensor.size)
        start += tensor.size
    return places
