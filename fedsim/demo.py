"""The demo: local training, FedAvg and a personalized method on clients with different label distributions, on Ray."""

import sys
import time
from datetime import datetime
from pathlib import Path

from fedsim import config as configs
from fedsim.engine.launch import launch
from fedsim.report.figures import metric_figure
from fedsim.report.matrix_figure import matrix_figure
from fedsim.report.runs import RunResult
from fedsim.report.tables import metric_table, show

ALGORITHMS = ("local", "fedavg", "spfl")
SETTING = ("dataset=digits", "partition=dirichlet", "partition.alpha=0.3", "clients=10", "rounds=30", "batch-size=16")


def main() -> int:
    started = time.monotonic()
    home = Path("runs") / f"{datetime.now():%Y%m%d-%H%M%S}-demo"
    folders = [home / algorithm for algorithm in ALGORITHMS]
    settings = [
        configs.read(None, [*SETTING, f"algorithm={algorithm}", f"out={folder}"])
        for algorithm, folder in zip(ALGORITHMS, folders, strict=True)
    ]
    for config in settings:
        launch(config, "ray")
    runs = [RunResult.load(folder) for folder in folders]
    curves, similarity = home / "accuracy.png", home / "similarity.png"
    metric_figure(runs, curves)
    matrix_figure(runs[-1], similarity)
    show(metric_table(runs))
    print(f"figures:     {curves}  {similarity}")
    print("run folders: " + "  ".join(map(str, folders)))
    print(f"took {time.monotonic() - started:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
