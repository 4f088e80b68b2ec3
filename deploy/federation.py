"""What an operator does with a federation: bring it up, inspect it, run on it, read its logs, take it down.

`up` copies to the home folder of each machine what it needs (see `fedsim.deploy.machine_files`) and starts the agent there,
which keeps the processes of that machine running (see `fedsim.deploy.agent`).
"""

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from fedsim.config import RunConfig
from fedsim.deploy import audit, machine_files, operators, pki, previous_inventory, remembered_logs
from fedsim.deploy.agent import ORPHANED, RUNNING
from fedsim.deploy.audit import Verified
from fedsim.deploy.checks import certificates
from fedsim.deploy.finding import Finding
from fedsim.deploy.following import CONTROL, ConnectionLost, Report, read_output
from fedsim.deploy.hosts import Host
from fedsim.deploy.install import build_wheel, install
from fedsim.deploy.inventory import Inventory
from fedsim.deploy.machine_files import LIVE, PACKAGES
from fedsim.errors import FedsimError, unknown
from fedsim.flower.control_api import start_request
from fedsim.results import checkpoint as checkpoints
from fedsim.transport.polling import Polling

T = TypeVar("T")
AT_ONCE = 16  # machines that commands run on at the same time
ONLINE_SECONDS = 120.0  # for the nodes to come online
# modules that run on the machines
AGENT = "fedsim.deploy.agent"
POLICY, AUDIT = "fedsim.deploy.policy", "fedsim.deploy.audit"

# Python code and shell scripts that run on the machines.
VERSIONS = (
    "import json; from importlib.metadata import version, PackageNotFoundError\n"
    "def of(name):\n"
    "    try: return version(name)\n"
    "    except PackageNotFoundError: return None\n"
    f"print(json.dumps({{name: of(name) for name in {PACKAGES!r}}}))"
)
CONNECT = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=10).close()"
DIGESTS = (
    "import hashlib, json, pathlib, sys\n"
    "paths = [pathlib.Path(name) for name in sys.argv[1:]]\n"
    "print(json.dumps({str(p): hashlib.sha256(p.read_bytes()).hexdigest() for p in paths if p.exists()}))"
)
IS_FOLDER = 'test -d "$0" && echo yes || true'
PURGE = (
    "if test -e server.json || test -e node.json; then "
    'rm -rf -- "$0"; else echo "$0 is not a home folder of fedsim" >&2; exit 1; fi'
)


class Federation:
    """The machines of an inventory; `report` takes what the user should read, line by line."""

    def __init__(self, inventory: Inventory, report: Report = print) -> None:
        self.inventory, self.report = inventory, report
        self.server = Host(inventory, "server", inventory.server)
        self.nodes = {node.name: Host(inventory, node.name, node) for node in inventory.managed}  # those commands reach
        self.joined = [node.name for node in inventory.nodes if node.joined]  # their sites start them
        self.hosts = [self.server, *self.nodes.values()]

    # Up and down

    def up(self, install: bool = False, wait: float = ONLINE_SECONDS) -> None:
        """Starts what does not run and restarts what changed, then waits until every node is online, at most `wait`
        seconds: after that FedsimError says for each missing node what is wrong."""
        pki.check_complete(self.inventory.secrets, self.nodes)
        for found in self.certificates():
            if found.level != "ok":
                self.report(f"{found.level}: {found.message}. {found.remedy}")
        if install:
            self._install()
        self._check_versions()
        self._stop_removed_hosts()
        changed = self._copy_files()
        self._on_each(self._stop_orphaned, self.hosts)
        self._check_hosts(self.hosts)
        # Nodes first: they say goodbye to the server that they know, and may not trust the next one before they restart.
        self._on_each(self._stop_changed, changed - {self.server})
        self._on_each(self._stop_changed, changed & {self.server})
        self._start(self.server)
        self._control("ready")
        self._register_keys()
        self._check_reachable()
        self._on_each(self._start, self.nodes.values())
        self._await_online(wait)
        self._report_joined()

    def down(self, purge: bool = False) -> None:
        """Stops every machine, the server last; raises FedsimError at the end if one of them could not be stopped.

        `purge` also removes the home folders.
        """

        def stop(host: Host) -> str | None:
            try:
                if not self._is_set_up(host):
                    self.report(f"{host.name}: there is nothing to stop")
                    return None
                self.report(f"{host.name}: {host.run_module(AGENT, 'stop', '.').strip()}")
                if purge:
                    host.run("sh", "-c", PURGE, host.home)
                    self.report(f"{host.name}: {host.home} is removed")
                    removed.append(host.name)
            except FedsimError as error:
                return str(error)
            return None

        removed = list[str]()
        self._stop_runs()
        nodes = [*previous_inventory.removed_hosts(self.inventory), *self.nodes.values()]
        results = [*self._on_each(stop, nodes), stop(self.server)]
        if removed:
            remembered_logs.forget(self.inventory, removed)
        if problems := [problem for problem in results if problem]:
            raise FedsimError("not everything could be stopped\n" + "\n".join(problems))
        previous_inventory.delete(self.inventory)

    def _stop_runs(self) -> None:
        """A `fedsim deploy run` that waits for a run learns at once that it was stopped."""
        try:
            current = [run["id"] for run in self.runs() if not run["status"].startswith("finished")]
            for run in current:
                self._control("stop", run)
                self.report(f"server: the run {run} is stopped; `fedsim deploy run --resume RUN` goes on with it later")
        except FedsimError:
            return  # without a server there are no runs

    # Status

    def registered_nodes(self) -> dict[str, Any]:
        """What the SuperLink knows of each node, by name: status, online-since, last-seen."""
        return {node["name"]: node for node in self._control("nodes")}

    def runs(self) -> list[Any]:
        return self._control("runs")

    def agents(self) -> dict[str, str]:
        """By machine: its state as the agent tells it, "not set up", or why the machine could not be asked."""

        def state(host: Host) -> str:
            try:
                if not self._is_set_up(host):
                    return "not set up"
                return self._state(host)
            except FedsimError as error:
                return str(error)

        return dict(zip((host.name for host in self.hosts), self._on_each(state, self.hosts), strict=True))

    def certificates(self) -> list[Finding]:
        """What is to be said of the certificates that are kept here; a folder rendered from them has none."""
        return certificates.federation(self.inventory.secrets) if self.inventory.secrets.exists() else []

    def policies(self) -> dict[str, dict[str, Any] | str]:
        """By node: what its policy restricts, or why that is not known."""

        def policy(host: Host) -> dict[str, Any] | str:
            try:
                found: dict[str, Any] = json.loads(host.run_module(POLICY))
            except FedsimError as error:
                return str(error)
            return found

        return dict(zip(self.nodes, self._on_each(policy, self.nodes.values()), strict=True))

    def doctor(self, hosts: Iterable[Host], *options: str) -> dict[str, list[Any]]:
        """What `fedsim doctor --home` finds on these machines, by name; their clocks are compared with this machine's."""

        def examine(host: Host) -> list[Any]:
            running = ["--running"] if self._is_running(host) else []
            arguments = ["--home", ".", "--json", *running, "--now", f"{time.time():.3f}"]  # taken last: it ages
            output = host.run_module("fedsim.cli", "doctor", *arguments, *options, exit_codes=(0, 1))
            try:
                found: list[Any] = json.loads(output)
            except ValueError:
                raise FedsimError(
                    f"{host.name}: `fedsim doctor` failed: run `fedsim doctor --home {host.home}` there"
                ) from None
            return found

        examined = list(hosts)
        return dict(zip((host.name for host in examined), self._on_each(examine, examined), strict=True))

    def logs(self, name: str, lines: int, follow: bool) -> Iterator[str]:
        """The last lines of every log of one machine; `follow`: and those that come."""
        host = self._host(name)
        if not self._is_set_up(host):
            raise FedsimError(f"{name}: it is not set up: run `fedsim deploy up`")
        with host.stream("sh", "-c", f"exec tail -n {lines} {'-F' if follow else ''} *.log") as output:
            yield from output

    def verify_logs(self) -> dict[str, Verified | str]:
        """By machine: its unbroken audit log, or which line is broken; what is verified is remembered."""
        known = remembered_logs.read(self.inventory)

        def check(host: Host) -> Verified | str:
            before = [str(value) for value in known.get(host.name, ())]
            try:
                found = json.loads(host.run_module(AUDIT, "verify", audit.FILE, *before))
            except FedsimError as error:
                return str(error)
            return Verified(found["lines"], found["head"], tuple(found["incomplete"]))

        found = dict(zip((host.name for host in self.hosts), self._on_each(check, self.hosts), strict=True))
        remembered_logs.remember(self.inventory, {n: v for n, v in found.items() if isinstance(v, Verified)})
        return found

    def audit_log(self, name: str, lines: int) -> str:
        """The last lines of the audit log of one machine."""
        return self._host(name).run_module(AUDIT, "show", audit.FILE, str(lines))

    # Runs

    def run(self, config: RunConfig, folder: Path, output: Report | None = None) -> str:
        """Runs a configuration to its end and fetches the run folder into `folder`, also if the run failed.

        `output` takes what the ServerApp prints. Returns Flower's status of the run: "finished:completed", ... Raises
        ConnectionLost, and fetches nothing, if the connection to the server breaks off: the run goes on there.
        """
        remote, names = self.run_folder(folder), sorted(self.inventory.nodes, key=lambda node: node.partition_id)
        bound = {"clients": len(names), "nodes": ",".join(node.name for node in names)}
        (run,) = self._control("start", stdin=start_request(config.replace(out=remote, **bound)))
        try:
            return self.follow(run, folder, output)
        except KeyboardInterrupt:
            self._control("stop", run)
            self._fetch(folder)
            raise

    def follow(self, run: str, folder: Path, output: Report | None = None) -> str:
        """As `run`, for a run that goes on already; `folder` is where it was to be fetched into."""
        try:
            status = read_output(self.server, lambda: self._token("follow"), run, output or self.report)
        except ConnectionLost as lost:
            raise ConnectionLost(
                f"the connection to the server broke off, but the run {run} goes on there: "
                f"`fedsim deploy run --follow {run} --out {folder}` shows it again and fetches its results; "
                "`fedsim deploy status` tells how far it is"
            ) from lost
        except FedsimError:
            self._fetch(folder)
            raise
        self._fetch(folder)
        return status

    def _fetch(self, folder: Path) -> None:
        remote = self.run_folder(folder)
        if self.inventory.server.remote and self._is_folder(self.server, remote):
            self.server.fetch(remote, folder)
            if steps := checkpoints.saved_steps(folder):
                checkpoints.keep_until(folder, steps[-1])  # those of a fetch before are no longer there

    def run_folder(self, folder: Path) -> str:
        """The run folder on the server for the run folder `folder` here; a resumed run gets the same one."""
        path = str(folder.resolve())
        if not self.inventory.server.remote:
            return path
        return f"{self.server.home}/runs/{folder.name}-{_digest(path.encode())[:8]}"

    # Steps of `up`

    def _check_versions(self) -> None:
        here = machine_files.versions()

        def check(host: Host) -> str | None:
            there = json.loads(host.run_code(VERSIONS, in_home=False))
            wrong = [f"{p} {there[p] or 'missing'} (here: {here[p]})" for p in PACKAGES if there[p] != here[p]]
            remedy = "`fedsim deploy up --install` installs the same"
            return f"{host.name}: {' and '.join(wrong)}; {remedy}" if wrong else None

        if problems := [problem for problem in self._on_each(check, self.hosts) if problem]:
            raise FedsimError("not the same versions everywhere\n" + "\n".join(problems))

    def _stop_removed_hosts(self) -> None:
        """Stops what the last `up` started on machines that are no longer in the inventory."""
        for host in previous_inventory.removed_hosts(self.inventory):
            try:
                if self._is_set_up(host) and self._is_running(host):
                    host.run_module(AGENT, "stop", ".")
                    self.report(f"{host.name}: stopped, it is no longer in the inventory; {host.home} is kept")
            except FedsimError as error:
                self.report(f"{error}. It is no longer in the inventory, but its processes may still run there")
        previous_inventory.save(self.inventory)

    def _copy_files(self) -> set[Host]:
        """Copies to each home folder what is missing or differs there; returns the machines that must restart for it."""
        nodes = {node.name: node for node in self.inventory.nodes}

        def copy(host: Host) -> Host | None:
            if host is self.server:
                files = machine_files.server_files(self.inventory)
            else:
                files = machine_files.node_files(self.inventory, nodes[host.name])
            wanted = {**files.private, **files.public}
            host.run("mkdir", "-p", "-m", "700", "--", host.home, in_home=False)
            present = json.loads(host.run_code(DIGESTS, *wanted))
            outdated = {name: content for name, content in wanted.items() if present.get(name) != _digest(content)}
            for name, content in outdated.items():
                host.put(name, content, private=name in files.private)
            return host if set(outdated) - set(LIVE) else None

        return {host for host in self._on_each(copy, self.hosts) if host}

    def _check_hosts(self, hosts: Iterable[Host]) -> None:
        problems = [
            f"{name}: {found['message']}. {found['remedy']}"
            for name, rows in self.doctor(hosts).items()
            for found in rows
            if found["level"] == "problem"
        ]
        if problems:
            raise FedsimError("the federation cannot start as the inventory says\n" + "\n".join(problems))

    def _stop_orphaned(self, host: Host) -> None:
        """Processes whose agent was killed hold the ports of those that are to be started."""
        if self._state(host) == ORPHANED:
            host.run_module(AGENT, "stop", ".")
            self.report(f"{host.name}: its agent was killed; stopped what it had started, to start again")

    def _stop_changed(self, host: Host) -> None:
        if self._is_running(host):
            host.run_module(AGENT, "stop", ".")
            self.report(f"{host.name}: stopped, to start again as the inventory says now")
            self._check_hosts([host])  # the ports may be other ones than before

    def _start(self, host: Host) -> None:
        self.report(f"{host.name}: {host.run_module(AGENT, 'start', '.').strip()}")

    def _register_keys(self) -> None:
        for row in self._control("register", stdin=machine_files.public_keys(self.inventory).encode()):
            if "registered" in row:
                self.report(f"server: the key of {row['registered']} is registered")
            else:
                self.report(f"server: the previous key of {row['unregistered'] or 'a node'} is unregistered")

    def _check_reachable(self) -> None:
        """Every node must reach the fleet port of the server."""
        server = self.inventory.server

        def connects(host: Host) -> bool:
            try:
                host.run_code(CONNECT, server.host, str(server.fleet_port))
            except FedsimError:
                return False
            return True

        reached = dict(zip(self.nodes, self._on_each(connects, self.nodes.values()), strict=True))
        if unreached := [name for name, success in reached.items() if not success]:
            raise FedsimError("\n".join(f"{name}: {self._why_offline(name)}" for name in unreached))

    def _await_online(self, wait: float) -> None:
        deadline, seen, polling = time.monotonic() + wait, set[str](), Polling(0.1, 2.0)
        while len(seen) < len(self.nodes):
            online = {name for name, node in self.registered_nodes().items() if node["status"] == "online"}
            for name in sorted(online & set(self.nodes) - seen):
                self.report(f"{name}: online ({len(seen) + 1} of {len(self.nodes)})")
                seen.add(name)
            if time.monotonic() > deadline:
                late = sorted(set(self.nodes) - seen)
                raise FedsimError("\n".join(f"{name}: {self._why_offline(name)}" for name in late))
            if len(seen) < len(self.nodes):
                polling.sleep()

    def _report_joined(self) -> None:
        registered = self.registered_nodes() if self.joined else {}
        for name in self.joined:
            self.report(f"{name}: {registered.get(name, {}).get('status', 'unknown')}; its site starts it")

    def _why_offline(self, name: str) -> str:
        rows = self.doctor([self.nodes[name]], "--reach")[name]
        problems = [f"{found['message']}. {found['remedy']}" for found in rows if found["level"] == "problem"]
        address = f"{self.inventory.server.host}:{self.inventory.server.fleet_port}"
        return (
            problems[0] if problems else f"it can reach {address}, but is not online: see `fedsim deploy logs {name}`"
        )

    def _install(self) -> None:
        """Once per environment: several nodes may share one."""
        wheel, environments = build_wheel(), {(h.machine.ssh, h.machine.via, h.python): h for h in self.hosts}
        self._on_each(lambda host: self.report(f"{host.name}: {install(host, wheel)}"), environments.values())

    # Commands on machines

    def _control(self, verb: str, *arguments: str, stdin: bytes = b"") -> list[Any]:
        """Runs a verb of `fedsim.deploy.control` on the server, signed by this operator; returns its answers."""
        signed = self._token(verb, stdin) + stdin
        output = self.server.run_module(CONTROL, "--token", verb, *arguments, stdin=signed)
        return [json.loads(line) for line in output.splitlines()]

    def _token(self, verb: str, content: bytes = b"") -> bytes:
        """The line that says who asks for this."""
        key = operators.key_file(self.inventory)
        return f"{operators.token(key, self.inventory.name, verb, content)}\n".encode()

    def _host(self, name: str) -> Host:
        hosts = {host.name: host for host in self.hosts}
        if name in self.joined:
            raise FedsimError(f"{name} joined by itself: its site keeps its files, and can look there")
        return hosts[name] if name in hosts else unknown("node", name, hosts)

    def _is_running(self, host: Host) -> bool:
        return self._state(host) == RUNNING

    def _state(self, host: Host) -> str:
        return host.run_module(AGENT, "status", ".").strip()

    def _is_set_up(self, host: Host) -> bool:
        return self._is_folder(host, host.home)

    def _is_folder(self, host: Host, path: str) -> bool:
        return host.run("sh", "-c", IS_FOLDER, path, in_home=False).strip() == "yes"

    def _on_each(self, call: Callable[[Host], T], hosts: Iterable[Host]) -> Sequence[T]:
        """Calls on all machines at once; the first error is raised when all calls have ended."""
        with ThreadPoolExecutor(AT_ONCE) as pool:
            return [future.result() for future in [pool.submit(call, host) for host in hosts]]


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
