"""Waits follow what is going on: short in the middle of things, long when nothing happens."""

import time
from itertools import islice

import pytest

from deploy import supernode
from fedsim import pauses


class Clock:
    """Time that passes only in sleep."""

    def __init__(self) -> None:
        self.now, self.slept = 100.0, list[float]()

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.slept.append(seconds)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    here = Clock()
    monkeypatch.setattr(pauses, "time", here)
    return here


def test_a_tenth_of_the_idle_time_within_bounds(clock: Clock) -> None:
    waits = pauses.Pauses(shortest=0.05, longest=1.0)
    waits.sleep()
    clock.now += 3.95  # four seconds of nothing
    waits.sleep()
    clock.now += 100
    waits.sleep()
    waits.worked()
    waits.sleep()
    assert clock.slept == [0.05, pytest.approx(0.4), 1.0, 0.05]


def test_a_supernode_waits_less_while_it_is_at_work(monkeypatch: pytest.MonkeyPatch) -> None:
    internal = supernode.start_client_internal
    monkeypatch.setattr(internal, "time", time)  # restored afterwards
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    supernode.hurry()
    internal.time.sleep(3)
    internal.time.sleep(0.5)
    internal.time.sleep(3)
    assert slept == [supernode.FIRST, supernode.REPLY, supernode.FIRST]
    assert internal.time.monotonic is time.monotonic


def test_a_supernode_looks_sooner_for_a_superlink_that_was_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supernode.grpc_retry, "MAX_RETRY_DELAY", 20)  # both restored afterwards
    monkeypatch.setattr(supernode.start_client_internal, "time", time)
    waits = supernode.grpc_retry.make_simple_grpc_retry_invoker().wait_gen_factory
    assert max(islice(waits(), 9)) == 20
    supernode.hurry()
    assert max(islice(waits(), 9)) == supernode.RETRY
