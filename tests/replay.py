"""Computes the model that a client should have after certain jobs, as the reference for persistent client state."""

from collections.abc import Iterable

from fedsim.clients.local import LocalOnly
from fedsim.clients.task import TorchTask
from fedsim.config import NoParams, RunConfig
from fedsim.partitions.client_data import client_data
from fedsim.payload import ClientState, Downlink
from fedsim.rng import stream
from fedsim.weights import Vec


def own_model(config: RunConfig, client: int, steps: Iterable[int]) -> dict[str, Vec]:
    """The client's model of algorithm `local` after its training jobs of these steps, by tensor name."""
    data = client_data(config, client)
    task, state = TorchTask(config, data, data.classes), ClientState()
    for step in steps:
        LocalOnly(NoParams()).train(task, Downlink(), state, stream(config.seed, client, step, 0, "train"))
    return task.layout.named(state.weights["model"])
