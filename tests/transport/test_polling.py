"""Waits follow what is going on: short in the middle of things, long when nothing happens."""

import pytest

from fedsim.transport import polling as polling


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
    monkeypatch.setattr(polling, "time", here)
    return here


def test_a_tenth_of_the_idle_time_within_bounds(clock: Clock) -> None:
    waits = polling.Polling(shortest=0.05, longest=1.0)
    waits.sleep()
    clock.now += 3.95  # four seconds of nothing
    waits.sleep()
    clock.now += 100
    waits.sleep()
    waits.worked()
    waits.sleep()
    assert clock.slept == [0.05, pytest.approx(0.4), 1.0, 0.05]
