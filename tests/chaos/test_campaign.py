"""Which faults a campaign draws, and a short campaign by the command."""

import subprocess
from collections import Counter
from pathlib import Path

import pytest

from fedsim.chaos import matrix
from fedsim.chaos.campaign import LEVELS, draw, schedule
from fedsim.chaos.fault import Level
from fedsim.files import read_json
from fedsim.registry import load
from tests.system_tools import BIN


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


@pytest.mark.timeout(400)
def test_a_short_campaign_finds_nothing_wrong(tmp_path: Path) -> None:
    """By the command, in a process of its own; the long one is `make chaos`."""
    command = [str(BIN / "fedsim"), "chaos", "--seed", "1", "--faults", "20", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found = read_json(tmp_path / "chaos.json")
    assert Counter(trial["level"] for trial in found["trials"]) == {"inline": 14, "grid": 5, "ray": 1}
    table = matrix.markdown([tmp_path / "chaos.json"])
    assert "Seeds: inline: 1; grid: 1; ray: 1." in table
    assert table.splitlines()[-1] == "| all | 14 of 14 | 5 of 5 | 1 of 1 |"
    assert list((tmp_path / "inline" / "trials").iterdir()) == []
