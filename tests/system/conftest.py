"""One real federation for all system tests that need one; each test leaves it as it found it."""

from collections.abc import Iterator

import pytest

from .flower import free_port
from .hosts import network
from .site import NODES, Site


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("federation")
    with network() as hosts:
        here = Site(folder, hosts, free_port(), free_port())
        (folder / "federation.toml").write_text(here.inventory())
        here.fedsim("init")
        try:
            assert here.fedsim("up").count("online (") == NODES
            yield here
        finally:
            here.attempt("down")
