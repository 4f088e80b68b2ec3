"""Runs a measurement in a new interpreter, so that measurements share neither a Ray session nor caches."""

import os
import tempfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

QUIET = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}


def pool(workers: int, log: Path | None = None) -> ProcessPoolExecutor:
    """New processes; their output goes to the file `log` if it is given."""
    os.environ.update(QUIET)
    return ProcessPoolExecutor(workers, get_context("spawn"), _redirect, (log,))


def fresh(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Runs `function(...)` in a process of its own. Its output is added to the exception if it fails."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        try:
            with pool(1, log) as one:
                return one.submit(function, *args, **kwargs).result()
        except Exception as error:
            if log.exists():
                error.add_note(log.read_text()[-4000:])
            raise


def _redirect(log: Path | None) -> None:
    if log is not None:
        with log.open("a") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
