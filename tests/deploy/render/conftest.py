"""One federation and everything that is rendered of it, for all tests that only read."""

from pathlib import Path

import pytest

from fedsim.deploy.inventory import Inventory
from fedsim.deploy.render import KINDS, render

from .example import make


@pytest.fixture(scope="package")
def inventory(tmp_path_factory: pytest.TempPathFactory) -> Inventory:
    return make(tmp_path_factory.mktemp("federation"))


@pytest.fixture(scope="package")
def rendered(inventory: Inventory, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("rendered")
    for kind in KINDS:
        written = list(render(inventory, kind, folder / kind))
        assert all(path.is_file() for path in written)
    return {kind: folder / kind for kind in KINDS}
