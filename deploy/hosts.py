"""Machines and what can be done on them: run a command, put and fetch files. One way for this machine, ssh and the rest.

Nothing is assumed of a machine but a POSIX shell and Python. Whatever comes from there names it.
"""

import shlex
import subprocess
import sys
from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path, PurePosixPath

from deploy.inventory import VENV, Inventory, Machine
from fedsim.errors import FedsimError

PATIENCE = 120.0  # seconds for an ordinary command
SSH = ("ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "-o", "ServerAliveInterval=15")
INSIDE = 'cd "$0" 2> /dev/null || { echo "it is not set up: run \\`fedsim deploy up\\`" >&2; exit 1; }; exec "$@"'
PUT = 'umask 077; mkdir -p "$(dirname "$0")" && cat > "$0.new" && chmod "$1" "$0.new" && mv "$0.new" "$0"'


class Host:
    """One machine of the federation, in the role it has there (`server` or a node's name)."""

    def __init__(self, inventory: Inventory, name: str, machine: Machine) -> None:
        self.name, self.machine = name, machine
        self.folder, self._python = inventory.home(name, machine), python_of(machine)  # as the inventory says

    @cached_property
    def home(self) -> str:
        return self._absolute(self.folder)

    @cached_property
    def python(self) -> str:
        return self._absolute(self._python)

    def run(
        self,
        *command: str,
        stdin: bytes = b"",
        timeout: float = PATIENCE,
        inside: bool = True,
        fine: Container[int] = (0,),
    ) -> str:
        """What the command printed; its failure is ours, with the last line it said. `inside`: in the home folder."""
        try:
            done = subprocess.run(
                self.command(command, inside), input=stdin, capture_output=True, timeout=timeout, check=False
            )
        except subprocess.TimeoutExpired:
            raise FedsimError(f"{self.name}: {_brief(command)} took longer than {timeout:.0f} s") from None
        except OSError as error:
            raise FedsimError(f"{self.name}: {self._explain(127, f'{error.strerror}: {error.filename}')}") from error
        if done.returncode not in fine:
            said = (done.stderr or done.stdout).decode(errors="replace").strip().split("\n")[-1]
            raise FedsimError(f"{self.name}: {self._explain(done.returncode, said) or _brief(command)}")
        return done.stdout.decode(errors="replace")

    @contextmanager
    def stream(self, *command: str) -> Iterator[Iterator[str]]:
        """The lines a command prints, while it runs."""
        words = self.command(command)
        with subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,  # Ctrl-C is for us
        ) as process:
            assert process.stdout is not None
            try:
                yield (line.rstrip("\n") for line in process.stdout)
            finally:
                process.terminate()

    def command(self, command: Sequence[str], inside: bool = True) -> list[str]:
        """The words that run `command` there."""
        words = ["sh", "-c", INSIDE, self.home, *command] if inside else list(command)
        if self.machine.ssh:
            return [*SSH, *shlex.split(self.machine.ssh), shlex.join(words)]  # ssh hands one line to a shell
        return [*shlex.split(self.machine.via), *words]

    def put(self, name: str, content: bytes, private: bool = False) -> None:
        """A file in the home folder: there whole or not at all, private ones for their owner alone."""
        path = str(PurePosixPath(self.home) / name)
        self.run("sh", "-c", PUT, path, "600" if private else "644", stdin=content, inside=False)

    def fetch(self, folder: str, into: Path) -> None:
        """A copy of a folder over there."""
        into.mkdir(parents=True, exist_ok=True)
        pack = self.command(["tar", "-C", folder, "-cf", "-", "."])
        with subprocess.Popen(pack, stdout=subprocess.PIPE) as source:
            unpacked = subprocess.run(["tar", "-C", str(into), "-xf", "-"], stdin=source.stdout, check=False)
        if source.returncode or unpacked.returncode:
            raise FedsimError(f"{self.name}: {folder} could not be fetched into {into}")

    def module(self, name: str, *arguments: str, stdin: bytes = b"", fine: Container[int] = (0,)) -> str:
        """Runs a module there, as it is installed: `-P` keeps the folder we happen to be in out of it."""
        return self.run(self.python, "-P", "-m", name, *arguments, stdin=stdin, fine=fine)

    def code(self, text: str, *arguments: str, inside: bool = True) -> str:
        """Runs a few lines of Python there."""
        return self.run(self.python, "-P", "-c", text, *arguments, inside=inside)

    def _absolute(self, path: str) -> str:
        """Relative paths start in the login folder, elsewhere as here."""
        path = path.removeprefix("~/")
        if path.startswith("/"):
            return path
        return str(PurePosixPath(self.run("sh", "-c", "cd && pwd", inside=False).strip()) / path)

    def _explain(self, code: int, said: str) -> str:
        if self.machine.ssh and code == 255:
            return f"ssh {self.machine.ssh} failed: {said or 'no reason given'}. Is its `ssh` in the inventory right?"
        if code == 127:
            return f"{said}. Set `python` of {self.name} in the inventory, or run `fedsim deploy up --install`"
        return said.removeprefix("fedsim: ")


def python_of(machine: Machine) -> str:
    if not machine.python:
        return f"{VENV}/bin/python" if machine.ssh else sys.executable
    return machine.python if Path(machine.python).name.startswith("python") else f"{machine.python}/bin/python"


def _brief(command: Sequence[str]) -> str:
    return f"`{shlex.join(command)[:80]}` failed"
