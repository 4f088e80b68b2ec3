"""The metrics of a run over its rounds, per client, and what a summary says of them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

KINDS = ("global", "personal", "local")


@dataclass
class Curve:
    """One metric of one kind of model: its mean after each evaluated round, and every client's latest value and round."""

    direction: str = "max"  # whether the largest or the smallest value is the best: max | min
    points: list[tuple[int, float]] = field(default_factory=list)
    latest: dict[int, float] = field(default_factory=dict)
    rounds: dict[int, int] = field(default_factory=dict)

    def add(self, number: int, values: Mapping[int, float], weights: Mapping[int, float] | None = None) -> float | None:
        """Clients' values after round `number`. The point of the curve is the mean, weighted if asked, over every
        client's latest number: who is busy or was not asked keeps the one it had."""
        if not values:
            return None
        self.latest |= values
        self.rounds |= dict.fromkeys(values, number)
        mean = self.mean(self.latest, weights)
        if mean is not None:
            self.points.append((number, mean))
        return mean

    def mean(self, clients: Iterable[int], weights: Mapping[int, float] | None = None) -> float | None:
        """The mean of the latest numbers of these clients, as far as they have one."""
        scale = {c: weights[c] if weights else 1.0 for c in sorted(clients) if c in self.latest}
        return sum(scale[c] * self.latest[c] for c in scale) / sum(scale.values()) if scale else None

    def summary(self, clients: Sequence[int]) -> dict[str, Any]:
        if not self.points:
            return {"best": None, "best_round": None, "final": None, "per_client": [], "last_tested": []}
        choose = max if self.direction == "max" else min
        best_round, best = choose(self.points, key=lambda point: point[1])
        return {
            "best": best,
            "best_round": best_round,
            "final": self.points[-1][1],
            "per_client": [self.latest.get(c) for c in clients],
            "last_tested": [self.rounds.get(c) for c in clients],
        }
