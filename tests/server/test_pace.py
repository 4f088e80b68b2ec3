"""Each pace against a table drawn by hand."""

import pytest

from fedsim.config import RunConfig, parse
from fedsim.errors import ConfigError
from fedsim.payload import SimulatedDelay
from fedsim.server.pace import Situation
from fedsim.server.run import pace_and_stragglers
from fedsim.server.stragglers import JobProfile, Stragglers
from tests.server.test_loop import run


class ByClient(Stragglers):
    """Client c always takes c+1 seconds."""

    def __init__(self) -> None:
        super().__init__(None, RunConfig())

    def delay(self, job: JobProfile) -> float:
        return float(job.client)

    def simulated_delay(self, job: JobProfile) -> SimulatedDelay:
        return SimulatedDelay(1.0 + job.client)


def steps(**keys: object) -> tuple[list[list[tuple[int, int]]], float]:
    """Who arrived at each step, how stale; and how late it is at the end. Three clients of 1, 2 and 3 seconds."""
    ran = run(delays=ByClient(), clients=3, **keys)
    return ran.server.steps, ran.clock.now


def test_synchronous_waits_for_the_slowest() -> None:
    assert steps(rounds=2) == ([[(0, 0), (1, 0), (2, 0)]] * 2, 6.0)


def test_a_deadline_drops_the_late() -> None:
    # 0-2: clients 0 and 1; client 2 comes at 3, late. 2-4: 0 and 1 again, 2 is asked again only at 4.
    expected = [[(0, 0), (1, 0)], [(0, 0), (1, 0)], [(0, 0), (1, 0)]]
    assert steps(rounds=3, pace="deadline", **{"pace.seconds": 2}) == (expected, 6.0)


def test_a_deadline_may_let_the_late_join() -> None:
    expected = [[(0, 0), (1, 0)], [(0, 0), (2, 1), (1, 0)], [(0, 0), (1, 0)]]
    assert steps(rounds=3, pace="deadline", **{"pace.seconds": 2, "pace.late": "join"}) == (expected, 6.0)


def test_a_deadline_that_nobody_meets_waits_for_the_first() -> None:
    assert steps(rounds=1, pace="deadline", **{"pace.seconds": 0.5})[0] == [[(0, 0)]]


def test_wait_fraction_steps_when_enough_are_there() -> None:
    # two of three: at 2. Client 2 is out until 3, so the second cohort is 0 and 1, and one of them is enough.
    expected = [[(0, 0), (1, 0)], [(0, 0)]]
    assert steps(rounds=2, pace="wait-fraction", **{"pace.fraction": 0.5}) == (expected, 3.0)


def test_periodic_steps_at_fixed_times() -> None:
    expected = [[(0, 0), (1, 0)], [(0, 0), (2, 1), (1, 0)], [(0, 0), (1, 0)]]
    assert steps(rounds=3, pace="periodic", **{"pace.seconds": 2}) == (expected, 6.0)


def test_periodic_skips_a_time_at_which_nothing_is_there() -> None:
    assert steps(rounds=2, pace="periodic", **{"pace.seconds": 0.75}) == ([[(0, 0)], [(1, 1)]], 2.25)


def test_a_window_collects_after_the_first() -> None:
    # first arrival at 1, window to 2: clients 0 and 1. Then 2 arrives at 3, as 0 does again; 1 at 4 is just in time.
    expected = [[(0, 0), (1, 0)], [(0, 0), (2, 1), (1, 0)]]
    assert steps(rounds=2, pace="window", **{"pace.seconds": 1}) == (expected, 4.0)


def test_a_window_of_zero_takes_one_moment() -> None:
    assert steps(rounds=3, pace="window") == ([[(0, 0)], [(0, 0), (1, 1)], [(0, 0), (2, 2)]], 3.0)


def test_buffered_counts_results() -> None:
    # arrivals: 0 at 1, (0 and 1) at 2: step. 0 and 2 at 3: step ...
    expected = [[(0, 0), (0, 0)], [(1, 1), (0, 0)]]
    got, _ = steps(rounds=2, pace="buffered", **{"pace.k": 2})
    assert [len(step) for step in got] == [2, 2]
    assert got == expected


def test_buffered_one_steps_on_every_arrival() -> None:
    got, now = steps(rounds=4, pace="buffered", **{"pace.k": 1})
    assert got == [[(0, 0)], [(0, 0)], [(1, 2)], [(0, 0)]]
    assert now == 3.0


def test_buffered_keeps_a_share_of_the_clients_busy() -> None:
    _, jobs = (ran := run(clients=10, rounds=8, participation=0.2, pace="buffered")), ran.messenger.jobs
    assert max(len([j for j in jobs if j.train and j.step == s]) for s in range(8)) <= 2


@pytest.mark.parametrize("pace", ["window", "periodic", "deadline", "wait-fraction"])
def test_without_delays_every_pace_is_rounds(pace: str) -> None:
    keys = {"pace.fraction": 1.0} if pace == "wait-fraction" else {}
    ran, rounds = run(clients=4, rounds=3, pace=pace, **keys), run(clients=4, rounds=3)
    assert ran.server.steps == rounds.server.steps
    assert ran.clock.now == rounds.clock.now


def test_the_cohort_depends_on_seed_and_step_alone() -> None:
    def cohort(seed: int, step: int) -> list[int]:
        pace, _ = pace_and_stragglers(RunConfig(clients=20, participation=0.5, seed=seed))
        return pace.admit(Situation(step, 0.0, 0.0, range(20), 0, 0, 0, 0, None, due=False))

    assert cohort(1, 3) == cohort(1, 3)
    assert cohort(1, 3) != cohort(1, 4)
    assert cohort(1, 3) != cohort(2, 3)
    assert len(set(cohort(1, 3))) == 10


@pytest.mark.parametrize(
    ("pairs", "told"),
    [
        ({"pace": "buffered", "pace.k": "11"}, "only 10 clients work at a time"),
        ({"pace": "buffered", "pace.k": "3", "participation": "0.2"}, "only 2 clients work at a time"),
        ({"pace": "buffered", "pace.k": "0"}, "pace.k must be at least 1"),
        ({"pace": "deadline", "pace.seconds": "0"}, "pace.seconds must be above 0"),
        ({"pace": "deadline", "pace.late": "maybe"}, "drop, join"),
        ({"pace": "wait-fraction", "pace.fraction": "1.5"}, "pace.fraction"),
        ({"pace": "window", "pace.seconds": "-1"}, "pace.seconds must be at least 0"),
        ({"pace": "synchronous", "pace.k": "2"}, "unknown config key 'pace.k'"),
    ],
)
def test_nonsense_is_refused(pairs: dict[str, str], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        pace_and_stragglers(parse(pairs))
