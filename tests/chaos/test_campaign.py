"""Which faults a campaign draws, and a short campaign by the command."""

from collections import Counter

import pytest

from fedsim.chaos.campaign import LEVELS, draw, schedule
from fedsim.chaos.fault import Level
from fedsim.registry import load


@pytest.mark.parametrize("name", LEVELS)
def test_every_fault_is_drawn_as_often_as_its_weight_says(name: str) -> None:
    level: type[Level] = load(LEVELS[name])
    possible = {fault: fault.weight for fault in level.faults if fault.is_possible()}
    total = sum(possible.values())
    assert Counter(draw(5, level, number)[0] for number in range(2 * total)) == {f: 2 * w for f, w in possible.items()}
    names = [fault.name for fault in level.faults]
    assert len(names) == len(set(names))


def test_a_trial_depends_on_its_seed_and_number_alone() -> None:
    level: type[Level] = load(LEVELS["inline"])

    def drawn(seed: int) -> list[tuple[str, float]]:
        return [(fault.name, rng.random()) for fault, rng in (draw(seed, level, number) for number in range(20))]

    assert drawn(1) == drawn(1) != drawn(2)


def test_levels_share_the_faults() -> None:
    levels: list[type[Level]] = [load(path) for path in LEVELS.values()]
    chosen = list(schedule(levels, 200))
    shares = sum(level.share for level in levels)
    for level in levels:
        numbers = [number for other, number in chosen if other is level]
        assert numbers == list(range(len(numbers)))
        assert abs(len(numbers) - 200 * level.share / shares) <= 1
    first = [level for level, _ in chosen[: 2 * shares]]
    assert set(first) == set(levels), "they are mixed"
