"""Parts of a message that are still on their way are asked for again soon."""

import time

import pytest
from flwr.supercore.inflatable.inflatable_utils import ObjectUnavailableError, pull_objects

from fedsim.flower.object_pull import FIRST_RETRY, retry_sooner


def test_a_part_that_comes_a_little_later_is_not_waited_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(pull_objects.__kwdefaults__, "initial_backoff", 1)  # as Flower has it; restored afterwards
    retry_sooner()
    asked: list[float] = []

    def pull(name: str) -> bytes:
        asked.append(time.monotonic())
        if len(asked) < 3:
            raise ObjectUnavailableError(name)
        return b"here"

    assert pull_objects(["part"], pull) == {"part": b"here"}
    assert pull_objects.__kwdefaults__["initial_backoff"] == FIRST_RETRY
    assert len(asked) == 3
