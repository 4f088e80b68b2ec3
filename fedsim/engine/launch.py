"""Runs the ServerApp on one of our own engines."""

from flwr.app import Context, RecordDict

from fedsim import session
from fedsim.config import RunConfig
from fedsim.engine.local import RUN_ID, SERVER_NODE, LocalGrid
from fedsim.errors import unknown

ENGINES = ("ray", "inline")


def open_grid(config: RunConfig, engine: str, ray_address: str | None = None) -> LocalGrid:
    if engine not in ENGINES:
        unknown("engine", engine, ENGINES)
    if engine == "inline":
        from fedsim.engine.inline import InlineGrid

        return InlineGrid(config)
    from fedsim.engine.ray import RayGrid

    return RayGrid(config, ray_address)


def launch(config: RunConfig, engine: str, ray_address: str | None = None) -> None:
    """One run from start to end; the run folder holds what came out."""
    from fedsim.server_app import app
    from partitions.silo import shares

    session.rhythm(config)  # what is impossible is refused before anything starts
    shares(config)  # prepared once, before many workers ask
    grid = open_grid(config, engine, ray_address)
    try:
        app(grid, Context(RUN_ID, SERVER_NODE, {}, RecordDict(), dict(config.flat())))
    finally:
        grid.close()
