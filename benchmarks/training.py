"""What a round of real training costs: fedsim against the bare PyTorch loop, 10 clients x 600 images, `cnn`, batch 32."""

from benchmarks.bare import bare
from benchmarks.process import fresh
from benchmarks.row import Row
from benchmarks.sides import fedsim, per_round

NAME = "training"
CLIENTS, SAMPLES = 10, 600
ROUNDS, TURNS = 3, 2


def run() -> list[Row]:
    return [
        _against_bare("round inline, vs bare loop in 1 process", "inline", 1),
        _against_bare("round on 2 Ray workers, vs bare loop in 2 processes", "ray", 2),
    ]


def _against_bare(name: str, engine: str, workers: int) -> Row:
    pairs = []
    for _ in range(TURNS):
        reference = bare(workers, CLIENTS, SAMPLES, ROUNDS)
        ours = fresh(fedsim, engine, CLIENTS, SAMPLES, 1, ROUNDS)
        pairs.append((per_round(ours), per_round(reference)))
    return Row.of(name, pairs, "s")
