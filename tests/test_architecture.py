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


def imports(path: Path, only_top_level: bool) -> set[str]:
    """First parts of the modules a file imports."""
    tree = ast.parse(path.read_text())
    nodes = tree.body if only_top_level else list(ast.walk(tree))
    found = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    found |= {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
    return {name.split(".")[0] for name in found}


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_dependencies_point_one_way(package: str) -> None:
    for path in (ROOT / package).rglob("*.py"):
        composition_root = package == "fedsim"
        ours = imports(path, only_top_level=composition_root) & set(MAY_IMPORT)
        assert ours <= MAY_IMPORT[package], f"{path} imports {ours - MAY_IMPORT[package]}"


def test_only_the_apps_and_commands_reach_beyond_the_core() -> None:
    allowed = {"client_app.py", "launch.py"}
    for path in (ROOT / "fedsim").rglob("*.py"):
        beyond = imports(path, only_top_level=False) & {"strategies", "clients", "partitions", "deploy"}
        if beyond:
            assert path.name in allowed or path.parent.name in ("commands", "report"), f"{path} imports {beyond}"


@pytest.mark.parametrize("module", ["fedsim.server_app", "strategies.fedavg", "fedsim.cli", "deploy.doctor"])
def test_a_server_needs_neither_torch_nor_ray(module: str) -> None:
    code = f"import sys, {module}; print([m for m in ('torch', 'ray', 'sklearn', 'torchvision') if m in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


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
