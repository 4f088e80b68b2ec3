"""What a command says while the user waits."""

import time

import pytest

from fedsim.results import waiting as module
from fedsim.results.waiting import waiting


def test_a_long_wait_is_told_once(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(module, "AFTER", 0.001)
    told, deadline = "", time.monotonic() + 30
    with waiting("preparing digits") as progress, waiting("inside"):
        while not told and time.monotonic() < deadline:
            progress(1, 2)
            told += capsys.readouterr().err
    assert told == "preparing digits ...\n"


def test_a_short_wait_is_not_told(capsys: pytest.CaptureFixture[str]) -> None:
    with waiting("preparing digits") as progress:
        progress(2, 2)
    assert capsys.readouterr().err == ""
