"""A cable between two network interfaces that is a process, so that it can lose and delay packets as the internet does.

    python -m fedsim.deploy.chaos.relay FILE_DESCRIPTOR FILE_DESCRIPTOR

The descriptors are of TAP devices. Standard input says how the cable behaves from now on, a line of JSON at a time: `loss`
(share of packets), `delay` and `jitter` (seconds, of one way). Its end ends the process.
"""

import fcntl
import heapq
import json
import os
import select
import struct
import subprocess
import sys
import time
from contextlib import suppress
from itertools import count
from random import Random

DEVICE, SET_NAME, TAP_WITHOUT_HEADER = "/dev/net/tun", 0x400454CA, 0x1002  # Linux: TUNSETIFF, IFF_TAP | IFF_NO_PI
LARGEST = 65_536  # bytes of a frame


class Cable:
    """Connects two TAP devices of these names, which it creates; they exist as long as the cable does."""

    def __init__(self, one: str, other: str) -> None:
        ends = [_tap(one), _tap(other)]
        command = [sys.executable, "-P", "-m", "fedsim.deploy.chaos.relay", *map(str, ends)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=ends, start_new_session=True)
        for end in ends:
            os.close(end)

    def behave(self, loss: float = 0.0, delay: float = 0.0, jitter: float = 0.0) -> None:
        """As a good cable, unless told otherwise."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{json.dumps({'loss': loss, 'delay': delay, 'jitter': jitter})}\n".encode())
        self._process.stdin.flush()

    def remove(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def _tap(name: str) -> int:
    """A new TAP device, as a file descriptor for its frames."""
    device = os.open(DEVICE, os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(device, SET_NAME, struct.pack("16sH22x", name.encode(), TAP_WITHOUT_HEADER))
    return device


def relay(one: int, other: int, settings: int) -> None:
    """Carries frames both ways until the settings end."""
    rng, number = Random(0), count()
    way = {one: other, other: one}
    behaviour = {"loss": 0.0, "delay": 0.0, "jitter": 0.0}
    waiting: list[tuple[float, int, int, bytes]] = []  # due, number, where to, frame
    while True:
        pause = max(0.0, waiting[0][0] - time.monotonic()) if waiting else None
        ready, _, _ = select.select([one, other, settings], [], [], pause)
        if settings in ready:
            if not (told := os.read(settings, LARGEST)):
                return
            behaviour = json.loads(told.splitlines()[-1])
        for end in {one, other}.intersection(ready):
            with suppress(OSError):  # the device is down
                frame = os.read(end, LARGEST)
                if rng.random() >= behaviour["loss"]:
                    due = time.monotonic() + behaviour["delay"] + rng.random() * behaviour["jitter"]
                    heapq.heappush(waiting, (due, next(number), way[end], frame))
        while waiting and waiting[0][0] <= time.monotonic():
            with suppress(OSError):
                os.write(*heapq.heappop(waiting)[2:])


if __name__ == "__main__":
    relay(int(sys.argv[1]), int(sys.argv[2]), sys.stdin.fileno())
