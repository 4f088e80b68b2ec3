"""What a check found: one line that stands alone, naming the path, port or host it is about and the remedy."""

from dataclasses import dataclass
from typing import Literal

Level = Literal["ok", "warning", "problem"]


@dataclass(frozen=True)
class Finding:
    level: Level
    what: str  # what was looked at
    told: str  # what was found
    remedy: str = ""

    def __str__(self) -> str:
        return f"{self.level:<8} {self.what}: {self.told}" + (f". Remedy: {self.remedy}" if self.remedy else "")


def ok(what: str, told: str) -> Finding:
    return Finding("ok", what, told)


def warning(what: str, told: str, remedy: str) -> Finding:
    return Finding("warning", what, told, remedy)


def problem(what: str, told: str, remedy: str) -> Finding:
    return Finding("problem", what, told, remedy)
