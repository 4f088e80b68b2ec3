from pathlib import Path

import numpy as np
import pytest

from fedsim.config import parse
from fedsim.errors import ConfigError
from fedsim.server.run import pace_and_stragglers
from fedsim.server.stragglers import JobProfile, Stragglers
from tests.server.test_loop import run

# Five stragglers of periods 1 to 5 over 30 rounds, drawn by hand from "take part in one round, miss p". Client p-1
# starts from round a and its result joins round a+p: its results join rounds p, 2p+1, 3p+2, ... (from 0), always p
# rounds stale.
JOINS = {
    0: [1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29],
    1: [2, 5, 8, 11, 14, 17, 20, 23, 26, 29],
    2: [3, 7, 11, 15, 19, 23, 27],
    3: [4, 9, 14, 19, 24, 29],
    4: [5, 11, 17, 23, 29],
}
# The authors' code: in between, every straggler takes part in one round freshly; a cycle takes p+2 rounds.
OFFICIAL = {0: [0, 2, 3, 5, 6, 8, 9, 11], 4: [0, 6, 7, 13, 14, 20, 21, 27, 28]}


def model(**keys: object) -> Stragglers:
    return pace_and_stragglers(parse({k.replace("__", ".").replace("_", "-"): str(v) for k, v in keys.items()}))[1]


def work(client: int = 0, step: int = 0, now: float = 0.0) -> JobProfile:
    return JobProfile(client, step, 0, now, samples=1000, bytes=2_000_000)


@pytest.mark.parametrize("pace", ["window", "periodic"])
def test_the_periodic_schedule_is_the_table(pace: str) -> None:
    ran = run(clients=10, rounds=30, pace=pace, **{"stragglers": "periodic", "stragglers.count": 5})
    for client, joins in JOINS.items():
        got = [(r, s) for r, step in enumerate(ran.server.steps) for c, s in step if c == client]
        assert got == [(r, client + 1) for r in joins], f"client {client}"
    for client in range(5, 10):
        got = [(r, s) for r, step in enumerate(ran.server.steps) for c, s in step if c == client]
        assert got == [(r, 0) for r in range(30)]
    assert ran.clock.now == 30.0


def test_the_official_schedule() -> None:
    keys = {"stragglers": "periodic", "stragglers.count": 5, "stragglers.schedule": "official"}
    ran = run(clients=10, rounds=30, pace="window", **keys)
    for client, joins in OFFICIAL.items():
        got = [(r, s) for r, step in enumerate(ran.server.steps) for c, s in step if c == client]
        assert [r for r, _ in got][: len(joins)] == joins
        assert {s for _, s in got} == {0, client + 1}


def test_no_stragglers_in_the_set_is_no_delay() -> None:
    assert {model(stragglers="periodic", stragglers__count=0).simulated_delay(work(c)).delay for c in range(10)} == {
        0.0
    }


def test_uniform_rounds_is_uniform_and_seeded() -> None:
    delays = [model(stragglers="uniform-rounds").delay(work(c, s)) for c in range(10) for s in range(60)]
    counts = [delays.count(d) for d in (0.0, 1.0, 2.0)]
    assert sum(counts) == 600
    assert min(counts) > 150
    assert [model(stragglers="uniform-rounds").delay(work(c, s)) for c in range(10) for s in range(60)] == delays
    assert [
        model(stragglers="uniform-rounds", seed=1).delay(work(c, s)) for c in range(10) for s in range(60)
    ] != delays


def test_speed_by_hand() -> None:
    still = {"stragglers__spread": 0, "stragglers__bandwidth_spread": 0, "stragglers__jitter": 0}
    # 1000 samples at 500 per second, 2 MB at 1 MB per second
    assert model(stragglers="speed", **still).simulated_delay(work()).duration == pytest.approx(4.0)
    slow = model(stragglers="speed", **{**still, "stragglers__samples": 50})
    assert slow.simulated_delay(work()).duration == pytest.approx(22.0)


def test_speed_belongs_to_the_client() -> None:
    fleet = model(stragglers="speed", stragglers__jitter=0, clients=300)
    first = np.array([fleet.delay(work(c)) for c in range(300)])
    assert np.array_equal(first, [fleet.delay(work(c, step=7)) for c in range(300)])
    assert 0.3 < np.std(np.log(first)) < 0.7


def test_a_trace_says_what_is_in_force(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("client,time,duration\n1,0,7\n0,10,5\n0,0,2\n0,20,inf\n0,50,3\n")
    trace = model(stragglers="trace", stragglers__file=path, clients=2)
    assert [trace.simulated_delay(work(0, now=t)).duration for t in (0, 9.9, 10, 60)] == [2, 2, 5, 3]
    assert trace.simulated_delay(work(1, now=99)).duration == 7
    lost = trace.simulated_delay(work(0, now=30))
    assert (lost.absence, lost.duration) == (20.0, 1.0)


def test_the_trace_that_ships_serves_any_number_of_clients() -> None:
    trace = model(stragglers="trace", clients=25)
    assert trace.simulated_delay(work(3)) == trace.simulated_delay(work(13))
    assert trace.simulated_delay(work(3, now=9.5 * 3600)).absence == pytest.approx(2.5 * 3600)


def test_dropouts_come_with_their_probability() -> None:
    flaky = model(stragglers="none", stragglers__dropout=0.25, stragglers__absence="inf")
    delays = [flaky.simulated_delay(work(c, s)) for c in range(20) for s in range(50)]
    lost = [d for d in delays if d.absence is not None]
    assert 190 < len(lost) < 310
    assert {d.absence for d in lost} == {float("inf")}


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ({"stragglers": "periodic", "stragglers__count": 11}, "stragglers.count=11, but there are only clients=10"),
        ({"stragglers": "periodic", "stragglers__count": -1}, "at least 0"),
        ({"stragglers": "periodic", "stragglers__unit": 0}, "above 0"),
        ({"stragglers": "uniform-rounds", "stragglers__most": -1}, "at least 0"),
        ({"stragglers": "speed", "stragglers__samples": -5}, "above 0"),
        ({"stragglers": "none", "stragglers__dropout": 1}, "below 1"),
        ({"stragglers": "none", "stragglers__absence": -1}, "at least 0"),
        ({"stragglers": "trace", "stragglers__file": "nowhere.csv"}, "nowhere.csv"),
    ],
)
def test_nonsense_is_refused(keys: dict[str, object], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        model(**keys)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("client,time,duration\n0,0,1\n7,0,1\n", "names client 7, but clients=2 allows 0 to 1"),
        ("client,time,duration\n0,0,1\n", "no row for client 1"),
        ("client,time,duration\n0,0,-1\n1,0,1\n", "line 2"),
        ("client,time,duration\n0,0,1\n1,soon,1\n", "line 3"),
        ("client,duration\n0,1\n", "line 2"),
        ("client,time,duration\n", "no rows"),
    ],
)
def test_a_bad_trace_is_refused_by_line(text: str, told: str, tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(text)
    with pytest.raises(ConfigError, match=told):
        model(stragglers="trace", stragglers__file=path, clients=2)
