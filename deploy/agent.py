"""The agent of one machine: keeps the server's or a node's processes running, and stops all of them at once.

    python -m deploy.agent start|stop|status HOME   as a process group of its own, in the background
    python -m deploy.agent run HOME                 in the foreground, for systemd and containers

HOME holds server.json or node.json (see `deploy.federation`), the keys it names, the logs and what must last. A process that
ends is started again, after a pause that grows: Flower refuses a SuperNode for a minute after a crash.
"""

import argparse
import fcntl
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from deploy.files import write_private
from fedsim.errors import FedsimError

LOCK, LOG, SECRET = "agent.lock", "agent.log", "executor.secret"
FIRST_PAUSE, LAST_PAUSE, STEADY = 1.0, 30.0, 60.0  # seconds before a restart; and after which it counts as running well
GRACE = 10.0  # seconds to end by itself
LOG_BYTES = 20_000_000  # a log longer than this is put aside
QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.5",  # how soon a ServerApp starts
    "PYTHONUNBUFFERED": "1",
}


def commands(home: Path) -> dict[str, list[str]]:
    """What runs on this machine, by name."""
    bin_ = Path(sys.executable).parent
    if (home / "server.json").exists():
        about = json.loads((home / "server.json").read_text())
        tls = ["--ssl-certfile", about["certificate"], "--ssl-keyfile", about["key"], "--ssl-ca-certfile", about["ca"]]
        link = [str(bin_ / "flower-superlink"), *tls, "--enable-supernode-auth", "--isolation", "process"]
        link += ["--database", "superlink.db", "--host", "127.0.0.1", "--port", str(about["control-port"])]
        link += ["--fleet-api-address", f"{about['bind']}:{about['fleet-port']}"]
        link += ["--superexec-auth-secret-file", SECRET, "--disable-runtime-dependency-installation"]
        executor = [str(bin_ / "flower-superexec"), "--runtime-api-address", f"127.0.0.1:{about['control-port']}"]
        executor += ["--root-certificates", about["ca"], "--superexec-auth-secret-file", SECRET]
        return {"superlink": link, "superexec": executor}
    about = json.loads((home / "node.json").read_text())
    node = [sys.executable, "-P", "-m", "deploy.supernode", "--superlink", about["superlink"]]
    node += ["--root-certificates", about["ca"], "--auth-supernode-private-key", about["key"]]
    node += ["--isolation", "process", "--host", "127.0.0.1", "--port", str(about["port"])]
    node += ["--superexec-auth-secret-file", SECRET, "--node-config", _pairs(_rooted(about["config"], home))]
    executor = [sys.executable, "-P", "-m", "deploy.executor", f"127.0.0.1:{about['port']}", SECRET]
    return {"supernode": node, "executor": executor}


@dataclass
class Child:
    """One process that has to run."""

    name: str
    command: list[str]
    home: Path
    environment: dict[str, str]
    process: "subprocess.Popen[bytes] | None" = None
    started: float = 0.0
    due: float = 0.0  # when to start it next
    pause: float = field(default=FIRST_PAUSE)

    @property
    def log(self) -> Path:
        return self.home / f"{self.name}.log"

    def tend(self) -> None:
        now = time.monotonic()
        _put_aside(self.log)
        if self.process is not None and self.process.poll() is None:
            return
        if self.process is not None:
            self.pause = FIRST_PAUSE if now - self.started > STEADY else min(2 * self.pause, LAST_PAUSE)
            self.due = now + self.pause
            _say(f"{self.name} ended with {self.process.returncode}; starting it again in {self.pause:.0f} s")
            self.process = None
        if now >= self.due:
            self._start(now)

    def _start(self, now: float) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command, cwd=self.home, env=self.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        self.started = now
        _say(f"{self.name} started, process {self.process.pid}")


def run(home: Path) -> int:
    """Tends the processes until it is told to end."""
    with _alone(home):
        if not (home / SECRET).exists():
            write_private(home / SECRET, secrets.token_bytes(32))
        (home / "flwr").mkdir(exist_ok=True)
        environment = _environment(home)
        children = [Child(name, command, home, environment) for name, command in commands(home).items()]
        if missing := [child.command[0] for child in children if not Path(child.command[0]).exists()]:
            raise FedsimError(f"{missing[0]} is not there: install flwr in the environment of {sys.executable} again")
        ending: list[int] = []
        for sign in (signal.SIGTERM, signal.SIGINT):
            signal.signal(sign, lambda number, frame: ending.append(number))
        while not ending and home.exists():  # whoever lost its home serves nobody
            for child in children:
                child.tend()
            time.sleep(0.1)
        _end([child.process for child in children if child.process is not None])
        _say("ended")
    return 0


def start(home: Path) -> str:
    """Leaves an agent behind in a session of its own."""
    if running(home) is not None:
        return "already running"
    with (home / LOG).open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "deploy.agent", "run", str(home)],
            cwd=home,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    deadline = time.monotonic() + GRACE
    while running(home) is None:
        if process.poll() is not None or time.monotonic() > deadline:
            last = ((home / LOG).read_text().strip() or "it said nothing").splitlines()[-1]
            raise FedsimError(f"the agent did not start: {last}. See {home / LOG}")
        time.sleep(0.05)
    return "started"


def stop(home: Path) -> str:
    """Ends the agent's whole process group, and what is left of one whose agent was killed."""
    group = running(home)
    orphaned = group is None
    if group is None:
        group = _last_group(home)
    if group is None:
        return "was not running"
    # An agent ends its processes itself: a second signal would cut their goodbye short.
    end = os.killpg if orphaned else os.kill
    for kill, sign, patience in ((end, signal.SIGTERM, 2 * GRACE), (os.killpg, signal.SIGKILL, GRACE)):
        with suppress(ProcessLookupError):
            kill(group, sign)
        if _gone(group, patience):
            break
    (home / LOCK).write_text("")
    return "stopped what was left" if orphaned else "stopped"


def running(home: Path) -> int | None:
    """The process group of the agent that holds this home, if one does."""
    try:
        with (home / LOCK).open() as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return None
    except FileNotFoundError:
        return None
    except BlockingIOError:
        return _last_group(home)


def _last_group(home: Path) -> int | None:
    """The group that was written down last, as long as a process of it is there that works for this home."""
    try:
        group = int((home / LOCK).read_text() or 0)
    except (OSError, ValueError):
        return None
    return group if group and any(_works_for(home, member) for member in _members(group)) else None


def _members(group: int) -> list[int]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rsplit(")", 1)[1].split()
        except (OSError, IndexError):
            continue  # it ended meanwhile
        if int(fields[2]) == group and fields[0] != "Z":
            found.append(int(folder.name))
    return found


def _works_for(home: Path, process: int) -> bool:
    """Numbers of processes are used again: only what runs in our home is ours."""
    try:
        return Path(f"/proc/{process}/cwd").resolve() == home.resolve()
    except OSError:
        return False


class _alone:
    """One agent per home: the system frees the lock of one that dies."""

    def __init__(self, home: Path) -> None:
        self._path = home / LOCK

    def __enter__(self) -> None:
        self._file: IO[str] = self._path.open("a")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise FedsimError(f"an agent is running in {self._path.parent} already") from None
        self._file.truncate(0)
        self._file.write(str(os.getpgrp()))
        self._file.flush()

    def __exit__(self, *error: object) -> None:
        self._file.close()


def _put_aside(log: Path) -> None:
    """A process appends to its log for as long as it runs: the log is copied, then cut."""
    if log.exists() and log.stat().st_size > LOG_BYTES:
        shutil.copyfile(log, log.with_suffix(".log.1"))
        os.truncate(log, 0)


def _end(processes: "list[subprocess.Popen[bytes]]") -> None:
    for process in processes:
        process.terminate()
    deadline = time.monotonic() + GRACE
    for process in processes:
        try:
            process.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()


def _gone(group: int, patience: float) -> bool:
    deadline = time.monotonic() + patience
    while _members(group):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


def _environment(home: Path) -> dict[str, str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    environment = {**os.environ, **QUIET, "PATH": path, "FLWR_HOME": str(home / "flwr")}
    about = home / "node.json"
    gpu = json.loads(about.read_text()).get("gpu", "") if about.exists() else ""
    return {**environment, "CUDA_VISIBLE_DEVICES": gpu} if gpu else environment


def _rooted(config: dict[str, Any], home: Path) -> dict[str, Any]:
    """The state folder is one of the home's, wherever the ClientApp runs."""
    return {**config, "state-dir": str(home / str(config["state-dir"]))} if "state-dir" in config else config


def _pairs(config: dict[str, Any]) -> str:
    return " ".join(f"{key}={json.dumps(value)}" for key, value in config.items())


def _say(text: str) -> None:
    print(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="deploy.agent")
    parser.add_argument("verb", choices=("start", "stop", "status", "run"))
    parser.add_argument("home", type=Path, nargs="?", default=Path())
    args = parser.parse_args()
    home = args.home.resolve()
    if not any((home / name).exists() for name in ("server.json", "node.json")) and args.verb != "stop":
        print(f"{home} holds neither server.json nor node.json: run `fedsim deploy up`", file=sys.stderr)
        return 2
    try:
        if args.verb == "run":
            return run(home)
        if args.verb == "status":
            print("running" if running(home) is not None else "not running")
        else:
            print(start(home) if args.verb == "start" else stop(home))
    except FedsimError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
