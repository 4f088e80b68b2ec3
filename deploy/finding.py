"""The result of a check: one line that names the path, port or host it is about, and the remedy."""

from dataclasses import dataclass
from typing import Literal

Level = Literal["ok", "warning", "problem"]


@dataclass(frozen=True)
class Finding:
    """Printed by `fedsim doctor` as text, or with `--json` as an object of these fields."""

    level: Level
    what: str  # what was checked
    message: str  # what was found, as a sentence
    remedy: str = ""

    def __str__(self) -> str:
        return f"{self.level:<8} {self.what}: {self.message}" + (f". Remedy: {self.remedy}" if self.remedy else "")


def ok(what: str, message: str) -> Finding:
    return Finding("ok", what, message)


def warning(what: str, message: str, remedy: str) -> Finding:
    return Finding("warning", what, message, remedy)


def problem(what: str, message: str, remedy: str) -> Finding:
    return Finding("problem", what, message, remedy)
