"""What a message costs on Ray without any training: fedsim against Flower's own simulation, 100 clients, 440k weights."""

from benchmarks.process import fresh
from benchmarks.row import Row
from benchmarks.sides import fedsim, flower, per_round

NAME = "messages"
LIMIT = 0.5
CLIENTS, PARAMETERS = 100, 440_812  # the weights of `cnn` on 28x28 grey images, 10 classes
ROUNDS, TURNS = 8, 3


def run() -> list[Row]:
    pairs = []
    for _ in range(TURNS):
        stock = fresh(flower, CLIENTS, PARAMETERS, ROUNDS)
        ours = fresh(fedsim, "ray", CLIENTS, 20, 0, ROUNDS)
        pairs.append((1000 * per_round(ours) / CLIENTS, 1000 * per_round(stock) / CLIENTS))
    return [Row.of("message on Ray, vs Flower simulation", pairs, "ms", LIMIT)]
