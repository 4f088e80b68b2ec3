"""The runs that are compared. Each returns the moments at which its rounds ended, so that starting up never counts."""

import json
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

NEVER = 10**9


def per_round(moments: Sequence[float]) -> float:
    """Seconds per round between the first and the last of the given moments."""
    return (moments[-1] - moments[0]) / (len(moments) - 1)


def fedsim(engine: str, clients: int, samples: int, epochs: int, rounds: int) -> list[float]:
    """FedAvg on `cnn` and 28x28 noise, by way of `launch`, as `fedsim run` does it.

    The first and the last round also evaluate; the moments returned are those of the rounds between.
    """
    from fedsim.config import parse
    from fedsim.engine.launch import launch

    with tempfile.TemporaryDirectory() as home:
        os.environ["FEDSIM_CACHE"] = f"{home}/cache"
        _write_images(Path(home), clients * samples)
        config = parse(
            {
                "dataset": "mnist",  # DATA_ROOT/mnist.npz goes before the real one
                "data-root": home,
                "model": "cnn",
                "clients": clients,
                "rounds": rounds + 2,
                "local-epochs": epochs,
                "batch-size": 32,
                "eval-every": NEVER,
                "checkpoint-every": 0,
                "workers": 2,
                "device": "cpu",
                "out": f"{home}/run",
            }
        )
        launch(config, engine)
        events = [json.loads(line) for line in Path(f"{home}/run/events.jsonl").read_text().splitlines()]
    steps = [event for event in events if event["kind"] == "step"]
    failed = [failure for step in steps for failure in step["failures"]]
    if failed or any(len(step["clients"]) != clients for step in steps):
        raise RuntimeError(f"not every client answered in every round: {failed[:3]}")
    return [float(step["seconds"]) for step in steps[:-1]]


def flower(clients: int, parameters: int, rounds: int) -> list[float]:
    """Stock FedAvg in Flower's own simulation; its clients return a model at once.

    The model is one flat array, the cheapest form there is for Flower: one object where a state dict is a dozen.
    """
    from flwr.app import ArrayRecord, Context
    from flwr.serverapp import Grid, ServerApp
    from flwr.serverapp.strategy import FedAvg
    from flwr.simulation import run_simulation

    from benchmarks.flower_client import app as client_app

    moments: list[float] = []
    server_app = ServerApp()

    @server_app.main()
    def main(grid: Grid, context: Context) -> None:
        strategy = FedAvg(fraction_evaluate=0.0, min_train_nodes=clients, min_available_nodes=clients)
        model = ArrayRecord([np.zeros(parameters, np.float32)])
        strategy.start(grid, model, rounds + 1, evaluate_fn=lambda number, _: moments.append(time.monotonic()))

    backend: dict[str, Any] = {
        "init_args": {"address": "local", "num_cpus": 2},
        "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
    }
    run_simulation(server_app, client_app, clients, backend_config=backend)
    if len(moments) != rounds + 2:  # the first is from before the first round
        raise RuntimeError(f"Flower ended {len(moments) - 1} rounds, not {rounds + 1}")
    return moments[1:]


def _write_images(root: Path, samples: int) -> None:
    rng = np.random.default_rng(0)
    images, labels = rng.integers(0, 256, (samples, 28, 28), np.uint8), np.arange(samples) % 10
    test = samples // 10
    np.savez(root / "mnist.npz", x_train=images, y_train=labels, x_test=images[:test], y_test=labels[:test])
