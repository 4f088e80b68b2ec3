"""What the tests of real federations share besides the federation itself (`fedsim.deploy.chaos.deployment`)."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedsim import config as configs
from fedsim.deploy.chaos.deployment import NODES
from fedsim.engine.launch import launch
from tests.system_tools import BIN

from .flower import stop


@contextmanager
def process(command: list[str], folder: Path, log: str) -> Iterator["subprocess.Popen[bytes]"]:
    """One of Flower's programs; leaving the context ends it with everything it started."""
    quiet = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1", "FLWR_HOME": str(folder)}
    environment = {**os.environ, **quiet, "PATH": f"{BIN}:{os.environ['PATH']}"}
    with (folder / log).open("wb") as file:
        started = subprocess.Popen(
            command, stdout=file, stderr=file, cwd=folder, env=environment, start_new_session=True
        )
        try:
            yield started
        finally:
            stop(started)


def inline(folder: Path, *settings: str) -> Path:
    """The same run in this process."""
    launch(configs.read(None, [f"clients={NODES}", *settings, f"out={folder}"]), "inline")
    return folder
