"""The house rules that a machine can check."""

import ast
import subprocess
import sys
import tomllib
from dataclasses import fields
from pathlib import Path

import pytest

from fedsim.config import EXTRA_KEY, RunConfig, from_run_config, key_of

ROOT = Path(__file__).parent.parent
# Who may import whom. The three apps of fedsim load the other packages by name, inside functions.
MAY_IMPORT = {
    "fedsim": {"fedsim"},
    "strategies": {"fedsim", "strategies"},
    "partitions": {"fedsim", "partitions"},
    "clients": {"fedsim", "clients", "partitions"},
    "deploy": {"fedsim", "deploy"},
}


PACKAGES = ("strategies", "clients", "partitions", "deploy")


def sources(package: str) -> list[Path]:
    """The files of a package; what is linked into `fedsim` belongs to the package beside it."""
    found = (ROOT / package).rglob("*.py")
    return [path for path in found if package != "fedsim" or path.relative_to(ROOT).parts[1] not in PACKAGES]


def imports(path: Path, only_top_level: bool) -> set[str]:
    """The packages a file imports: `fedsim` is its core, the others stand for themselves."""
    tree = ast.parse(path.read_text())
    nodes = tree.body if only_top_level else list(ast.walk(tree))
    found = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    found |= {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
    parts = [[*name.split("."), ""] for name in found]
    return {inner if outer == "fedsim" and inner in PACKAGES else outer for outer, inner, *_ in parts}


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_dependencies_point_one_way(package: str) -> None:
    for path in sources(package):
        composition_root = package == "fedsim"
        ours = imports(path, only_top_level=composition_root) & set(MAY_IMPORT)
        assert ours <= MAY_IMPORT[package], f"{path} imports {ours - MAY_IMPORT[package]}"


def test_only_the_apps_commands_and_the_python_api_reach_beyond_the_core() -> None:
    allowed = {"fedsim/__init__.py", "fedsim/client/jobs.py", "fedsim/engine/launch.py"}
    for path in sources("fedsim"):
        beyond = imports(path, only_top_level=False) & set(PACKAGES)
        if beyond:
            assert str(path.relative_to(ROOT)) in allowed or path.parent.name in (
                "api",
                "book",
                "commands",
                "report",
            ), f"{path} imports {beyond}"


@pytest.mark.parametrize(
    "module",
    ["fedsim.server.app", "fedsim.strategies.fedavg", "fedsim.strategies.kt_pfl", "fedsim.cli", "fedsim.deploy.doctor"],
)
def test_a_server_needs_neither_torch_nor_ray(module: str) -> None:
    code = f"import sys, {module}; print([m for m in ('torch', 'ray', 'sklearn', 'torchvision') if m in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_no_algorithm_loads_torch_before_its_run_starts() -> None:
    code = (
        "import sys; from fedsim import registry;"
        "[registry.find('algorithm', name) for name in registry.names('algorithm')]; assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_inline_runs_do_not_import_ray(tmp_path: Path) -> None:
    code = (
        "import sys; from fedsim.cli import main;"
        f"assert main(['run', '--engine', 'inline', '--out', {str(tmp_path / 'run')!r}, '--set', 'rounds=1',"
        "'--set', 'model=mlr']) == 0; assert 'ray' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_flower_knows_every_config_key() -> None:
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
    keys = {key_of(f.name) for f in fields(RunConfig) if f.name != "sections"}
    assert set(listed) == keys | {EXTRA_KEY}
    assert from_run_config(listed) == RunConfig()
