"""Stock Flower: its FedAvg in its Ray simulation with two workers, as it comes or (`tuned`) polling every 5 ms."""

import os
import sys
import time

from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

from benchmarks.peers.flower_client import DATA, WORKLOAD
from benchmarks.peers.flower_client import app as client_app
from benchmarks.peers.report import arguments, report_moments
from benchmarks.pytorch_loop import network

TUNED_POLLING = 0.005  # seconds, instead of 0.1


def main() -> None:
    workload, path, rounds = arguments()
    tuned = sys.argv[4] == "tuned"
    os.environ |= {WORKLOAD: workload.name, DATA: str(path)}
    moments: list[float] = []
    server_app = ServerApp()

    @server_app.main()
    def serve(grid: Grid, context: Context) -> None:
        if tuned:
            vars(grid)["pull_interval"] = TUNED_POLLING
        strategy = FedAvg(
            fraction_train=workload.cohort / workload.clients,
            fraction_evaluate=0.0,
            min_train_nodes=workload.cohort,
            min_available_nodes=workload.clients,
        )
        model = ArrayRecord([p.detach().numpy() for p in network(workload).parameters()])
        strategy.start(grid, model, rounds, evaluate_fn=lambda number, _: moments.append(time.monotonic()))

    run_simulation(
        server_app,
        client_app,
        workload.clients,
        backend_config={
            "init_args": {"address": "local", "num_cpus": 2, "log_to_driver": not tuned},
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
        },
    )
    report_moments(moments)  # the first call is before the first round


if __name__ == "__main__":
    main()
