"""Three hosts on this machine: network namespaces with addresses of their own, joined by a bridge. Nothing leaves it.

Where namespaces cannot be made (no root, no iproute2) the hosts are this machine's loopback.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

NETWORK = "198.51.100"  # addresses kept for examples: they belong to nobody


@dataclass(frozen=True)
class TestHost:
    __test__ = False
    address: str
    namespace: str  # empty: this machine itself

    @property
    def via(self) -> str:
        return f"ip netns exec {self.namespace}" if self.namespace else ""

    def unplug(self) -> None:
        ip("-n", self.namespace, "link", "set", "eth0", "down")

    def plug_in(self) -> None:
        ip("-n", self.namespace, "link", "set", "eth0", "up")


@contextmanager
def network(size: int = 3) -> Iterator[list[TestHost]]:
    bridge = f"fb{os.getpid()}"[:15]
    names = [f"fedsim-{os.getpid()}-{i}" for i in range(size)]
    try:
        if not _possible(bridge):
            yield [TestHost("127.0.0.1", "")] * size
            return
        ip("link", "set", bridge, "up")
        for i, name in enumerate(names):
            ip("netns", "add", name)
            ip(
                "link",
                "add",
                f"fv{i}-{os.getpid()}"[:15],
                "master",
                bridge,
                "type",
                "veth",
                "peer",
                "eth0",
                "netns",
                name,
            )
            ip("link", "set", f"fv{i}-{os.getpid()}"[:15], "up")
            ip("-n", name, "address", "add", f"{NETWORK}.{10 + i}/24", "dev", "eth0")
            ip("-n", name, "link", "set", "eth0", "up")
            ip("-n", name, "link", "set", "lo", "up")
        yield [TestHost(f"{NETWORK}.{10 + i}", name) for i, name in enumerate(names)]
    finally:
        for words in (*(("netns", "delete", name) for name in names), ("link", "delete", bridge)):
            subprocess.run(["ip", *words], check=False, capture_output=True)


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


def _possible(bridge: str) -> bool:
    if shutil.which("ip") is None or os.geteuid() != 0:
        return False
    return (
        subprocess.run(["ip", "link", "add", bridge, "type", "bridge"], check=False, capture_output=True).returncode
        == 0
    )
