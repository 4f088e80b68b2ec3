"""Hosts on this machine: network namespaces with addresses of their own, connected by a bridge.

A user who cannot make network namespaces gets loopback instead.
"""

import itertools
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from fedsim.deploy.chaos.relay import DEVICE, Cable

NETWORK = "198.51.100"  # reserved for documentation (RFC 5737), so no real host has such an address
NUMBERS = itertools.count()  # of the networks of this process: the kernel removes the links of a former one later
PATH = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])


@dataclass(frozen=True)
class VirtualHost:
    address: str
    namespace: str = ""  # empty: this machine itself
    cable: Cable | None = None  # to the bridge; None: one that cannot be made worse

    @property
    def via(self) -> str:
        """The command that runs another one on this host."""
        return f"{_program()} netns exec {self.namespace}" if self.namespace else ""

    def disconnect(self) -> None:
        ip("-n", self.namespace, "link", "set", "eth0", "down")

    def connect(self) -> None:
        ip("-n", self.namespace, "link", "set", "eth0", "up")


@contextmanager
def network(size: int = 3, relayed: bool = False) -> Iterator[list[VirtualHost]]:
    """Hosts that reach each other. All names contain the process id: two processes can each have a network.

    `relayed`: by cables that can lose and delay packets.
    """
    if not can_make_namespaces():
        yield [VirtualHost("127.0.0.1")] * size
        return
    network_id = f"{os.getpid()}-{next(NUMBERS)}"
    bridge, hosts = f"fb{network_id}", list[VirtualHost]()
    with ExitStack() as made:
        ip("link", "add", bridge, "type", "bridge")
        made.callback(_remove, "link", "delete", bridge)
        ip("link", "set", bridge, "up")
        for i in range(size):
            name, address = f"fedsim-{network_id}-{i}", f"{NETWORK}.{10 + i}"
            ip("netns", "add", name)
            made.callback(_remove, "netns", "delete", name)
            cable = _plug_in(name, bridge, f"f{i}-{network_id}", f"h{i}-{network_id}", relayed)
            if cable:
                made.callback(cable.remove)
            ip("-n", name, "address", "add", f"{address}/24", "dev", "eth0")
            ip("-n", name, "link", "set", "eth0", "up")
            ip("-n", name, "link", "set", "lo", "up")
            hosts.append(VirtualHost(address, name, cable))
        yield hosts


def _plug_in(namespace: str, bridge: str, near: str, far: str, relayed: bool) -> Cable | None:
    """Connects a namespace, as its eth0, with the bridge; the names are those of the ends outside."""
    cable = Cable(near, far) if relayed else None
    if cable:
        ip("link", "set", far, "netns", namespace)
        ip("-n", namespace, "link", "set", far, "name", "eth0")
    else:
        ip("link", "add", near, "type", "veth", "peer", "eth0", "netns", namespace)
    ip("link", "set", near, "master", bridge)
    ip("link", "set", near, "up")
    return cable


def ip(*words: str) -> None:
    subprocess.run([_program(), *words], check=True, capture_output=True)


def _remove(*words: str) -> None:
    subprocess.run([_program(), *words], check=False, capture_output=True)


def _program() -> str:
    return shutil.which("ip", path=PATH) or "ip"


def can_make_namespaces() -> bool:
    """Whether this user may make network namespaces and connect them by a bridge."""
    name = f"try{os.getpid()}"
    if shutil.which("ip", path=PATH) is None:
        return False

    def succeeds(*words: str) -> bool:
        return subprocess.run([_program(), *words], capture_output=True, check=False).returncode == 0

    try:
        return succeeds("netns", "add", name) and succeeds("link", "add", name, "type", "bridge")
    finally:
        succeeds("link", "delete", name)
        succeeds("netns", "delete", name)


def can_relay() -> bool:
    """Whether this user may make TAP devices."""
    return os.access(DEVICE, os.R_OK | os.W_OK)
