"""Reads damaged inputs until one is answered by anything but a result or an error for the user."""

import signal
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from fedsim.errors import FedsimError
from tests.fuzz.mutations import mutated
from tests.fuzz.readers import READERS

PATIENCE = 20  # seconds for an input


@dataclass
class Outcome:
    """How a reader answered: how many inputs it accepted and refused, and the last line of each other answer."""

    accepted: int = 0
    refused: int = 0
    escaped: dict[str, bytes] = field(default_factory=dict)  # the error and where it was raised -> the first such input

    @property
    def inputs(self) -> int:
        return self.accepted + self.refused


def attack(name: str, inputs: int, folder: Path, seed: int = 0) -> Outcome:
    """Gives a reader so many inputs, which the seed determines; works in an empty folder."""
    reader, outcome = READERS[name], Outcome()
    valid = list(reader.valid(folder))
    for content in valid:
        reader.read(content, folder)
    rng = Random(f"{name} {seed}")
    before = signal.signal(signal.SIGALRM, _give_up)
    try:
        for _ in range(inputs):
            content = mutated(valid, rng)
            signal.alarm(PATIENCE)
            try:
                reader.read(content, folder)
                outcome.accepted += 1
            except FedsimError:
                outcome.refused += 1
            except Exception as error:
                frames = traceback.extract_tb(error.__traceback__)
                where = next((frame for frame in reversed(frames) if "/fedsim/" in frame.filename), frames[-1])
                told = f"{type(error).__name__} at {Path(where.filename).name}:{where.lineno}"
                outcome.escaped.setdefault(told, content)
            finally:
                signal.alarm(0)
    finally:
        signal.signal(signal.SIGALRM, before)
    return outcome


def _give_up(number: int, frame: object) -> None:
    raise TimeoutError(f"an input took longer than {PATIENCE} s")
