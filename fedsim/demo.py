"""The demo: is it worth federating? Local training, FedAvg and a personalized method on unequal clients, on Ray."""

import sys
import time
from datetime import datetime
from pathlib import Path

from fedsim import config as configs
from fedsim.engine.launch import launch
from fedsim.engine.ray import connect
from fedsim.report.figures import accuracy_figure
from fedsim.report.matrices import matrix_figure
from fedsim.report.runs import Run
from fedsim.report.tables import accuracy_table, show

ALGORITHMS = ("local", "fedavg", "spfl")
SETTING = ("dataset=digits", "partition=dirichlet", "partition.alpha=0.3", "clients=10", "rounds=30", "batch-size=16")


def main() -> int:
    began = time.monotonic()
    home = Path("runs") / f"{datetime.now():%Y%m%d-%H%M%S}-demo"
    folders = [home / algorithm for algorithm in ALGORITHMS]
    settings = [
        configs.read(None, [*SETTING, f"algorithm={algorithm}", f"out={folder}"])
        for algorithm, folder in zip(ALGORITHMS, folders, strict=True)
    ]
    connect(settings[0])  # one Ray for all three
    for config in settings:
        launch(config, "ray")
    runs = [Run.load(folder) for folder in folders]
    curves, similarity = home / "accuracy.png", home / "similarity.png"
    accuracy_figure(runs, curves)
    matrix_figure(runs[-1], similarity)
    show(accuracy_table(runs))
    print(f"pictures:    {curves}  {similarity}")
    print("run folders: " + "  ".join(map(str, folders)))
    print(f"took {time.monotonic() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
