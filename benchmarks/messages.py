"""A message on Ray without training, for models of 10 thousand to 10 million parameters: fedsim against Flower."""

import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.comparison import Comparison, Row
from benchmarks.contenders import data_folder, fedsim
from benchmarks.process import fresh
from benchmarks.workloads import Workload, save_noise

LIMIT = 0.5
CLASSES, SAMPLES = 1_000, 50
SIZES = (("10k", 9, 20), ("100k", 99, 20), ("1M", 999, 20), ("10M", 9_999, 20))  # (features + 1) x 1,000 parameters
ROUNDS, TURNS = 3, 3


def run() -> list[Row]:
    usual = Model(440, 100)
    pairs = [(_fedsim(usual, ROUNDS), fresh(flower, usual, ROUNDS)) for _ in range(TURNS)]
    rows: list[Row] = [Comparison.of("message on Ray, 441k parameters, 100 clients, vs Flower", pairs, "ms", LIMIT)]
    for title, features, clients in SIZES:
        model = Model(features, clients)
        ours, stock = (ms / model.megabytes for ms in (_fedsim(model, ROUNDS), fresh(flower, model, ROUNDS)))
        rows.append(Comparison(f"per MB of a message on Ray, {title} parameters, vs Flower", ours, stock, "ms"))
    return rows


@dataclass(frozen=True)
class Model:
    """Logistic regression with 1,000 classes, and how many clients exchange it."""

    features: int
    clients: int

    @property
    def parameters(self) -> int:
        return (self.features + 1) * CLASSES

    @property
    def megabytes(self) -> float:
        """There and back."""
        return 2 * 4 * self.parameters / 1e6


def _fedsim(model: Model, rounds: int) -> float:
    """Milliseconds per message."""
    clients = model.clients
    workload = Workload("", "mlr", (1, 1, model.features), clients, SAMPLES, clients, SAMPLES, rounds)
    path = data_folder() / f"{workload.dataset}.npz"
    if not path.exists():
        save_noise(path, (1, model.features), clients * SAMPLES, CLASSES, CLASSES)
    seconds = fresh(fedsim, "ray", workload, {"workers": 2, "local-epochs": 0}).seconds
    return 1000 * sum(seconds) / rounds / clients


def flower(model: Model, rounds: int) -> float:
    """The same in Flower's simulation with Flower's FedAvg; its clients return a model of one flat array, which is the
    cheapest form for Flower: a state dict would be several objects."""
    from flwr.app import ArrayRecord, Context
    from flwr.serverapp import Grid, ServerApp
    from flwr.serverapp.strategy import FedAvg
    from flwr.simulation import run_simulation

    from benchmarks.flower_client import app as client_app

    moments: list[float] = []
    server_app = ServerApp()

    @server_app.main()
    def main(grid: Grid, context: Context) -> None:
        strategy = FedAvg(fraction_evaluate=0.0, min_train_nodes=model.clients, min_available_nodes=model.clients)
        initial = ArrayRecord([np.zeros(model.parameters, np.float32)])
        strategy.start(grid, initial, rounds + 1, evaluate_fn=lambda number, _: moments.append(time.monotonic()))

    backend: dict[str, Any] = {
        "init_args": {"address": "local", "num_cpus": 2},
        "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
    }
    run_simulation(server_app, client_app, model.clients, backend_config=backend)
    if len(moments) != rounds + 2:  # the first call is before the first round
        raise RuntimeError(f"Flower ended {len(moments) - 1} rounds, not {rounds + 1}")
    return 1000 * (moments[-1] - moments[1]) / rounds / model.clients
