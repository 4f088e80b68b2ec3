"""The ServerApp: reads the configuration, builds the strategy, runs it. The same object on every engine."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NoReturn

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedsim import registry
from fedsim.aggregators import PublicAggregator, aggregator_of
from fedsim.algorithm import Algorithm, ServerStrategy
from fedsim.attacks import attack_of
from fedsim.config import RunConfig, from_run_config
from fedsim.errors import ConfigError
from fedsim.flower.object_pull import retry_sooner
from fedsim.flower.strategy import FlowerStrategy
from fedsim.logs import print_messages
from fedsim.results import progress
from fedsim.results.folder_lock import locked
from fedsim.results.observers import observed_by
from fedsim.results.record import Record, new_folder, old_folder
from fedsim.server.roll_call import check_models
from fedsim.server_optimizers import server_optimizer_of
from fedsim.trackers.run_log import logged

app = ServerApp()


def build(config: RunConfig) -> FlowerStrategy:
    """The configured algorithm as a Flower Strategy; raises ConfigError for a combination that cannot run."""
    algorithm: Algorithm[object] = registry.find("algorithm", config.algorithm)
    _check_server(config, algorithm.name, algorithm.server_needs, algorithm.public)
    chosen = f"aggregator={config.aggregator}"
    compares = issubclass(config.part("aggregator"), PublicAggregator)
    if compares:
        _check_server(config, chosen, ("torch",), ("server",))
    check_models(config, config.models)
    server = algorithm.server
    if config.aggregator != "mean" and not server.averages:
        why = f"{algorithm.name} does not average its clients' updates"
        _refuse(chosen, why, lambda other: other.averages)
    if compares and not server.averages_model:
        why = f"{algorithm.name} does not average updates of the run's whole model alone"
        _refuse(chosen, why, lambda other: other.averages_model)
    if not (server.optimizes or server_optimizer_of(config).plain):
        why = f"{algorithm.name} takes no step along a mean of its clients' updates"
        _refuse(f"server-optimizer={config.server_optimizer}", why, lambda other: other.optimizes)
    if server.no_finetune and config.params("finetune").length != 0:
        why = f"{algorithm.name} cannot be fine-tuned by its clients: {server.no_finetune}"
        _refuse(f"finetune={config.finetune}", why, lambda other: not other.no_finetune)
    if server.no_newcomers and config.unseen:
        why = f"{algorithm.name} cannot serve clients that never took part: {server.no_newcomers}"
        _refuse("partition.unseen", why, lambda other: not other.no_newcomers)
    aggregator_of(config)  # refused here if a round has too few clients for it
    attack_of(config)
    return FlowerStrategy(server(config.params(config.algorithm), config))


def _check_server(config: RunConfig, what: str, needs: Sequence[str], public: Sequence[str]) -> None:
    """Raises ConfigError unless packages and public data are there that an algorithm, or an aggregator, uses."""
    if missing := [name for name in needs if find_spec(name) is None]:
        raise ConfigError(f"the server of {what} needs {', '.join(missing)}: install it on the server's machine")
    if public and not config.public:
        raise ConfigError(f"{what} needs public data: set public=N, the number of samples")
    if "server" in public:
        registry.load("fedsim.partitions.public:public_data")(config)  # raises ConfigError if it is not there


def _refuse(setting: str, why: str, allows: Callable[[type[ServerStrategy[Any, Any]]], bool]) -> NoReturn:
    """Raises ConfigError for a setting that the algorithm cannot follow, with the algorithms that can."""
    known = [name for name in registry.names("algorithm") if allows(registry.find("algorithm", name).server)]
    raise ConfigError(f"{setting}: {why}. Algorithms that do: {', '.join(known)}")


def run_folder(config: RunConfig) -> Path:
    """The folder of a new run, or of the run that is resumed; one that does not fit is refused."""
    return old_folder(config) if config.resume else new_folder(config)


@app.main()
def main(grid: Grid, context: Context) -> None:
    retry_sooner()
    config = from_run_config(context.run_config)
    print_messages(config.log_format)
    folder = run_folder(config)
    with locked(folder):
        config = config.replace(out=str(folder))
        run_folder(config)  # checked again: another process may just have ended there
        with _exporting(config), logged(config):
            shown = progress.for_output(config.log_format)
            record = Record(folder, config, getattr(grid, "engine", "flower"), shown)
            build(config).start(grid, record=record)


@contextmanager
def _exporting(config: RunConfig) -> Iterator[None]:
    """Serves metrics of the run that happens inside, if it asks for them. Raises ConfigError if the port cannot be had."""
    if not config.metrics:
        yield
        return
    from fedsim.results.prometheus import Exporter

    exporter = Exporter(config.metrics)
    try:
        with observed_by([exporter]):
            yield
    finally:
        exporter.close()
