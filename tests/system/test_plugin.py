"""A third-party package with an algorithm: installed by pip, listed, and run by name."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fedsim.results.record import read_summary

PLUGIN = Path(__file__).parent / "plugin"
pytestmark = pytest.mark.system


def install(package: Path, target: Path) -> None:
    """As a user would, but into a folder of this test."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*command, "--target", str(target), str(package)], check=True, capture_output=True)


def fedsim(*arguments: str, packages: Path, folder: Path | None = None) -> "subprocess.CompletedProcess[str]":
    command = [str(Path(sys.executable).parent / "fedsim"), *arguments]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(packages), os.environ.get("PYTHONPATH", "")])}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def copy_of_plugin(folder: Path, **replacements: str) -> Path:
    folder.mkdir()
    for path in PLUGIN.iterdir():
        if path.is_file():
            text = path.read_text()
            for old, new in replacements.items():
                text = text.replace(old.replace("_", "-"), new)
            (folder / path.name).write_text(text)
    return folder


def test_the_example_is_complete_and_short() -> None:
    lines = [line for path in PLUGIN.glob("*.*") if path.is_file() for line in path.read_text().splitlines()]
    assert len(lines) < 80


def test_installed_listed_and_run(own_folders: Path, tmp_path: Path) -> None:
    """Run on Ray, from a folder with packages of the user's own that are called like those of fedsim."""
    packages = tmp_path / "packages"
    install(copy_of_plugin(tmp_path / "source"), packages)
    listed = json.loads(fedsim("list", "algorithms", "--json", packages=packages).stdout)["algorithms"]
    entry = next(a for a in listed if a["name"] == "fedavgm-clipped")
    assert entry["params"] == {"beta": 0.5, "clip": 1.0}

    setting = ["--set", "algorithm=fedavgm-clipped", "--set", "fedavgm-clipped.beta=0.8", "--set", "rounds=3"]
    done = fedsim("run", *setting, "--out", str(tmp_path / "run"), packages=packages, folder=own_folders)
    assert done.returncode == 0, done.stderr
    summary = read_summary(tmp_path / "run")
    assert (summary["algorithm"], summary["engine"]) == ("fedavgm-clipped", "ray")
    assert summary["accuracy"]["global"]["final"] > 0.5

    wrong = fedsim("run", "--set", "algorithm=fedavgm-clipped", "--set", "fedavgm-clipped.beta=1", packages=packages)
    assert wrong.returncode == 2
    assert "beta must be at least 0 and below 1" in wrong.stderr


def test_a_name_clash_is_an_error_that_names_both(tmp_path: Path) -> None:
    packages = tmp_path / "packages"
    install(copy_of_plugin(tmp_path / "source", fedavgm_clipped="fedavg"), packages)
    done = fedsim("run", "--engine", "inline", "--out", str(tmp_path / "run"), packages=packages)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert (
        "'fedavg' is registered twice, by fedsim.strategies.fedavg:FEDAVG and by fedavgm_example:FEDAVGM_CLIPPED"
        in line
    )
