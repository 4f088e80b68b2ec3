"""Installs this fedsim on another machine: a wheel built from its source, in a virtual environment of its own."""

import shutil
import subprocess
import sys
import tempfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path, PurePosixPath

from fedsim.deploy.hosts import Host
from fedsim.distribution import installed_version
from fedsim.errors import FedsimError

PATIENCE = 1800.0  # seconds; torch is large and connections are slow
SOURCE = Path(__file__).resolve().parent.parent  # the folder of pyproject.toml, if fedsim runs from its source
PARTS = ("pyproject.toml", "README.md", "fedsim")  # the other packages are links inside fedsim
SETUPTOOLS = 77  # the first version that pyproject.toml accepts


def install(host: Host, wheel: Path) -> str:
    """Creates the environment if it is missing and installs the wheel with this machine's version of Flower."""
    environment = str(PurePosixPath(host.python).parent.parent)
    create = 'test -x "$0" || python3 -m venv "$1"'
    host.run("sh", "-c", create, host.python, environment, in_home=False, timeout=PATIENCE)
    host.put(wheel.name, wheel.read_bytes())
    pip = [host.python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    host.run(*pip, f"flwr[simulation]=={version('flwr')}", f"./{wheel.name}", timeout=PATIENCE)
    host.run(*pip, "--no-deps", "--force-reinstall", f"./{wheel.name}", timeout=PATIENCE)
    return f"installed {wheel.name}"


def build_wheel() -> Path:
    """Builds a wheel of the source that this fedsim runs from; raises FedsimError if it does not run from source."""
    if not (SOURCE / "pyproject.toml").exists():
        raise FedsimError(
            f"fedsim {installed_version()} was not installed from its source here, so there is nothing to "
            "install elsewhere: install the same version there by hand"
        )
    folder = Path(tempfile.mkdtemp(prefix="fedsim-wheel-"))
    with tempfile.TemporaryDirectory() as copy:  # a build writes beside its source, where another one may be under way
        for name in PARTS:
            part = SOURCE / name
            (shutil.copytree if part.is_dir() else shutil.copyfile)(part, Path(copy) / name)
        done = _pip_wheel(Path(copy), folder)
    if done.returncode:
        raise FedsimError(f"no wheel of fedsim could be built: {done.stderr.strip().splitlines()[-1]}")
    (wheel,) = folder.glob("*.whl")
    return wheel


def _pip_wheel(source: Path, folder: Path) -> "subprocess.CompletedProcess[str]":
    options = ["--quiet", "--no-deps", *_isolation(), "--wheel-dir", str(folder)]
    command = [sys.executable, "-m", "pip", "wheel", *options, str(source)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def _isolation() -> list[str]:
    """pip downloads setuptools for the build, unless a version that serves is installed."""
    try:
        return ["--no-build-isolation"] if int(version("setuptools").split(".")[0]) >= SETUPTOOLS else []
    except PackageNotFoundError:
        return []
