"""The ServerApp: reads the configuration, builds the strategy, runs it. The same object on every engine."""

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedsim import progress, registry
from fedsim.algorithm import Algorithm, ServerStrategy
from fedsim.config import RunConfig, from_run_config
from fedsim.haste import ask_sooner
from fedsim.record import Record, new_folder, old_folder

app = ServerApp()


def build(config: RunConfig) -> ServerStrategy[object, object]:
    """The configured algorithm's server half."""
    algorithm: Algorithm[object] = registry.find("algorithm", config.algorithm)
    return algorithm.server(config.params(config.algorithm), config)


@app.main()
def main(grid: Grid, context: Context) -> None:
    ask_sooner()
    config = from_run_config(context.run_config)
    folder = old_folder(config) if config.resume else new_folder(config)
    record = Record(folder, config, getattr(grid, "engine", "flower"), progress.for_output())
    build(config).start(grid, record=record)
