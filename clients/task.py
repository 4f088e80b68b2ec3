"""A client's data and networks in torch, behind the `Task` contract of plain values."""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from inspect import signature
from math import prod
from threading import get_ident
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedsim import peak_memory, registry
from fedsim.algorithm import ClassStatistics, Dataset, Fit, Statistic
from fedsim.clients.building import build_model
from fedsim.clients.objectives import Objective
from fedsim.clients.pretrained import load_pretrained
from fedsim.clients.seeded import seeded
from fedsim.clients.training import (
    BatchStep,
    GradientHook,
    Loss,
    Samples,
    Trainer,
    load,
    one_step,
    part_of,
    precision_of,
    steps_of,
    weights_of,
)
from fedsim.config import RunConfig
from fedsim.errors import ConfigError
from fedsim.layout import BATCH_NORM, NORM, Layout, Part
from fedsim.layout import Tensor as Entry
from fedsim.partitions.client_data import ClientData
from fedsim.partitions.public import PublicData
from fedsim.payload import Array, Metrics
from fedsim.rng import stream
from fedsim.server.fleet import DRAW
from fedsim.weights import Weights

TEST_BATCH = 1024
PARAMETER = "params."  # begins the target of a network that a parameter of the algorithm names
Predict = Any  # (trainer, inputs) -> output, see `payload.PersonalModel`


class TorchTask:
    """One client's task. All tasks of a thread share one network object, into which every call loads its weights."""

    def __init__(
        self, config: RunConfig, data: ClientData, classes: int, client: int = 0, goal: tuple[Any, Any] | None = None
    ) -> None:
        """`goal`: inputs and the labels that an attacker wants for them."""
        torch.set_num_threads(config.threads)
        self._client = client  # its id, which chooses the samples that it holds out
        self.config, self.lr, self.batches_read = config, config.lr, 0
        self.device = device_of(config.device)
        self.examples = len(data.y_train)
        self.objective: Objective = registry.find("objective", data.objective)()
        self.shape = data.x_train.shape[1:]
        self._vocabulary = data.vocabulary
        self.output_size = classes or prod(
            data.y_train.shape[1:]
        )  # of real-valued targets, one for each of their entries
        self.layout = self._network.layout
        # whole numbers that are no token ids are real numbers to a model that says what it takes
        self._real = not data.vocabulary and getattr(self._network.module, "kind", None) is not None
        self._samples = {
            "train": samples_of(data.x_train, data.y_train, self.device, self._real),
            "test": samples_of(data.x_test, data.y_test, self.device, self._real),
        }
        self.labels = self._samples["train"].labels(classes)
        if goal is not None:
            self._samples["attack"] = samples_of(*goal, self.device, self._real)
        self._public = data.public

    @property
    def nbytes(self) -> int:
        """Of the samples that it keeps in memory."""
        return sum(samples.nbytes for samples in self._samples.values())

    @property
    def _network(self) -> "Network":
        return self.network("model")

    def network(self, name: str) -> "Network":
        """The run's model (`model`), another network of its algorithm, or a registered model."""
        return network(self.config, name, self.shape, self.output_size, self.device, get_ident(), self._vocabulary)

    def initial(self, network: str = "model") -> Weights:
        return self.network(network).initial.copy()

    def fit(
        self,
        start: Weights,
        rng: np.random.Generator,
        *,
        train: Part | None = None,
        epochs: int | None = None,
        steps: int | None = None,
        loss: Loss | None = None,
        gradient: GradientHook | None = None,
        step: BatchStep | None = None,
        samples: Samples | None = None,
        batch_size: int | None = None,
        lr: float | None = None,
    ) -> Fit:
        if train is not None and train.size == 0:  # such as the base of a linear model
            return Fit(start, 0.0, 0)
        trainer = self._trainer(self._network.module, start, rng, train, samples, batch_size, lr)
        steps = steps_of(len(trainer.samples), trainer.config, epochs) if steps is None else steps
        mean = trainer.run(steps, step or one_step(gradient, loss))
        if samples is None:  # only the client's own batches are read on by the next job
            self.batches_read += steps
        after = trainer.weights()
        return Fit(after if train is None else start.with_part(train, after.only(train)), mean, steps)

    def companion(self, start: Weights, network: str = "model", train: Part | None = None) -> Trainer:
        trainer = self._trainer(copy.deepcopy(self.network(network).module), start, np.random.default_rng(0), train)
        trainer.network.train()
        return trainer

    def evaluate(
        self, weights: Weights, on: Dataset = "test", predict: Predict = None, network: str = "model"
    ) -> Metrics | None:
        samples = self.samples(on)
        if len(samples) == 0:
            return None
        trainer = self._trainer(self.network(network).module, weights, np.random.default_rng(0))
        trainer.network.eval()
        totals: dict[str, float] = {}
        count = 0
        with torch.inference_mode(), precision_of(self.config, self.device):
            for x, y in samples.chunks(TEST_BATCH):
                sums, measured = self.objective.measure(predict(trainer, x) if predict else trainer.network(x), y)
                totals = {name: totals.get(name, 0.0) + value for name, value in sums.items()}
                count += measured
        if not count:  # targets that are nothing but padding
            return None
        means = {name: total / count for name, total in totals.items()}
        return {**means, **getattr(self.objective, "derived", _nothing)(means)}

    def outputs(self, weights: Weights, on: Dataset = "test") -> Array:
        trainer = self._trainer(self._network.module, weights, np.random.default_rng(0))
        trainer.network.eval()
        with torch.inference_mode():
            found = [trainer.network(x) for x, _ in self.samples(on).chunks(TEST_BATCH)]
            return torch.cat(found).cpu().numpy()

    def by_class(self, weights: Weights, of: Statistic = "features") -> ClassStatistics:
        trainer = self._trainer(self._network.module, weights, np.random.default_rng(0))
        trainer.network.eval()
        rows: list[Tensor] = []
        labels: list[Tensor] = []
        with torch.inference_mode():
            for x, y in self.samples("train").chunks(TEST_BATCH):
                features = part_of(trainer.network, "base")(x)
                rows.append(trainer.head(features).softmax(1) if of == "probabilities" else features.flatten(1))
                labels.append(y)
            values, owner = torch.cat(rows).double(), torch.cat(labels)
            values = nn.functional.normalize(values) if of == "directions" else values
            one_hot = nn.functional.one_hot(owner, self.output_size).double()
            counts = one_hot.sum(0)
            shares = one_hot / counts.clamp(min=1)
            means, squares = shares.T @ values, shares.T @ values.square().sum(1)
        found = (counts.long(), means.float(), squares.float())
        return ClassStatistics(*(value.cpu().numpy() for value in found))

    def held_out(
        self, share: float, rng: np.random.Generator | None = None
    ) -> tuple["TorchTask", Callable[[Weights], float]]:
        rng = stream(self.config.seed, self._client, "held-out") if rng is None else rng
        order, count = rng.permutation(self.examples), round(share * self.examples)
        if count >= self.examples:
            raise ConfigError(f"client {self._client} cannot hold out {count} of {self.examples} training samples")
        rest, samples = copy.copy(self), self.samples("train").only(order[:count])
        kept = self.samples("train").only(np.sort(order[count:]))
        rest._samples = {**self._samples, "train": kept}
        rest.examples, rest.labels = len(kept), kept.labels(len(self.labels))

        def loss(weights: Weights) -> float:
            return self._losses([weights], samples)[0]

        return rest, loss

    def losses(self, models: Sequence[Weights], on: Dataset = "train") -> list[float]:
        return self._losses(models, self.samples(on))

    def _losses(self, models: Sequence[Weights], samples: Samples) -> list[float]:
        network, totals = self._network.module, [0.0] * len(models)
        network.eval()
        with torch.inference_mode():
            for x, y in samples.chunks(TEST_BATCH):
                for place, weights in enumerate(models):
                    load(network, weights)  # cheap beside the pass of a batch, and all models need one network's memory
                    totals[place] += float(self.objective.loss(network(x), y)) * len(y)
        return [total / len(samples) for total in totals]

    def peak_memory(self) -> dict[str, float]:
        peaks = {"memory": peak_memory.peak()}
        peak_memory.reset()
        if self.device.type == "cuda":
            peaks["gpu-memory"] = torch.cuda.max_memory_allocated(self.device) / 1e6
            torch.cuda.reset_peak_memory_stats(self.device)
        return peaks

    def _trainer(
        self,
        module: nn.Module,
        start: Weights,
        rng: np.random.Generator,
        train: Part | None = None,
        samples: Samples | None = None,
        batch_size: int | None = None,
        lr: float | None = None,
    ) -> Trainer:
        load(module, start)
        own, read = (self.samples("train"), self.batches_read) if samples is None else (samples, 0)
        config = self.config if batch_size is None else self.config.replace(batch_size=batch_size)
        return Trainer(module, own, self.objective, config, self.lr if lr is None else lr, rng, train, read)

    def has(self, name: Dataset) -> bool:
        """Whether it has data of this name."""
        return name in self._samples or (name == "public" and self._public is not None)

    def samples(self, name: Dataset) -> Samples:
        """The client's own data of this name, or the public data; raises ConfigError if it has none."""
        if name == "public" and self._public is not None:
            return public_samples(self._public, self.device, self._real)
        if name not in self._samples:
            raise ConfigError(f"this client has no {name} data. It has: {', '.join(self._samples)}")
        return self._samples[name]


def _nothing(means: Metrics) -> Metrics:
    return {}


@lru_cache(maxsize=2)
def public_samples(public: PublicData, device: torch.device, real: bool) -> Samples:
    """One copy for all clients of a process."""
    return samples_of(public.x, public.y, device, real)


def samples_of(x: NDArray[Any], y: NDArray[Any], device: torch.device, real: bool) -> Samples:
    """`real`: inputs are real numbers, however they are stored."""
    return Samples(x.astype(np.float32, copy=False) if real else x, y, device)


def device_of(wanted: str) -> torch.device:
    """auto: a GPU if this process sees one."""
    if wanted == "auto":
        wanted = "cuda" if torch.cuda.is_available() else "cpu"
    device = torch.device(wanted)
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ConfigError(f"device={wanted} was asked for, but {torch.cuda.device_count()} GPUs are visible here")
    return device


def layout_of(module: nn.Module) -> Layout:
    """A stage is a top-level child; its name is the part of the parameter's name before the first dot."""
    kinds = {name: _kind(child) for name, child in module.named_modules()}

    def entry(name: str, tensor: Tensor) -> Entry:
        return Entry(name, tuple(tensor.shape), name.split(".")[0], kinds[name.rpartition(".")[0]])

    floats = [(n, b) for n, b in module.named_buffers() if b.is_floating_point()]
    return Layout(tuple(entry(n, p) for n, p in module.named_parameters()), tuple(entry(n, b) for n, b in floats))


def _kind(module: nn.Module) -> str:
    if isinstance(module, nn.modules.batchnorm._BatchNorm):
        return BATCH_NORM
    others = (nn.LayerNorm, nn.GroupNorm, nn.modules.instancenorm._InstanceNorm)
    return NORM if isinstance(module, others) else ""


@dataclass(frozen=True)
class Network:
    """A network object with its layout and its initial weights; in words, what of a checkpoint these are not."""

    module: nn.Module
    layout: Layout
    initial: Weights
    note: str = ""


@lru_cache(maxsize=128)  # several architectures, several networks of an algorithm, several threads
def network(
    config: RunConfig,
    name: str,
    shape: tuple[int, ...],
    classes: int,
    device: torch.device,
    thread: int = 0,
    vocabulary: int = 0,
) -> Network:
    """A network of the run; its initial weights depend on the seed and its name alone, not on the machine.

    Threads must not share a network: `thread` is the id of the one that asks. `vocabulary`: different token ids of the
    samples; 0: they are no tokens.
    """
    networks, key, note = registry.find("algorithm", config.algorithm).networks, ["network", name], ""
    drawn = name.startswith(DRAW)
    if name == "model" or drawn:
        model, key = config.model, key if drawn else ["model"]
    elif networks.get(name, "").startswith(PARAMETER):
        chosen = getattr(config.params(config.algorithm), networks[name].removeprefix(PARAMETER))
        if not chosen:
            return network(config, "model", shape, classes, device, thread, vocabulary)
        model = chosen
    elif name in networks:
        model = ""
    elif name in registry.providers("model") or registry.is_place("model", name):
        model = name
    else:
        raise ConfigError(
            f"{config.algorithm} declares no network {name!r}. It declares: {', '.join(networks) or 'none'}. "
            f"Registered models: {', '.join(registry.names('model'))}"
        )
    with seeded(int(stream(config.seed, *key).integers(2**63))):
        if model:
            module = build_model(model, shape, classes, vocabulary)
        else:
            make = registry.load(networks[name])
            module = make(shape, classes, **_further(make, config, shape, classes, device, vocabulary))
    if config.pretrained and (name == "model" or drawn):
        note = load_pretrained(module, config.pretrained, head=not drawn)  # draws of a whole checkpoint would be one
    module.to(device).to(memory_format=torch.channels_last)
    if config.compile:
        module.compile()
    return Network(module, layout_of(module), weights_of(module), note)


def _further(
    make: Any, config: RunConfig, shape: tuple[int, ...], classes: int, device: torch.device, vocabulary: int
) -> Mapping[str, int]:
    """What a factory of a further network asks for by name, besides the shape of a sample and the classes.

    features    the width of the features of the run's model
    vocabulary  how many different token ids the samples can hold; 0: they are no tokens
    """
    asked, further = signature(make).parameters, {}
    if "vocabulary" in asked:
        further["vocabulary"] = vocabulary
    if "features" in asked:
        model = network(config, "model", shape, classes, device, vocabulary=vocabulary)
        further["features"] = model.layout.features
    return further
