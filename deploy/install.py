"""The same fedsim on another machine: a wheel of this one, into a virtual environment of its own."""

import shutil
import subprocess
import sys
import tempfile
from importlib.metadata import PackageNotFoundError, distribution, version
from pathlib import Path, PurePosixPath

from deploy.hosts import Host
from fedsim.errors import FedsimError

PATIENCE = 1800.0  # torch is large and lines are slow
SOURCE = ("pyproject.toml", "README.md", "fedsim", "strategies", "clients", "partitions", "deploy")
SETUPTOOLS = 77  # as pyproject.toml requires it


def install(host: Host, wheel: Path) -> str:
    """Makes the environment if it is not there, then installs; pip leaves alone what fits already."""
    environment = str(PurePosixPath(host.python).parent.parent)
    host.run(
        "sh", "-c", 'test -x "$0" || python3 -m venv "$1"', host.python, environment, inside=False, timeout=PATIENCE
    )
    host.put(wheel.name, wheel.read_bytes())
    pinned = [f"flwr[simulation]=={version('flwr')}"]
    pip = [host.python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    host.run(*pip, *pinned, f"./{wheel.name}", timeout=PATIENCE)
    host.run(*pip, "--no-deps", "--force-reinstall", f"./{wheel.name}", timeout=PATIENCE)
    return f"installed {wheel.name}"


def build_wheel() -> Path:
    """Built from the source this fedsim runs from."""
    source = Path(__file__).parent.parent
    if not (source / "pyproject.toml").exists():
        raise FedsimError(
            f"fedsim {distribution('fedsim').version} was not installed from its source here, so there is nothing to "
            "install elsewhere: install the same version there by hand"
        )
    folder = Path(tempfile.mkdtemp(prefix="fedsim-wheel-"))
    with tempfile.TemporaryDirectory() as copy:  # a build writes beside its source, where another one may be under way
        for name in SOURCE:
            part = source / name
            (shutil.copytree if part.is_dir() else shutil.copyfile)(part, Path(copy) / name)
        done = _wheel(Path(copy), folder)
    if done.returncode:
        raise FedsimError(f"no wheel of fedsim could be built: {done.stderr.strip().splitlines()[-1]}")
    (wheel,) = folder.glob("*.whl")
    return wheel


def _wheel(source: Path, folder: Path) -> "subprocess.CompletedProcess[str]":
    options = ["--quiet", "--no-deps", *_build_tool(), "--wheel-dir", str(folder)]
    command = [sys.executable, "-m", "pip", "wheel", *options, str(source)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def _build_tool() -> list[str]:
    """pip downloads it, unless it is here already."""
    try:
        return ["--no-build-isolation"] if int(version("setuptools").split(".")[0]) >= SETUPTOOLS else []
    except PackageNotFoundError:
        return []
