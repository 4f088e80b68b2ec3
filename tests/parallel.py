"""Which tests run in the same pytest-xdist worker, and in which order they start.

Workers share nothing: a federation or a Ray that several modules use would be started in each worker that runs one of them.
A group of modules is therefore one unit of work; every other test is a unit by itself.
"""

from pathlib import Path
from typing import Any

import pytest
from _pytest.assertion import rewrite
from xdist.scheduler import LoadScopeScheduling

# Longest first: groups start together, and the many short tests fill the workers that are done.
GROUPS = (
    ("tests/system/deploy/test_deploy_failures.py",),
    ("tests/system/deploy/",),
    ("tests/system/test_four_ways.py", "tests/system/test_own_data.py"),
    ("tests/system/test_ray_cluster.py",),
    ("tests/system/test_ray_results.py", "tests/system/test_ray.py", "tests/api/"),
    ("tests/system/test_deploy_refusals.py",),
    ("tests/system/test_own_folders.py", "tests/system/test_plugin.py"),
    ("tests/system/test_ssh.py",),
    ("tests/system/test_page.py",),
    ("tests/site/test_site.py",),
    ("tests/deploy/render/",),
    ("tests/trackers/",),
    ("tests/results/test_prometheus.py",),
)


def order(item: pytest.Item) -> tuple[int, bool]:
    """Sorts groups as they are listed, then other tests that start processes, then the rest."""
    return _group(item.nodeid), item.get_closest_marker("system") is None


def _group(nodeid: str) -> int:
    return next((number for number, paths in enumerate(GROUPS) if nodeid.startswith(paths)), len(GROUPS))


class Scheduler(LoadScopeScheduling):
    """Gives the groups to workers, in the order of collection."""

    def __init__(self, config: pytest.Config, log: Any) -> None:
        config.option.loadscopereorder = False
        super().__init__(config, log)

    def _split_scope(self, nodeid: str) -> str:
        number = _group(nodeid)
        return nodeid if number == len(GROUPS) else f"group {number}"


def compile_tests(config: pytest.Config) -> None:
    """Compiles every test module as pytest does, unless it is compiled already: workers that find none would do so at the
    same time, each of them all."""
    state = config.stash[rewrite.assertstate_key]
    for path in Path(__file__).parent.rglob("*.py"):
        if path.name != "conftest.py" and not path.name.startswith("test_"):
            continue
        compiled = rewrite.get_cache_dir(path) / f"{path.stem}{rewrite.PYC_TAIL}"
        if rewrite._read_pyc(path, compiled) is None and rewrite.try_makedirs(compiled.parent):
            stat, code = rewrite._rewrite_test(path, config)
            rewrite._write_pyc(state, code, stat, compiled)
