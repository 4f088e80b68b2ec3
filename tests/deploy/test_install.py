"""A wheel of this fedsim, to be installed on other machines."""

import zipfile
from concurrent.futures import ThreadPoolExecutor

from fedsim.deploy.install import build_wheel


def test_two_wheels_can_be_built_at_once() -> None:
    """As two people do who set up federations from one checkout."""
    with ThreadPoolExecutor(2) as pool:
        one, two = [set(zipfile.ZipFile(wheel).namelist()) for wheel in pool.map(lambda _: build_wheel(), range(2))]
    assert one == two
    assert {"fedsim/cli.py", "fedsim/presets/spfl-table1.toml", "fedsim/deploy/render/templates/Dockerfile"} <= one
