"""Shared by all tests: prepared data goes to a folder of the test session, runs happen in this process."""

import gc
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedsim import config as configs
from fedsim import registry
from fedsim.config import RunConfig
from fedsim.engine.launch import launch
from fedsim.results.record import read_summary
from tests import parallel, system_tools

STARTUP = str(Path(__file__).parent / "startup")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skips a test whose programs are missing, see `tests.system_tools`; fails it with CI=true."""
    if names := system_tools.missing(item):
        item.user_properties += [(system_tools.PROPERTY, name) for name in names]
        reason = f"needs {', '.join(names)}"
        if os.environ.get("CI") == "true":
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)


def pytest_configure(config: pytest.Config) -> None:
    """Sets what the processes that tests start inherit, those of pytest-xdist included.

    They load the module in tests/startup and find fedsim compiled. Tests interrupt some with SIGINT, which a shell lets the
    processes of a background job ignore. Ray's workers get the priority of everything else: with Ray's default of 15, tests
    beside them let them starve.
    """
    path = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    os.environ["PYTHONPATH"] = os.pathsep.join([STARTUP, *(folder for folder in path if folder not in ("", STARTUP))])
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ.setdefault("RAY_worker_niceness", "0")
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if getattr(config.option, "numprocesses", None):  # not in the workers themselves
        parallel.compile_tests(config)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=parallel.order)


def pytest_collection_finish() -> None:
    """Spares the garbage collector everything that is loaded by now, which lives as long as the process."""
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> parallel.Scheduler:
    return parallel.Scheduler(config, log)


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Closes the run with one line about what was not tested."""
    if skipped := terminalreporter.stats.get("skipped"):
        terminalreporter.write_line(system_tools.not_tested(skipped))


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Any:
    patch = pytest.MonkeyPatch()
    patch.setenv("FEDSIM_CACHE", str(tmp_path_factory.mktemp("cache")))
    yield
    patch.undo()


@pytest.fixture
def own_names() -> Any:
    """Names of objects that a test passes to the Python API are gone after it."""
    yield
    for kind, name in registry.added():
        registry._objects.pop((kind, name))
        registry.providers(kind).pop(name)
    registry.find.cache_clear()


@pytest.fixture
def small() -> Callable[..., RunConfig]:
    """Makes the configuration of a small run on digits: 4 unequal clients, 2 rounds, a linear model, and overrides.

    An algorithm that needs public data gets some."""

    def make(*overrides: str) -> RunConfig:
        base = ["clients=4", "rounds=2", "model=mlr", "partition=dirichlet", "batch-size=64", "checkpoint-every=1"]
        algorithm = str(configs.assignments(overrides).get("algorithm", "fedavg"))
        public = ["public=60"] if registry.find("algorithm", algorithm).public else []
        return configs.read(None, [*base, *public, *overrides])

    return make


@pytest.fixture
def finished(tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """Runs a configuration to the end and returns its summary."""

    def run(config: RunConfig, engine: str = "inline", name: str = "run") -> dict[str, Any]:
        folder = tmp_path / name
        launch(config.replace(out=str(folder)), engine)
        return read_summary(folder)

    return run
