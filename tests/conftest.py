"""Shared by all tests: prepared data goes to a folder of the test session, runs happen in this process."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedsim import config as configs
from fedsim.config import RunConfig
from fedsim.engine.launch import launch
from fedsim.record import read_summary


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Any:
    patch = pytest.MonkeyPatch()
    patch.setenv("FEDSIM_CACHE", str(tmp_path_factory.mktemp("cache")))
    yield
    patch.undo()


@pytest.fixture
def small() -> Callable[..., RunConfig]:
    """A small run on digits: 4 unequal clients, 2 rounds, a linear model; anything can be overridden by key."""

    def make(*overrides: str) -> RunConfig:
        base = ["clients=4", "rounds=2", "model=mlr", "partition=dirichlet", "batch-size=64", "checkpoint-every=1"]
        return configs.read(None, [*base, *overrides])

    return make


@pytest.fixture
def finished(tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """Runs a configuration to the end and returns its summary."""

    def run(config: RunConfig, engine: str = "inline", name: str = "run") -> dict[str, Any]:
        folder = tmp_path / name
        launch(config.replace(out=str(folder)), engine)
        return read_summary(folder)

    return run
