"""The models of a finished run as torch modules.

A personal model is made again from the run's last checkpoint, as the client made it for its last evaluation.
"""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from fedsim import registry
from fedsim.client.jobs import ClientJob, behaviour_of, task_of
from fedsim.engine.inline import InlineGrid
from fedsim.errors import ConfigError
from fedsim.files import read_npz
from fedsim.payload import ClientState, Job, PersonalModel
from fedsim.results import checkpoint
from fedsim.results.record import MODEL, read_manifest
from fedsim.server.app import build
from fedsim.server.roll_call import roll_call
from fedsim.weights import Weights

if TYPE_CHECKING:
    from fedsim.api.result import Result
    from fedsim.clients.task import TorchTask


class Predictor(nn.Module):
    """A personal model whose prediction is not the output of its network alone, such as the nearest prototype."""

    def __init__(self, trainer: Any, predict: Any) -> None:
        super().__init__()
        self.network = trainer.network
        self._trainer, self._predict = trainer, predict

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self._predict(self._trainer, x)
        return output


def personal_model(result: "Result", client: int) -> nn.Module:
    """The model that a client uses. Raises ConfigError if the run is not finished or has no such client."""
    config = _finished(result).config.replace(resume=False)
    if client not in range(config.clients):  # of whatever type it is
        raise ConfigError(f"client {client} does not exist: the run has clients 0 to {config.clients - 1}")
    grid = InlineGrid(config)
    try:
        fleet = roll_call(grid, config)
        server = build(config).server
        server.attach(fleet)
        fresh = server.init(fleet.initial, fleet)
        saved = checkpoint.newest(result.folder, type(fresh), fresh)
        if saved is None:
            raise ConfigError(f"{result.folder} has no checkpoint: its personal models are not known")
        state = saved.client_states.get(client, ClientState())
        down = server.instruct(saved.state, client, train=False)
        task, _ = task_of(config, client, fleet.classes)
        job = Job(client, saved.step, down, train=False)
        return _module(task, ClientJob(job, config, task, behaviour_of(config), state, True).personal)
    finally:
        grid.close()


def global_model(result: "Result") -> nn.Module:
    """The global model. Raises ConfigError if the run is not finished or has none."""
    config, path = _finished(result).config, result.folder / MODEL
    if not path.exists():
        raise ConfigError(f"{config.algorithm} has no global model: ask for that of a client, result.model(client=0)")
    task, _ = task_of(config, 0, max(len(client["labels"]) for client in read_manifest(result.folder)["clients"]))
    common = registry.find("algorithm", config.algorithm).common or "model"
    module = _module(task, PersonalModel(task.initial(common), network=common))
    tensors = {name: torch.from_numpy(array) for name, array in read_npz(path).items()}
    module.load_state_dict(tensors, strict=False)  # torch also counts batches in buffers, which the file does not hold
    return module


def _module(task: "TorchTask", model: Weights | PersonalModel) -> nn.Module:
    """A module of its own with these weights, in evaluation mode."""
    own = model if isinstance(model, PersonalModel) else PersonalModel(model)
    trainer = task.companion(own.weights, own.network)
    return (trainer.network if own.predict is None else Predictor(trainer, own.predict)).eval()


def _finished(result: "Result") -> "Result":
    if result.status != "finished":
        raise ConfigError(f"{result.folder} is {result.status}: its models are known when it is finished")
    return result
