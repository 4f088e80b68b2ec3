"""The federation that the tests in this folder share; each test leaves it as it found it."""

from collections.abc import Iterator

import pytest

from ..deployment import NODES, Deployment
from ..flower import free_port
from ..hosts import network


@pytest.fixture(scope="package")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """A federation that `fedsim deploy` started."""
    folder = tmp_path_factory.mktemp("federation")
    with network() as hosts:
        started = Deployment(folder, hosts, free_port(), free_port())
        (folder / "federation.toml").write_text(started.inventory())
        started.fedsim("init")
        try:
            assert started.fedsim("up").count("online (") == NODES
            yield started
        finally:
            started.attempt("down")
