"""All checks of `fedsim doctor`: of a machine's part in a federation, or of this machine whatever it is to be used for."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from fedsim.deploy import machine_config
from fedsim.deploy.checks import certificates, data, machine, network, policy, software
from fedsim.deploy.finding import Finding, problem
from fedsim.deploy.machine_config import NodeConfig, ServerConfig
from fedsim.errors import ConfigError

PORTS = (8000, 9092, 9094)  # Flower's defaults: Control API, Fleet API, SuperNode
LOOPBACK = "127.0.0.1"


def check_home(
    home: Path,
    *,
    reference: float | None = None,
    here: float | None = None,
    running: bool = False,
    reach: bool = False,
) -> list[Finding]:
    """Checks everything that server.json or node.json in `home` asks for.

    reference  the federation's time (Unix); `here`: this machine's time at the same moment, now if not given
    running    its processes run, so its ports need not be free
    reach      also connect to the server
    """
    home = home.absolute()  # findings name full paths
    try:
        config = machine_config.read(home)
    except ConfigError as error:
        return [problem(f"home {home}", str(error), "set this machine up with `fedsim deploy up`")]
    findings = [software.python(), *software.exact_versions(config.versions)]
    if reference is not None:
        findings.append(machine.clock(reference, here))
    findings += _node(config, home) if isinstance(config, NodeConfig) else _server(config, home)
    findings.append(certificates.ca_certificate(config.ca))
    if not running:
        findings += _ports(config)
    if reach:
        address = config.superlink if isinstance(config, NodeConfig) else f"{config.host}:{config.fleet_port}"
        findings.append(network.reachable(address, config.ca))
    return findings


def check_machine(
    *,
    reference: float | None = None,
    here: float | None = None,
    data_root: str = "",
    ports: Iterable[int] = PORTS,
    reach: str = "",
    ca: Path | None = None,
    deep: bool = False,
) -> list[Finding]:
    """Checks this machine: packages, GPUs, disks, datasets, ports; `deep`: also whether Ray starts."""
    findings = [
        software.python(),
        *software.packages(),
        machine.gpus(),
        machine.disk("cache", data.cache_folder()),
        machine.disk("run folders", Path("runs")),
        data.datasets(data_root),
        *(network.free_port("port", port, taken="warning") for port in ports),
    ]
    if deep:
        findings.append(machine.ray())
    if reference is not None:
        findings.append(machine.clock(reference, here))
    if ca is not None:
        findings.append(certificates.ca_certificate(ca))
    if reach:
        findings.append(network.reachable(reach, ca))
    return findings


def _node(config: NodeConfig, home: Path) -> Iterator[Finding]:
    yield from (finding for finding in software.packages() if finding.level != "ok")
    yield data.partition_id(config.config, home / machine_config.NODE)
    if "data" in config.config:
        yield data.own_data(home / str(config.config["data"]))
    else:
        yield data.datasets()
    yield machine.gpus(str(config.config.get("device", "auto")), config.gpu)
    yield machine.disk("cache", data.cache_folder())
    yield machine.disk("state", home / str(config.config.get("state-dir", "")))
    yield certificates.private_key(config.key, of_node=True)
    yield policy.site_policy(home)


def _server(config: ServerConfig, home: Path) -> Iterator[Finding]:
    yield network.own_address(config.host)
    yield machine.disk("state", home)
    yield certificates.private_key(config.key)
    yield from certificates.server_certificate(config.certificate, config.key, config.ca, config.host)


def _ports(config: NodeConfig | ServerConfig) -> list[Finding]:
    if isinstance(config, NodeConfig):
        return [network.free_port("port", config.port, LOOPBACK)]
    return [
        network.free_port("fleet-port", config.fleet_port, config.bind),
        network.free_port("control-port", config.control_port, LOOPBACK),
    ]
