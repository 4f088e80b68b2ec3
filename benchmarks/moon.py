"""What MOON's two further passes through frozen networks cost: rounds of W1, beside FedAvg.

With several epochs the frozen networks' features are computed in the first one alone.
"""

from dataclasses import replace
from statistics import median

from benchmarks.comparison import Comparison, Row
from benchmarks.contenders import fedsim
from benchmarks.process import fresh
from benchmarks.workloads import W1

TURNS, LIMIT = 3, 2.2
WORKLOAD = replace(W1, rounds=2)


def run() -> list[Row]:
    return [_compare(1), _compare(5)]


def _compare(epochs: int) -> Comparison:
    pairs = [(_seconds("moon", epochs), _seconds("fedavg", epochs)) for _ in range(TURNS)]
    told = "1 local epoch" if epochs == 1 else f"{epochs} local epochs"
    return Comparison.of(f"MOON, a round of W1 with {told}, vs FedAvg", pairs, "s", LIMIT)


def _seconds(algorithm: str, epochs: int) -> float:
    """Of a round, without evaluation."""
    return median(fresh(fedsim, "inline", WORKLOAD, {"algorithm": algorithm, "local-epochs": epochs}).seconds)
