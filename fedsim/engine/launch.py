"""Runs the ServerApp on one of fedsim's own engines."""

from pathlib import Path

from flwr.app import Context, RecordDict

from fedsim.config import RunConfig
from fedsim.engine import ENGINES
from fedsim.engine.base import RUN_ID, SERVER_NODE, LocalGrid
from fedsim.errors import unknown
from fedsim.results.record import new_folder
from fedsim.results.waiting import waiting
from fedsim.server.run import pace_and_stragglers
from fedsim.trackers.base import trackers_of


def open_grid(config: RunConfig, engine: str, ray_address: str | None = None) -> LocalGrid:
    if engine not in ENGINES:
        unknown("engine", engine, ENGINES)
    if engine == "inline":
        from fedsim.engine.inline import InlineGrid

        return InlineGrid(config)
    from fedsim.engine.ray import RayGrid

    return RayGrid(config, ray_address)


def launch(config: RunConfig, engine: str, ray_address: str | None = None) -> Path:
    """Runs a federation from start to end and returns its run folder: `out`, or a new one below runs/."""
    from fedsim.partitions.client_data import shares
    from fedsim.server.app import app

    pace_and_stragglers(config)  # an impossible pace or straggler model is refused before anything starts
    trackers_of(config)  # so is a tracker that is not installed
    with waiting(f"preparing {config.dataset}"):
        shares(config)  # once, before many workers need it
    config = config if config.resume else config.replace(out=str(new_folder(config)))
    with waiting(f"starting {engine}"):
        grid = open_grid(config, engine, ray_address)
    try:
        app(grid, Context(RUN_ID, SERVER_NODE, {}, RecordDict(), dict(config.flat())))
    finally:
        grid.close()
    return Path(config.out)
