"""The agent of one machine: keeps the processes of the server or of a node running, and stops all of them at once.

    python -m fedsim.deploy.agent start|stop|status HOME   in the background, as a process group of its own
    python -m fedsim.deploy.agent run HOME                 in the foreground, for systemd and containers

HOME is the machine's home folder: server.json or node.json (see `fedsim.deploy.machine_config`), keys, logs and state.
A process that ends is restarted after a pause that grows, because Flower refuses a SuperNode for a minute after a crash.
"""

import argparse
import json
import logging
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from fedsim.deploy.machine_config import NODE, SERVER, NodeConfig, ServerConfig, read
from fedsim.deploy.operators import SERVICE_KEY, create_key
from fedsim.errors import FedsimError
from fedsim.files import PRIVATE, write_bytes, write_text

LOCK, GROUP, LOG, SECRET = "agent.lock", "agent.group", "agent.log", "executor.secret"
RUNNING, NOT_RUNNING = "running", "not running"
ORPHANED = "running without their agent, which was killed"  # processes that nobody starts again
FIRST_PAUSE, LAST_PAUSE = 1.0, 30.0  # seconds before a restart
STABLE = 60.0  # seconds after which the pause is the first one again
GRACE = 10.0  # seconds that a process gets to end after SIGTERM
LOG_BYTES = 20_000_000  # a longer log is rotated
FLOWER_ENVIRONMENT = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.5",  # seconds until a ServerApp starts
    "PYTHONUNBUFFERED": "1",
}
logger = logging.getLogger(__name__)


def commands(home: Path) -> dict[str, list[str]]:
    """The processes of this machine: name -> command."""
    config = read(home)
    return _server_commands(config) if isinstance(config, ServerConfig) else _node_commands(config, home)


def _server_commands(config: ServerConfig) -> dict[str, list[str]]:
    scripts, ca = Path(sys.executable).parent, str(config.ca)
    superlink = [sys.executable, "-P", "-m", "fedsim.deploy.superlink", "--enable-supernode-auth"]
    superlink += ["--isolation", "process"]
    superlink += ["--ssl-certfile", str(config.certificate), "--ssl-keyfile", str(config.key), "--ssl-ca-certfile", ca]
    superlink += ["--database", "superlink.db", "--host", "127.0.0.1", "--port", str(config.control_port)]
    superlink += ["--fleet-api-address", f"{config.bind or '0.0.0.0'}:{config.fleet_port}"]
    superlink += ["--superexec-auth-secret-file", SECRET, "--disable-runtime-dependency-installation"]
    superexec = [str(scripts / "flower-superexec"), "--runtime-api-address", f"127.0.0.1:{config.control_port}"]
    superexec += ["--root-certificates", ca, "--superexec-auth-secret-file", SECRET]
    return {"superlink": superlink, "superexec": superexec}


def _node_commands(config: NodeConfig, home: Path) -> dict[str, list[str]]:
    supernode = [sys.executable, "-P", "-m", "fedsim.deploy.supernode", "--superlink", config.superlink]
    supernode += ["--root-certificates", str(config.ca), "--auth-supernode-private-key", str(config.key)]
    supernode += ["--isolation", "process", "--host", "127.0.0.1", "--port", str(config.port)]
    supernode += ["--superexec-auth-secret-file", SECRET, "--node-config", _node_config_option(config.config, home)]
    executor = [sys.executable, "-P", "-m", "fedsim.deploy.executor", f"127.0.0.1:{config.port}", SECRET]
    return {"supernode": supernode, "executor": executor}


def _node_config_option(config: Mapping[str, Any], home: Path) -> str:
    """The value of `--node-config`. The state folder becomes absolute, because a ClientApp may run in any folder."""
    values = {**config, "state-dir": str(home / str(config["state-dir"]))} if "state-dir" in config else config
    return " ".join(f"{key}={json.dumps(value)}" for key, value in values.items())


@dataclass
class ManagedProcess:
    """A process that is started again whenever it ends."""

    name: str
    command: list[str]
    home: Path
    environment: dict[str, str]
    process: "subprocess.Popen[bytes] | None" = None
    started: float = 0.0
    next_start: float = 0.0
    pause: float = field(default=FIRST_PAUSE)

    @property
    def log(self) -> Path:
        return self.home / f"{self.name}.log"

    def keep_running(self) -> None:
        """Starts the process if it is due; to be called again and again."""
        now = time.monotonic()
        _rotate(self.log)
        if self.process is not None and self.process.poll() is None:
            return
        if self.process is not None:
            self.pause = FIRST_PAUSE if now - self.started > STABLE else min(2 * self.pause, LAST_PAUSE)
            self.next_start = now + self.pause
            logger.info("%s ended with %s; restart in %.0f s", self.name, self.process.returncode, self.pause)
            self.process = None
        if now >= self.next_start:
            self._start(now)

    def _start(self, now: float) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command, cwd=self.home, env=self.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        self.started = now
        logger.info("%s started, process %s", self.name, self.process.pid)


def run(home: Path) -> int:
    """Keeps the processes running until SIGTERM or SIGINT, or until the home folder is removed."""
    with _only_agent(home):
        if not (home / SECRET).exists():
            write_bytes(home / SECRET, secrets.token_bytes(32), PRIVATE)
        if (home / SERVER).exists() and not (home / SERVICE_KEY).exists():
            create_key(home / SERVICE_KEY)
        (home / "flwr").mkdir(exist_ok=True)
        environment = _environment(home)
        managed = [ManagedProcess(name, command, home, environment) for name, command in commands(home).items()]
        if missing := [each.command[0] for each in managed if not Path(each.command[0]).exists()]:
            raise FedsimError(f"{missing[0]} is missing: install flwr again in the environment of {sys.executable}")
        received: list[int] = []
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda number, frame: received.append(number))
        while not received and home.exists():
            for each in managed:
                each.keep_running()
            time.sleep(0.1)
        _terminate([each.process for each in managed if each.process is not None])
        logger.info("ended")
    return 0


def start(home: Path) -> str:
    """Starts an agent in the background, in a session of its own; returns what was done."""
    if running(home) is not None:
        return "already running"
    with (home / LOG).open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "fedsim.deploy.agent", "run", str(home)],
            cwd=home,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    deadline = time.monotonic() + GRACE
    while running(home) is None:
        if process.poll() is not None or time.monotonic() > deadline:
            last = ((home / LOG).read_text().strip() or "its log is empty").splitlines()[-1]
            raise FedsimError(f"the agent did not start: {last}. See {home / LOG}")
        time.sleep(0.05)
    return "started"


def stop(home: Path) -> str:
    """Ends the agent's process group, also the processes of an agent that was killed; returns what was done."""
    group = running(home)
    orphaned = group is None
    if group is None:
        group = _last_group(home)
    if group is None:
        return "was not running"
    # The agent terminates its processes itself; a second SIGTERM would make them skip their own shutdown.
    terminate = os.killpg if orphaned else os.kill
    for kill, number, patience in ((terminate, signal.SIGTERM, 2 * GRACE), (os.killpg, signal.SIGKILL, GRACE)):
        with suppress(ProcessLookupError):
            kill(group, number)
        if _await_end(group, patience):
            break
    (home / GROUP).unlink(missing_ok=True)
    return "stopped what was left" if orphaned else "stopped"


def running(home: Path) -> int | None:
    """The process group of the agent that runs in this home folder; None if there is none."""
    if not (home / LOCK).exists():
        return None
    try:
        with FileLock(home / LOCK, blocking=False):
            return None
    except Timeout:
        return _last_group(home)


def state(home: Path) -> str:
    """RUNNING, ORPHANED or NOT_RUNNING."""
    if running(home) is not None:
        return RUNNING
    return NOT_RUNNING if _last_group(home) is None else ORPHANED


def _last_group(home: Path) -> int | None:
    """The process group of the last agent, if one of its processes still runs in this home folder."""
    try:
        group = int((home / GROUP).read_text())
    except (OSError, ValueError):
        return None
    return group if any(_runs_in(home, member) for member in _group_members(group)) else None


def _group_members(group: int) -> list[int]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rsplit(")", 1)[1].split()
        except (OSError, IndexError):
            continue  # it ended meanwhile
        if int(fields[2]) == group and fields[0] != "Z":
            found.append(int(folder.name))
    return found


def _runs_in(home: Path, process: int) -> bool:
    """Whether a process works in this folder: process numbers are reused, so the number alone proves nothing."""
    try:
        return Path(f"/proc/{process}/cwd").resolve() == home.resolve()
    except OSError:
        return False


@contextmanager
def _only_agent(home: Path) -> Iterator[None]:
    """Holds the lock of the home folder, which the system frees when the process ends, and writes the process group."""
    try:
        with FileLock(home / LOCK, timeout=1):  # `running` holds it for a moment
            write_text(home / GROUP, str(os.getpgrp()))
            yield
    except Timeout:
        raise FedsimError(f"an agent is already running in {home}") from None


def _rotate(log: Path) -> None:
    """Copies a long log and empties it: its process keeps the file open and appends."""
    if log.exists() and log.stat().st_size > LOG_BYTES:
        shutil.copyfile(log, log.with_suffix(".log.1"))
        os.truncate(log, 0)


def _terminate(processes: "list[subprocess.Popen[bytes]]") -> None:
    for process in processes:
        process.terminate()
    deadline = time.monotonic() + GRACE
    for process in processes:
        try:
            process.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()


def _await_end(group: int, patience: float) -> bool:
    """Whether every process of the group ended within `patience` seconds."""
    deadline = time.monotonic() + patience
    while _group_members(group):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


def _environment(home: Path) -> dict[str, str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    environment = {**os.environ, **FLOWER_ENVIRONMENT, "PATH": path, "FLWR_HOME": str(home / "flwr")}
    config = read(home)
    if isinstance(config, NodeConfig) and config.gpu:
        environment["CUDA_VISIBLE_DEVICES"] = config.gpu
    return environment


def main() -> int:
    parser = argparse.ArgumentParser(prog="fedsim.deploy.agent")
    parser.add_argument("verb", choices=("start", "stop", "status", "run"))
    parser.add_argument("home", type=Path, nargs="?", default=Path())
    args = parser.parse_args()
    home = args.home.resolve()
    if not any((home / name).exists() for name in (SERVER, NODE)) and args.verb != "stop":
        print(f"{home} holds neither {SERVER} nor {NODE}: run `fedsim deploy up`", file=sys.stderr)
        return 2
    try:
        if args.verb == "run":
            form, dates = "%(asctime)s %(message)s", "%Y-%m-%d %H:%M:%S"
            logging.basicConfig(level=logging.INFO, stream=sys.stdout, format=form, datefmt=dates)
            return run(home)
        if args.verb == "status":
            print(state(home))
        else:
            print(start(home) if args.verb == "start" else stop(home))
    except FedsimError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
