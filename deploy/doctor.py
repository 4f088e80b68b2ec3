"""Everything `fedsim doctor` looks at, for this machine alone or for its part in a federation."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from deploy import home as homes
from deploy.checks import certificates, data, machine, network, software
from deploy.finding import Finding, problem
from deploy.home import Node, Server
from fedsim.errors import ConfigError

PORTS = (8000, 9092, 9094)  # Flower's usual ones: control, fleet, SuperNode
LOOPBACK = "127.0.0.1"  # where processes of one machine talk


def examine(
    home: Path,
    *,
    reference: float | None = None,
    here: float | None = None,
    running: bool = False,
    reach: bool = False,
) -> list[Finding]:
    """What the installation in `home` implies.

    reference  the federation's time, `here` this machine's own at the same moment (now if not told)
    running    it runs already: its ports are taken by itself
    reach      also connect to the server
    """
    home = home.absolute()  # every line names its paths in full
    try:
        found = homes.read(home)
    except ConfigError as error:
        return [problem(f"home {home}", str(error), "set this machine up with `fedsim deploy up`")]
    findings = [software.python(), *software.exactly(found.versions)]
    if reference is not None:
        findings.append(machine.clock(reference, here))
    part = _node(found, home) if isinstance(found, Node) else _server(found, home)
    findings += [*part, certificates.authority(found.ca)]
    if not running:
        findings += _ports(found)
    if reach:
        address = found.superlink if isinstance(found, Node) else f"{found.host}:{found.fleet_port}"
        findings.append(network.reachable(address, found.ca))
    return findings


def survey(
    *,
    reference: float | None = None,
    here: float | None = None,
    data_root: str = "",
    ports: Iterable[int] = PORTS,
    reach: str = "",
    ca: Path | None = None,
    deep: bool = False,
) -> list[Finding]:
    """This machine, whatever it is to be used for."""
    findings = [
        software.python(),
        *software.packages(),
        machine.gpus(),
        machine.disk("cache", data.cache()),
        machine.disk("run folders", Path("runs")),
        data.root(data_root),
        *(network.free("port", port, taken="warning") for port in ports),
    ]
    if deep:
        findings.append(machine.ray())
    if reference is not None:
        findings.append(machine.clock(reference, here))
    if ca is not None:
        findings.append(certificates.authority(ca))
    if reach:
        findings.append(network.reachable(reach, ca))
    return findings


def _node(node: Node, home: Path) -> Iterator[Finding]:
    yield from (finding for finding in software.packages() if finding.level != "ok")
    yield data.identity(node.config, home / homes.NODE)
    if "data" in node.config:
        yield data.own(home / str(node.config["data"]))
    else:
        yield data.root()
    yield machine.gpus(str(node.config.get("device", "auto")), node.gpu)
    yield machine.disk("cache", data.cache())
    yield machine.disk("state", home / str(node.config.get("state-dir", "")))
    yield certificates.private_key(node.key, of_node=True)


def _server(server: Server, home: Path) -> Iterator[Finding]:
    yield network.local(server.host)
    yield machine.disk("state", home)
    yield certificates.private_key(server.key)
    yield from certificates.certificate(server.certificate, server.key, server.ca, server.host)


def _ports(found: Node | Server) -> list[Finding]:
    if isinstance(found, Node):
        return [network.free("port", found.port, LOOPBACK)]
    return [
        network.free("fleet-port", found.fleet_port, found.bind),
        network.free("control-port", found.control_port, LOOPBACK),
    ]
