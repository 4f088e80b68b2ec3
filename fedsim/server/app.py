"""The ServerApp: reads the configuration, builds the strategy, runs it. The same object on every engine."""

from importlib.util import find_spec
from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedsim import registry
from fedsim.aggregators import aggregator_of
from fedsim.algorithm import Algorithm
from fedsim.attacks import attack_of
from fedsim.config import RunConfig, from_run_config
from fedsim.errors import ConfigError
from fedsim.flower.object_pull import retry_sooner
from fedsim.flower.strategy import FlowerStrategy
from fedsim.logs import print_messages
from fedsim.results import progress
from fedsim.results.folder_lock import locked
from fedsim.results.record import Record, new_folder, old_folder

app = ServerApp()


def build(config: RunConfig) -> FlowerStrategy:
    """The configured algorithm as a Flower Strategy; raises ConfigError for a combination that cannot run."""
    algorithm: Algorithm[object] = registry.find("algorithm", config.algorithm)
    if missing := [name for name in algorithm.server_needs if find_spec(name) is None]:
        raise ConfigError(
            f"the server of {algorithm.name} needs {', '.join(missing)}: install it on the server's machine"
        )
    if config.aggregator != "mean" and not algorithm.server.averages:
        known = [n for n in registry.names("algorithm") if registry.find("algorithm", n).server.averages]
        raise ConfigError(
            f"aggregator={config.aggregator}: {algorithm.name} does not average its clients' updates. "
            f"Algorithms that do: {', '.join(known)}"
        )
    aggregator_of(config)  # refused here if a round has too few clients for it
    attack_of(config)
    return FlowerStrategy(algorithm.server(config.params(config.algorithm), config))


def run_folder(config: RunConfig) -> Path:
    """The folder of a new run, or of the run that is resumed; one that does not fit is refused."""
    return old_folder(config) if config.resume else new_folder(config)


@app.main()
def main(grid: Grid, context: Context) -> None:
    retry_sooner()
    print_messages()
    config = from_run_config(context.run_config)
    folder = run_folder(config)
    with locked(folder):
        config = config.replace(out=str(folder))
        run_folder(config)  # checked again: another process may just have ended there
        record = Record(folder, config, getattr(grid, "engine", "flower"), progress.for_output())
        build(config).start(grid, record=record)
