"""FLGo: its fedavg in one process with two torch threads; its parallel mode starts a new pool of processes every round."""

import os
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import flgo
import flgo.algorithm.fedavg as fedavg
import flgo.benchmark.partition as partition
import flgo.benchmark.toolkits.cv.classification as classification

from benchmarks.peers.report import arguments, report
from benchmarks.workloads import LR

# The configuration of FLGo's benchmark generator: the data, and the model.
CONFIG = """
import torch
from pathlib import Path
from torch.utils.data import TensorDataset
from benchmarks.pytorch_loop import network
from benchmarks.workloads import WORKLOADS, load

workload = WORKLOADS[{name!r}]
x, y = (torch.from_numpy(array).flatten(0, 1) for array in load(workload, Path({path!r})))
train_data = TensorDataset(x.contiguous(memory_format=torch.channels_last), y)


def get_model():
    return network(workload)
"""


class Server(fedavg.Server):  # type: ignore[misc]
    """Times the rounds."""

    seconds: list[float] = []  # noqa: RUF012

    def iterate(self) -> Any:
        began = time.perf_counter()
        updated = super().iterate()
        self.seconds.append(time.perf_counter() - began)
        return updated


def main() -> None:
    workload, path, rounds = arguments()
    sys.argv = sys.argv[:1]  # flgo reads the command line, too
    with TemporaryDirectory() as home:
        os.chdir(home)
        sys.path.insert(0, home)
        config = Path(home) / "config_of_data.py"
        config.write_text(CONFIG.format(name=workload.name, path=str(path)))
        generated = flgo.gen_benchmark_from_file("workload", str(config), target_path=home)
        benchmark: Any = __import__(generated)
        benchmark.visualize = lambda *_: None  # a picture of every split, which takes minutes
        flgo.gen_task_by_(benchmark, partition.IIDPartitioner(num_clients=workload.clients), task_path="task")
        # torch refuses subsets that override __getitem__ alone; this is the method that its message recommends
        classification.FromDatasetPipe.TaskDataset.__getitems__ = lambda self, chosen: [self[i] for i in chosen]
        algorithm = SimpleNamespace(Server=Server, Client=fedavg.Client, __name__="fedavg")
        option = {
            "num_rounds": rounds,
            "proportion": workload.cohort / workload.clients,
            "num_epochs": 1,
            "batch_size": workload.batch,
            "learning_rate": LR,
            "eval_interval": -1,
            "train_holdout": 0.0,
            "torch_num_threads": 2,
            "no_log_console": True,
            "no_tqdm": True,
        }
        flgo.init("task", algorithm, option).run()
    report(Server.seconds)


if __name__ == "__main__":
    main()
