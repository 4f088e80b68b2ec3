"""Damaged files and nonsensical settings end in an error for the user, never in another one (`make fuzz`: 100,000)."""

from pathlib import Path

import pytest

from tests.fuzz.campaign import attack
from tests.fuzz.readers import READERS

INPUTS = 40  # of each reader


@pytest.mark.parametrize("name", READERS)
def test_only_errors_for_the_user(name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("CRITICAL")
    outcome = attack(name, INPUTS, tmp_path)
    assert list(outcome.escaped) == []
    assert outcome.inputs == INPUTS
    assert outcome.refused > 0 or name in ("events", "lists of the cache")  # which leave out what is damaged
