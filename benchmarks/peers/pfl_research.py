"""pfl-research: FederatedAveraging on its simulated backend, in two processes of torchrun with one thread each."""

import os
import subprocess
import sys
import time
from typing import Any

import torch
from torch.nn.functional import cross_entropy

from benchmarks.peers.report import arguments, report_moments
from benchmarks.pytorch_loop import network
from benchmarks.workloads import LR, load


def main() -> None:
    from pfl.aggregate.simulate import SimulatedBackend
    from pfl.algorithm.base import NNAlgorithmParams
    from pfl.algorithm.federated_averaging import FederatedAveraging
    from pfl.callback.base import TrainingProcessCallback
    from pfl.data.dataset import Dataset
    from pfl.data.federated_dataset import FederatedDataset
    from pfl.data.sampling import MinimizeReuseUserSampler
    from pfl.hyperparam import NNTrainHyperParams
    from pfl.metrics import Metrics
    from pfl.model.pytorch import PyTorchModel

    workload, path, rounds = arguments()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    net: Any = network(workload)
    net.loss = lambda x, y: cross_entropy(net(x), y)
    net.metrics = lambda x, y: {}
    x, y = (torch.from_numpy(array) for array in load(workload, path))
    x = x.permute(0, 1, 3, 4, 2).contiguous()  # channels last

    def user(client: int) -> Dataset:
        order = torch.randperm(workload.samples)
        return Dataset([x[client, order].permute(0, 3, 1, 2), y[client, order]], user_id=str(client))

    moments = [0.0]

    class Clock(TrainingProcessCallback):  # type: ignore[misc]
        def after_central_iteration(self, *args: Any, **kwargs: Any) -> tuple[bool, Metrics]:
            moments.append(time.perf_counter())
            return False, Metrics()

    sampler = MinimizeReuseUserSampler(list(range(workload.clients)))
    backend = SimulatedBackend(FederatedDataset(user, sampler), val_data=None)
    model = PyTorchModel(net, torch.optim.SGD, torch.optim.SGD(net.parameters(), 1.0))
    training = NNTrainHyperParams(local_num_epochs=1, local_learning_rate=LR, local_batch_size=workload.batch)
    params = NNAlgorithmParams(rounds, 10**9, workload.cohort, None)
    moments[0] = time.perf_counter()
    FederatedAveraging().run(params, backend, model, training, callbacks=[Clock()], send_metrics_to_platform=False)
    if os.environ["RANK"] == "0":
        report_moments(moments)
    torch.distributed.barrier()
    # After the result is printed, the end of the interpreter aborts in about one of six runs ("terminate called without an
    # active exception"), with and without destroy_process_group(); torchrun would report that as a failure.
    os._exit(0)


if __name__ == "__main__":
    if "RANK" in os.environ:
        main()
    else:
        module = ["-m", "benchmarks.peers.pfl_research", *sys.argv[1:]]
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
        sys.exit(subprocess.run([*torchrun, *module], check=False).returncode)
