"""A user's script beside folders `clients`, `strategies`, `partitions` and `deploy` of its own: each keeps its packages.

`own_folders` is such a folder; the federations of test_four_ways.py are started from it, too.
"""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from fedsim.deploy.install import build_wheel
from fedsim.results.record import read_summary

pytestmark = pytest.mark.system
SETTINGS = ("model=mlr", "clients=3", "rounds=2", "algorithm=fedavg-ft", "partition=dirichlet")
SCRIPT = """
import sys
from pathlib import Path

import clients.mine, deploy.mine, partitions.mine, strategies.mine

import fedsim
from fedsim.config import read
from fedsim.engine.launch import launch

if __name__ == "__main__":
    here, (engine, out, *settings) = Path(__file__).parent, sys.argv[1:]
    launch(read(None, [*settings, f"out={out}"]), engine)
    for package in (clients, deploy, partitions, strategies):
        assert Path(package.__file__).parent.parent == here
        assert package.mine.OWNER == f"the user of {package.__name__}"
    print(fedsim.__file__)
"""


def run(*command: str | Path, folder: Path, packages: Path | None = None) -> str:
    """Runs a command in this folder, with additional packages; returns its output."""
    path = os.pathsep.join([*([str(packages)] if packages else []), os.environ.get("PYTHONPATH", "")])
    words, environment = [str(word) for word in command], {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def script(own_folders: Path) -> Path:
    path = own_folders / "script.py"
    path.write_text(SCRIPT)
    return path


@pytest.fixture(scope="module")
def wheel() -> Path:
    return build_wheel()


def test_a_script_imports_its_own_packages_and_runs_on_ray(script: Path, tmp_path: Path) -> None:
    run(sys.executable, script, "ray", tmp_path / "run", *SETTINGS, folder=script.parent)
    assert read_summary(tmp_path / "run")["engine"] == "ray"


def test_the_command_runs_there(script: Path, tmp_path: Path) -> None:
    """As a module, which puts the folder on the path of Python; test_plugin.py runs `fedsim` there, on Ray."""
    settings = [word for setting in SETTINGS for word in ("--set", setting)]
    command = (sys.executable, "-m", "fedsim.cli", "run", "--engine", "inline", "--out", tmp_path / "run", *settings)
    run(*command, folder=script.parent)
    assert read_summary(tmp_path / "run")["engine"] == "inline"


def test_a_wheel_holds_the_package_fedsim_alone(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {"fedsim"}
    assert {
        "fedsim/py.typed",
        "fedsim/cli.py",
        "fedsim/strategies/fedavg.py",
        "fedsim/clients/local_sgd.py",
        "fedsim/partitions/client_data.py",
        "fedsim/deploy/agent.py",
        "fedsim/deploy/render/templates/Dockerfile",
        "fedsim/presets/spfl-table1.toml",
        "fedsim/report/html/run.js",
        "fedsim/book/pages.toml",
    } <= set(names)


def test_an_installed_wheel_runs_beside_own_folders(wheel: Path, script: Path, tmp_path: Path) -> None:
    packages = tmp_path / "packages"
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index")
    run(*pip, "--target", packages, wheel, folder=tmp_path)
    command = (sys.executable, script, "inline", tmp_path / "run", *SETTINGS)
    output = run(*command, folder=script.parent, packages=packages)
    assert Path(output.splitlines()[-1]).is_relative_to(packages)
    assert read_summary(tmp_path / "run")["failures"] == []
