"""What a client's own jobs make of its model when it trains alone: the reference for lasting state."""

from collections.abc import Iterable

from clients.local_only import LocalOnly
from clients.task import TorchTask
from fedsim.config import NoParams, RunConfig
from fedsim.payload import Downlink, Memory
from fedsim.rng import stream
from fedsim.vector import Vec
from partitions.silo import client_data


def own_model(config: RunConfig, client: int, steps: Iterable[int]) -> dict[str, Vec]:
    """The model of algorithm `local` after the jobs of these steps, by tensor name."""
    data = client_data(config, client)
    task, memory = TorchTask(config, data, data.classes), Memory()
    for step in steps:
        LocalOnly(NoParams()).train(task, Downlink(), memory, stream(config.seed, client, step, 0, "train"))
    return task.layout.named(memory.vectors["model"], memory.vectors["buffers"])
