"""A client's data and model in torch, behind the `Task` contract of numpy vectors."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from clients.local_sgd import Lesson, Trainer, length, one_step
from fedsim import memory, registry
from fedsim.algorithm import Fit
from fedsim.config import RunConfig
from fedsim.errors import ConfigError
from fedsim.rng import stream
from fedsim.vector import Layout, Vec
from fedsim.vector import Tensor as Entry
from partitions.silo import ClientData

TEST_BATCH = 1024


class TorchTask:
    """One client. Clients of a process share one model object: a job loads its own weights first."""

    def __init__(self, config: RunConfig, data: ClientData, classes: int) -> None:
        torch.set_num_threads(config.threads)
        self.config = config
        self.device = device_of(config.device)
        self.examples, self.read = len(data.y_train), 0
        shape = data.x_train.shape[1:]
        self._network = network(config, (shape[0], shape[1], shape[2]), classes, self.device)
        self._model, self.layout = self._network.module, self._network.layout
        self._x, self._y = self._images(data.x_train), torch.from_numpy(data.y_train).to(self.device)
        self._x_test, self._y_test = self._images(data.x_test), torch.from_numpy(data.y_test).to(self.device)

    def initial(self) -> Vec:
        return self._network.initial.copy()

    def initial_buffers(self) -> Vec:
        return self._network.initial_buffers.copy()

    def fit(
        self,
        start: Vec,
        rng: np.random.Generator,
        *,
        buffers: Vec | None = None,
        epochs: int | None = None,
        steps: int | None = None,
        lesson: Lesson | None = None,
    ) -> Fit:
        self._load(start, buffers)
        steps = length(self.examples, self.config, epochs) if steps is None else steps
        trainer = Trainer(self._model, self._x, self._y, self.config, rng, self.read)
        loss = trainer.descend(steps, lesson or one_step())
        self.read += steps
        return Fit(flatten(self._model.parameters()), flatten(buffers_of(self._model)), loss, steps)

    def accuracy(self, model: Vec, buffers: Vec | None = None) -> float | None:
        count = len(self._y_test)
        if count == 0:
            return None
        self._load(model, buffers)
        self._model.eval()
        correct = 0
        with torch.inference_mode():
            for start in range(0, count, TEST_BATCH):
                logits = self._model(self._x_test[start : start + TEST_BATCH].permute(0, 3, 1, 2))
                correct += int((logits.argmax(1) == self._y_test[start : start + TEST_BATCH]).sum())
        return correct / count

    def memory(self) -> dict[str, float]:
        """Peaks in MB since it was last asked: of this process, and of what torch took on its GPU."""
        peaks = {"memory": memory.peak()}
        memory.forget()
        if self.device.type == "cuda":
            peaks["gpu-memory"] = torch.cuda.max_memory_allocated(self.device) / 1e6
            torch.cuda.reset_peak_memory_stats(self.device)
        return peaks

    def _images(self, x: Any) -> Tensor:
        """N x C x H x W -> channels-last in memory, which is also what is fast."""
        return torch.from_numpy(x).permute(0, 2, 3, 1).contiguous().to(self.device)

    def _load(self, model: Vec, buffers: Vec | None) -> None:
        assign(self._model.parameters(), model)
        if self.layout.buffers:
            assign(buffers_of(self._model), self._network.initial_buffers if buffers is None else buffers)


def device_of(wanted: str) -> torch.device:
    """auto: a GPU if this process sees one."""
    if wanted == "auto":
        wanted = "cuda" if torch.cuda.is_available() else "cpu"
    device = torch.device(wanted)
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ConfigError(f"device={wanted} was asked for, but {torch.cuda.device_count()} GPUs are visible here")
    return device


def layout_of(model: nn.Module) -> Layout:
    """A stage is a top-level child; its name is the part of the parameter's name before the first dot."""

    def entry(name: str, tensor: Tensor) -> Entry:
        return Entry(name, tuple(tensor.shape), name.split(".")[0])

    floats = [(n, b) for n, b in model.named_buffers() if b.is_floating_point()]
    return Layout(tuple(entry(n, p) for n, p in model.named_parameters()), tuple(entry(n, b) for n, b in floats))


def flatten(tensors: Iterator[Any]) -> Vec:
    parts = [t.detach().reshape(-1) for t in tensors]
    flat: Vec = torch.cat(parts).cpu().numpy() if parts else np.empty(0, np.float32)
    return flat


def assign(tensors: Iterator[Any], vector: Vec) -> None:
    """Copies the vector's parts into the tensors, in order."""
    source, start = torch.from_numpy(np.require(vector, requirements="W")), 0
    with torch.no_grad():
        for tensor in tensors:
            tensor.copy_(source[start : start + tensor.numel()].view(tensor.shape))
            start += tensor.numel()


def buffers_of(model: nn.Module) -> Iterator[Tensor]:
    """BatchNorm's statistics and the like, without its counters."""
    return (b for b in model.buffers() if b.is_floating_point())


@dataclass(frozen=True)
class Network:
    """A model object with the layout and the initial values of its tensors."""

    module: nn.Module
    layout: Layout
    initial: Vec
    initial_buffers: Vec


@lru_cache(maxsize=4)
def network(config: RunConfig, shape: tuple[int, int, int], classes: int, device: torch.device) -> Network:
    """The run's model; its initial weights depend on the seed alone, not on the machine."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(stream(config.seed, "model").integers(2**63)))
        module: nn.Module = registry.find("model", config.model)(shape, classes)
    start, buffers = flatten(module.parameters()), flatten(buffers_of(module))
    module.to(device).to(memory_format=torch.channels_last)
    return Network(module, layout_of(module), start, buffers)
