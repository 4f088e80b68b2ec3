"""Three hosts on this machine: network namespaces with addresses of their own, connected by a bridge.

A user who cannot make network namespaces gets loopback three times instead.
"""

import itertools
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tests.system_tools import is_there, program

NETWORK = "198.51.100"  # reserved for documentation (RFC 5737), so no real host has such an address
NUMBERS = itertools.count()  # of the networks of this process: the kernel removes the links of a former one later


@dataclass(frozen=True)
class TestHost:
    __test__ = False
    address: str
    namespace: str  # empty: this machine itself

    @property
    def via(self) -> str:
        """The command that runs another one on this host."""
        return f"{program('ip')} netns exec {self.namespace}" if self.namespace else ""

    def disconnect(self) -> None:
        ip("-n", self.namespace, "link", "set", "eth0", "down")

    def connect(self) -> None:
        ip("-n", self.namespace, "link", "set", "eth0", "up")


@contextmanager
def network(size: int = 3) -> Iterator[list[TestHost]]:
    """Hosts that reach each other. All names contain the process id: two test processes can each have a network."""
    if not is_there("network namespaces"):
        yield [TestHost("127.0.0.1", "")] * size
        return
    network_id = f"{os.getpid()}-{next(NUMBERS)}"
    bridge = f"fb{network_id}"
    names = [f"fedsim-{network_id}-{i}" for i in range(size)]
    try:
        ip("link", "add", bridge, "type", "bridge")
        ip("link", "set", bridge, "up")
        for i, name in enumerate(names):
            cable = f"f{i}-{network_id}"
            ip("netns", "add", name)
            ip("link", "add", cable, "master", bridge, "type", "veth", "peer", "eth0", "netns", name)
            ip("link", "set", cable, "up")
            ip("-n", name, "address", "add", f"{NETWORK}.{10 + i}/24", "dev", "eth0")
            ip("-n", name, "link", "set", "eth0", "up")
            ip("-n", name, "link", "set", "lo", "up")
        yield [TestHost(f"{NETWORK}.{10 + i}", name) for i, name in enumerate(names)]
    finally:
        for words in (*(("netns", "delete", name) for name in names), ("link", "delete", bridge)):
            subprocess.run([str(program("ip")), *words], check=False, capture_output=True)


def ip(*words: str) -> None:
    subprocess.run([str(program("ip")), *words], check=True, capture_output=True)
