"""Numbers that may change over the rounds: "X", or "X:F:N" for X * F^(k div N) at round k, such as 1e4:0.1:30."""

from dataclasses import dataclass
from math import isfinite

from fedsim.errors import ConfigError


@dataclass(frozen=True)
class Schedule:
    """A positive number that is multiplied by `factor` after every so many rounds."""

    start: float
    factor: float = 1.0
    every: int = 1

    @classmethod
    def parse(cls, key: str, text: str, words: tuple[str, ...] = ()) -> "Schedule | None":
        """The schedule that a parameter says; None if it is one of the `words` that stand for a rule."""
        if text in words:
            return None
        try:
            start, factor, every = (*map(float, text.split(":")), 1.0, 1.0)[:3]
            if text.count(":") in (0, 2) and min(start, factor, every) > 0 and isfinite(start) and every == int(every):
                return cls(start, factor, int(every))
        except ValueError:
            pass
        choices = ", ".join((*words, "a number above 0", "START:FACTOR:ROUNDS"))
        raise ConfigError(f"{key} cannot be {text!r}. Choices: {choices}")

    def at(self, step: int) -> float:
        return self.start * self.factor ** (step // self.every)
