"""A run that was killed and goes on must be the run that was not."""

import shutil
from pathlib import Path

import pytest

from fedsim.config import RunConfig
from fedsim.engine.launch import launch
from fedsim.results import checkpoint as checkpoints
from fedsim.results.checkpoint import Checkpoint
from fedsim.results.record import read_manifest, read_summary
from tests.events import reproducible_events


def check_resuming(config: RunConfig, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Asserts it for a run of more than 3 rounds with a checkpoint in every round.

    A copy of the run folder, as it is right after the checkpoint of step 3, is what a killed run would leave behind.
    """
    whole, copy = folder / "whole", folder / "copy"
    save = checkpoints.save

    def save_and_copy(into: Path, point: Checkpoint) -> None:
        save(into, point)
        if point.step == 3:
            shutil.copytree(whole, copy)

    monkeypatch.setattr(checkpoints, "save", save_and_copy)
    launch(config.replace(out=str(whole)), "inline")
    monkeypatch.setattr(checkpoints, "save", save)
    launch(config.replace(out=str(copy), resume=True), "inline")

    expected, resumed = read_summary(whole), read_summary(copy)
    for summary in (expected, resumed):
        del summary["seconds"]
    assert resumed == expected
    assert read_manifest(copy)["resumed"] == [3]
    assert reproducible_events(copy) == reproducible_events(whole)
