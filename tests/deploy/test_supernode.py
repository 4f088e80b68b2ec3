"""The SuperNode of `fedsim deploy`: Flower's own main loop and retries, with shorter waits."""

import time
from itertools import islice

import pytest

from fedsim.deploy import supernode
from fedsim.flower.object_pull import PULL_FUNCTIONS
from fedsim.flower.supernode import grpc_retry, main_loop


@pytest.fixture(autouse=True)
def _restored(monkeypatch: pytest.MonkeyPatch) -> None:
    """What `shorten_waits` changes in Flower is Flower's own again after each test."""
    monkeypatch.setattr(main_loop, "time", time)
    monkeypatch.setattr(grpc_retry, "MAX_RETRY_DELAY", 20)
    for pull in PULL_FUNCTIONS:
        monkeypatch.setitem(pull.__kwdefaults__, "initial_backoff", 1)


def test_a_supernode_waits_less_while_messages_come(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    supernode.shorten_waits()
    main_loop.time.sleep(3)
    main_loop.time.sleep(0.5)
    main_loop.time.sleep(3)
    assert slept == [supernode.FIRST_WAIT, supernode.REPLY_WAIT, supernode.FIRST_WAIT]
    assert main_loop.time.monotonic is time.monotonic


def test_a_supernode_retries_sooner_to_reach_the_superlink() -> None:
    waits = grpc_retry.make_simple_grpc_retry_invoker().wait_gen_factory
    assert max(islice(waits(), 9)) == 20
    supernode.shorten_waits()
    assert max(islice(waits(), 9)) == supernode.RECONNECT_WAIT
