"""The federation that the tests in this folder share; each test leaves it as it found it."""

from collections.abc import Iterator

import pytest

from fedsim.deploy.chaos.deployment import NODES, Deployment
from fedsim.deploy.chaos.network import network

from ..flower import free_port


@pytest.fixture(scope="package")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """A federation that `fedsim deploy` started."""
    folder = tmp_path_factory.mktemp("federation")
    with network() as hosts:
        started = Deployment(folder, hosts, [free_port() for _ in range(2 + NODES)])
        started.write_inventory()
        started.fedsim("init")
        try:
            assert started.fedsim("up").count("online (") == NODES
            yield started
        finally:
            started.attempt("down")
