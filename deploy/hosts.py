"""Commands and files on the machines of a federation: on this machine, by ssh, or through any other command.

A machine needs a POSIX shell and Python. Every error names the machine it is about.
"""

import shlex
import subprocess
import sys
from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path, PurePosixPath

from fedsim.deploy.inventory import VENV, Inventory, Machine
from fedsim.errors import FedsimError

PATIENCE = 120.0  # seconds for an ordinary command
SSH = ("ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "-o", "ServerAliveInterval=15")
# Shell scripts; $0 and the following are their arguments.
IN_FOLDER = 'cd "$0" 2> /dev/null || { echo "it is not set up: run \\`fedsim deploy up\\`" >&2; exit 1; }; exec "$@"'
WRITE_FILE = (
    'to_disk() { sync "$1" 2> /dev/null || sync; }; umask 077; folder=$(dirname "$0"); mkdir -p "$folder" && '
    'cat > "$0.new" && chmod "$1" "$0.new" && to_disk "$0.new" && mv "$0.new" "$0" && to_disk "$folder"'
)


class Host:
    """One machine in its role in the federation; `name` is "server" or a node's name."""

    def __init__(self, inventory: Inventory, name: str, machine: Machine) -> None:
        self.name, self.machine = name, machine
        self.folder, self._python = inventory.home(name, machine), python_path(machine)  # as the inventory says

    @cached_property
    def home(self) -> str:
        """The absolute path of the home folder over there."""
        return self._absolute(self.folder)

    @cached_property
    def python(self) -> str:
        """The absolute path of the Python interpreter over there."""
        return self._absolute(self._python)

    def run(
        self,
        *command: str,
        stdin: bytes = b"",
        timeout: float = PATIENCE,
        in_home: bool = True,
        exit_codes: Container[int] = (0,),
    ) -> str:
        """Runs a command, in the home folder unless told otherwise, and returns its output.

        Raises FedsimError with the last line of its output if it exits with another code or takes too long.
        """
        try:
            done = subprocess.run(
                self.command(command, in_home), input=stdin, capture_output=True, timeout=timeout, check=False
            )
        except subprocess.TimeoutExpired:
            raise FedsimError(f"{self.name}: {_brief(command)} took longer than {timeout:.0f} s") from None
        except OSError as error:
            raise FedsimError(f"{self.name}: {self._explain(127, f'{error.strerror}: {error.filename}')}") from error
        if done.returncode not in exit_codes:
            last = (done.stderr or done.stdout).decode(errors="replace").strip().split("\n")[-1]
            raise FedsimError(f"{self.name}: {self._explain(done.returncode, last) or _brief(command)}")
        return done.stdout.decode(errors="replace")

    @contextmanager
    def stream(self, *command: str, stdin: bytes = b"") -> Iterator[Iterator[str]]:
        """The lines that a command prints, while it runs; leaving the context ends it. `stdin`: a few bytes for it."""
        with subprocess.Popen(
            self.command(command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,  # Ctrl-C reaches this process alone
        ) as process:
            assert process.stdout is not None
            assert process.stdin is not None
            try:
                with suppress(BrokenPipeError), process.stdin as pipe:  # it may have ended already
                    pipe.write(stdin.decode())
                yield (line.rstrip("\n") for line in process.stdout)
            finally:
                process.terminate()

    def command(self, command: Sequence[str], in_home: bool = True) -> list[str]:
        """The command line that runs `command` on that machine."""
        words = ["sh", "-c", IN_FOLDER, self.home, *command] if in_home else list(command)
        if self.machine.ssh:
            return [*SSH, *shlex.split(self.machine.ssh), shlex.join(words)]  # ssh passes one line to a shell
        return [*shlex.split(self.machine.via), *words]

    def put(self, name: str, content: bytes, private: bool = False) -> None:
        """Writes a file into the home folder, completely or not at all; private: readable by its owner alone."""
        path = str(PurePosixPath(self.home) / name)
        self.run("sh", "-c", WRITE_FILE, path, "600" if private else "644", stdin=content, in_home=False)

    def fetch(self, folder: str, into: Path) -> None:
        """Copies a folder of that machine to this one."""
        into.mkdir(parents=True, exist_ok=True)
        pack = self.command(["tar", "-C", folder, "-cf", "-", "."])
        with subprocess.Popen(pack, stdout=subprocess.PIPE) as source:
            unpacked = subprocess.run(["tar", "-C", str(into), "-xf", "-"], stdin=source.stdout, check=False)
        if source.returncode or unpacked.returncode:
            raise FedsimError(f"{self.name}: {folder} could not be fetched into {into}")

    def run_module(self, name: str, *arguments: str, stdin: bytes = b"", exit_codes: Container[int] = (0,)) -> str:
        """Runs an installed Python module; `-P` keeps the current folder out of its import path."""
        return self.run(self.python, "-P", "-m", name, *arguments, stdin=stdin, exit_codes=exit_codes)

    def run_code(self, text: str, *arguments: str, in_home: bool = True) -> str:
        """Runs a few lines of Python."""
        return self.run(self.python, "-P", "-c", text, *arguments, in_home=in_home)

    def _absolute(self, path: str) -> str:
        """A relative path starts in the login folder."""
        path = path.removeprefix("~/")
        if path.startswith("/"):
            return path
        return str(PurePosixPath(self.run("sh", "-c", "cd && pwd", in_home=False).strip()) / path)

    def _explain(self, code: int, last_line: str) -> str:
        if self.machine.ssh and code == 255:
            reason = last_line or "no reason given"
            return f"ssh {self.machine.ssh} failed: {reason}. Is its `ssh` in the inventory right?"
        if code == 127:
            return f"{last_line}. Set `python` of {self.name} in the inventory, or run `fedsim deploy up --install`"
        return last_line.removeprefix("fedsim: ")


def python_path(machine: Machine) -> str:
    """The interpreter that the inventory asks for: given itself, as the folder of its environment, or by default."""
    if not machine.python:
        return f"{VENV}/bin/python" if machine.ssh else sys.executable
    return machine.python if Path(machine.python).name.startswith("python") else f"{machine.python}/bin/python"


def _brief(command: Sequence[str]) -> str:
    return f"`{shlex.join(command)[:80]}` failed"
