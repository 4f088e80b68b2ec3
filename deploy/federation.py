"""What an operator does with a federation: bring it up, look at it, run on it, read its logs, take it down.

Every machine has a home folder. `up` puts there what it needs and nothing else: the server gets its certificate and key, a
node its own key, everyone the authority's certificate, and a server.json or node.json that says what to run. The agent on
each machine does the rest (see `deploy.agent`).
"""

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from deploy import belongings, former, pki
from deploy.belongings import PACKAGES
from deploy.bundle import bundle
from deploy.hosts import Host
from deploy.install import build_wheel, install
from deploy.inventory import Inventory
from fedsim.config import RunConfig
from fedsim.errors import FedsimError, unknown

T = TypeVar("T")
Say = Callable[[str], None]
AT_ONCE = 16  # machines talked to at the same time
ONLINE_PATIENCE = 120.0  # seconds for the nodes to come online
VERSIONS = (
    "import json; from importlib.metadata import version, PackageNotFoundError\n"
    "def of(name):\n"
    "    try: return version(name)\n"
    "    except PackageNotFoundError: return None\n"
    f"print(json.dumps({{name: of(name) for name in {PACKAGES!r}}}))"
)


class Federation:
    """The machines of an inventory, and what is done on them."""

    def __init__(self, inventory: Inventory, say: Say = print) -> None:
        self.inventory, self.say = inventory, say
        self.server = Host(inventory, "server", inventory.server)
        self.nodes = {node.name: Host(inventory, node.name, node) for node in inventory.nodes}
        self.everyone = [self.server, *self.nodes.values()]

    # Up and down

    def up(self, install: bool = False) -> None:
        """Idempotent: what runs as it should is left alone, what changed is started again."""
        self._check_keys()
        if install:
            self._install()
        self._same_versions()
        self._stop_former()
        changed = self._furnish()
        self._refuse_problems(self.everyone)
        self._start(self.server, self.server in changed)
        self._desk("ready")
        self._register()
        self._refuse_unreachable()
        self._each(lambda host: self._start(host, host in changed), self.nodes.values())
        self._await_online()

    def down(self, purge: bool = False) -> None:
        """Nodes first, so that they say goodbye to a server that is there; one that cannot be reached keeps nobody."""

        def end(host: Host) -> str | None:
            try:
                if not self._furnished(host):
                    self.say(f"{host.name}: there is nothing to stop")
                    return None
                self.say(f"{host.name}: {host.module('deploy.agent', 'stop', '.').strip()}")
                if purge:
                    host.run("sh", "-c", PURGE, host.home)
                    self.say(f"{host.name}: {host.home} is gone")
            except FedsimError as error:
                return str(error)
            return None

        self._stop_runs()
        ended = [*self._each(end, [*former.former(self.inventory), *self.nodes.values()]), end(self.server)]
        if problems := [problem for problem in ended if problem]:
            raise FedsimError("not everything could be stopped\n" + "\n".join(problems))
        former.forget(self.inventory)

    def _stop_runs(self) -> None:
        """So that whoever waits for a run learns at once that it ended."""
        try:
            current = [run["id"] for run in self.runs() if not run["status"].startswith("finished")]
            for number in current:
                self._desk("stop", number)
                self.say(f"server: the run {number} is stopped; `fedsim deploy run --resume RUN` goes on with it later")
        except FedsimError:
            return  # no server, no runs

    # Looking

    def nodes_online(self) -> dict[str, Any]:
        return {node["name"]: node for node in self._desk("nodes")}

    def runs(self) -> list[Any]:
        return self._desk("runs")

    def agents(self) -> dict[str, str]:
        """What each machine says of its processes, or why it does not."""

        def ask(host: Host) -> str:
            try:
                return ("running" if self._runs(host) else "not running") if self._furnished(host) else "not set up"
            except FedsimError as error:
                return str(error)

        return dict(zip((h.name for h in self.everyone), self._each(ask, self.everyone), strict=True))

    def examine(self, hosts: Iterable[Host], *options: str) -> dict[str, list[Any]]:
        """What the doctor finds on these machines. Clocks are compared with ours, ports of what runs are taken."""

        def visit(host: Host) -> list[Any]:
            about = ["--home", ".", "--json", "--now", f"{time.time():.3f}"]
            about += ["--running"] if self._runs(host) else []
            told = host.module("fedsim.cli", "doctor", *about, *options, fine=(0, 1))
            try:
                found: list[Any] = json.loads(told)
            except ValueError:
                raise FedsimError(
                    f"{host.name}: the doctor fell ill: run `fedsim doctor --home {host.home}` there"
                ) from None
            return found

        visited = list(hosts)
        return dict(zip((host.name for host in visited), self._each(visit, visited), strict=True))

    def logs(self, name: str, lines: int, follow: bool) -> Iterator[str]:
        hosts = {host.name: host for host in self.everyone}
        if name not in hosts:
            unknown("node", name, hosts)
        if not self._furnished(hosts[name]):
            raise FedsimError(f"{name}: it is not set up: run `fedsim deploy up`")
        with hosts[name].stream("sh", "-c", f"exec tail -n {lines} {'-F' if follow else ''} *.log") as said:
            yield from said

    # Runs

    def run(self, config: RunConfig, folder: Path, tell: Say | None = None) -> str:
        """From start to end; the run folder lies in `folder` then, whatever came of the run. Returns Flower's status.

        `tell` takes what the ServerApp prints.
        """
        there = self.place_of(folder)
        order = bundle(config.replace(out=there, clients=len(self.nodes)))
        (number,) = json.loads(f"[{self.server.module('deploy.office', 'start', stdin=order)}]")
        try:
            return self._follow(number, tell or self.say)
        except KeyboardInterrupt:
            self._desk("stop", number)
            raise
        finally:
            if self.inventory.server.remote and self._is_folder(self.server, there):
                self.server.fetch(there, folder)

    def place_of(self, folder: Path) -> str:
        """Where the server keeps the run of this folder; the same one when the run is resumed."""
        path = str(folder.resolve())
        if not self.inventory.server.remote:
            return path
        return f"{self.server.home}/runs/{folder.name}-{_digest(path.encode())[:8]}"

    def _follow(self, number: str, tell: Say) -> str:
        status, traceback = "unknown", list[str]()
        with self.server.stream(self.server.python, "-P", "-m", "deploy.office", "follow", number) as lines:
            for line in lines:
                said = json.loads(line)
                if isinstance(said, dict):
                    status = said["status"]
                elif RAISED in said or traceback:
                    traceback.append(said)
                elif worth_saying(said):
                    tell(said)
        if not any("fedsim.errors." in line for line in traceback):  # those are told in a line, by the status
            for line in traceback:
                tell(line)
        return status

    # Steps of `up`

    def _check_keys(self) -> None:
        pki.check_complete(self.inventory.secrets, self.nodes)

    def _same_versions(self) -> None:
        ours = belongings.versions()

        def check(host: Host) -> str | None:
            theirs = json.loads(host.code(VERSIONS, inside=False))
            wrong = [f"{p} {theirs[p] or 'missing'} (here: {ours[p]})" for p in PACKAGES if theirs[p] != ours[p]]
            return (
                f"{host.name}: {' and '.join(wrong)}; `fedsim deploy up --install` installs the same" if wrong else None
            )

        if problems := [p for p in self._each(check, self.everyone) if p]:
            raise FedsimError("not the same versions everywhere\n" + "\n".join(problems))

    def _stop_former(self) -> None:
        """Where the last `up` started something that the inventory no longer has."""
        for host in former.former(self.inventory):
            try:
                if self._furnished(host) and self._runs(host):
                    host.module("deploy.agent", "stop", ".")
                    self.say(f"{host.name}: stopped, it is no longer in the inventory; {host.home} stays there")
            except FedsimError as error:
                self.say(f"{error}. It is no longer in the inventory, but may go on there")
        former.remember(self.inventory)

    def _furnish(self) -> set[Host]:
        """Files to each machine; returns the machines where what is to run has changed."""
        nodes = {node.name: node for node in self.inventory.nodes}

        def furnish(host: Host) -> Host | None:
            server = host is self.server
            own = (
                belongings.of_server(self.inventory) if server else belongings.of_node(self.inventory, nodes[host.name])
            )
            wanted = {**own.private, **own.public}
            host.run("mkdir", "-p", "-m", "700", "--", host.home, inside=False)
            known = json.loads(host.code(DIGESTS, *wanted))
            stale = {name: content for name, content in wanted.items() if known.get(name) != _digest(content)}
            for name, content in stale.items():
                host.put(name, content, private=name in own.private)
            return host if stale else None

        return {host for host in self._each(furnish, self.everyone) if host}

    def _refuse_problems(self, hosts: Iterable[Host]) -> None:
        problems = [
            f"{name}: {found['told']}. {found['remedy']}"
            for name, rows in self.examine(hosts).items()
            for found in rows
            if found["level"] == "problem"
        ]
        if problems:
            raise FedsimError("the federation cannot start as the inventory says\n" + "\n".join(problems))

    def _start(self, host: Host, changed: bool) -> None:
        if changed and self._runs(host):
            host.module("deploy.agent", "stop", ".")
            self.say(f"{host.name}: stopped, to start again as the inventory says now")
            self._refuse_problems([host])  # ports that it did not use before
        self.say(f"{host.name}: {host.module('deploy.agent', 'start', '.').strip()}")

    def _runs(self, host: Host) -> bool:
        return host.module("deploy.agent", "status", ".").strip() == "running"

    def _register(self) -> None:
        keys = belongings.as_json(belongings.public_keys(self.inventory))
        for row in self._desk("register", stdin=keys):
            if "registered" in row:
                self.say(f"server: the key of {row['registered']} is registered")
            else:
                self.say(f"server: a former key of {row['struck'] or 'a node'} is struck out")

    def _await_online(self) -> None:
        deadline, seen = time.monotonic() + ONLINE_PATIENCE, set[str]()
        while len(seen) < len(self.nodes):
            online = {name for name, node in self.nodes_online().items() if node["status"] == "online"} & set(
                self.nodes
            )
            for name in sorted(online - seen):
                self.say(f"{name}: online ({len(seen) + 1} of {len(self.nodes)})")
                seen.add(name)
            if time.monotonic() > deadline:
                late = sorted(set(self.nodes) - seen)
                raise FedsimError("\n".join(f"{name}: {self._why_offline(name)}" for name in late))

    def _refuse_unreachable(self) -> None:
        server = self.inventory.server

        def knock(host: Host) -> bool:
            try:
                host.code(KNOCK, server.host, str(server.fleet_port))
            except FedsimError:
                return False
            return True

        answers = dict(zip(self.nodes, self._each(knock, self.nodes.values()), strict=True))
        if unreached := [name for name, reached in answers.items() if not reached]:
            raise FedsimError("\n".join(f"{name}: {self._why_offline(name)}" for name in unreached))

    def _why_offline(self, name: str) -> str:
        rows = self.examine([self.nodes[name]], "--reach")[name]
        told = [f"{found['told']}. {found['remedy']}" for found in rows if found["level"] == "problem"]
        where = f"{self.inventory.server.host}:{self.inventory.server.fleet_port}"
        return told[0] if told else f"it can reach {where}, but is not online: see `fedsim deploy logs {name}`"

    def _install(self) -> None:
        """Once per environment: several nodes may share one."""
        wheel, places = build_wheel(), {(h.machine.ssh, h.machine.via, h.python): h for h in self.everyone}
        self._each(lambda host: self.say(f"{host.name}: {install(host, wheel)}"), places.values())

    # How it is done

    def _desk(self, verb: str, *arguments: str, stdin: bytes = b"") -> list[Any]:
        answers = self.server.module("deploy.office", verb, *arguments, stdin=stdin)
        return [json.loads(line) for line in answers.splitlines()]

    def _furnished(self, host: Host) -> bool:
        return self._is_folder(host, host.home)

    def _is_folder(self, host: Host, path: str) -> bool:
        return host.run("sh", "-c", 'test -d "$0" && echo yes || true', path, inside=False).strip() == "yes"

    def _each(self, do: Callable[[Host], T], hosts: Iterable[Host]) -> Sequence[T]:
        """On all machines at once; the first problem is raised when all are done."""
        with ThreadPoolExecutor(AT_ONCE) as pool:
            return [future.result() for future in [pool.submit(do, host) for host in hosts]]


PURGE = 'if test -e server.json || test -e node.json; then rm -rf -- "$0"; else echo "$0 is no home of ours" >&2; exit 1; fi'
KNOCK = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=10).close()"
DIGESTS = (
    "import hashlib, json, pathlib, sys\n"
    "paths = [pathlib.Path(name) for name in sys.argv[1:]]\n"
    "print(json.dumps({str(p): hashlib.sha256(p.read_bytes()).hexdigest() for p in paths if p.exists()}))"
)


RAISED = "ServerApp raised an exception"
NOISE = ("Successfully installed fedsim-run to", "Connection attempt failed, retrying")


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def worth_saying(line: str) -> bool:
    """Flower's own remarks are for its logs; what the ServerApp prints is for the user."""
    return bool(line.strip()) and "INFO" not in line[:12] and not any(words in line for words in NOISE)
