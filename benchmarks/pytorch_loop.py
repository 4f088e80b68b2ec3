"""A: FedAvg as a bare PyTorch loop, the reference of all rounds. Two processes of one thread each hold all data, train
their half of the cohort and leave the weighted sum of the clients' deltas in shared memory."""

import time
from collections.abc import Sequence
from itertools import accumulate
from multiprocessing.connection import Connection
from pathlib import Path

import torch
import torch.multiprocessing as multiprocessing
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from benchmarks.workloads import LR, WORKLOADS, Workload, cohorts, load
from fedsim.clients.models import CNN, MLP, Shape

PROCESSES = 2


def pytorch_loop(workload: Workload, path: Path, warmup: int = 1) -> list[float]:
    """Seconds of each round after the warm-up."""
    context = multiprocessing.get_context("spawn")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    parameters = list(network(workload).parameters())
    model = torch.empty(sum(p.numel() for p in parameters))  # goes into shared memory when it is passed to a process
    for view, parameter in zip(views(model, parameters), parameters, strict=True):
        view.copy_(parameter.detach())
    sums = [torch.zeros_like(model) for _ in range(PROCESSES)]
    pipes = [context.Pipe() for _ in range(PROCESSES)]
    workers = [
        context.Process(target=work, args=(workload, path, model, total, theirs), daemon=True)
        for total, (_, theirs) in zip(sums, pipes, strict=True)
    ]
    for worker in workers:
        worker.start()
    for _, theirs in pipes:
        theirs.close()  # so that the death of a worker ends the loop
    seconds = []
    for cohort in cohorts(workload, warmup + workload.rounds):
        began = time.perf_counter()
        for number, (ours, _) in enumerate(pipes):
            ours.send(cohort[number::PROCESSES])
        examples = sum(ours.recv() for ours, _ in pipes)
        for total in sums:
            model.add_(total, alpha=1 / examples)
        seconds.append(time.perf_counter() - began)
    for ours, _ in pipes:
        ours.send(None)
    for worker in workers:
        worker.join()
    return seconds[warmup:]


def work(workload: Workload, path: Path, model: Tensor, total: Tensor, pipe: Connection) -> None:
    """A process: for each list of clients, `total` becomes the sum of their deltas times their examples."""
    torch.set_num_threads(1)
    net = network(workload)
    parameters = list(net.parameters())
    start, sums = views(model, parameters), views(total, parameters)
    x, y = (torch.from_numpy(array) for array in load(workload, path))
    x = x.permute(0, 1, 3, 4, 2).contiguous()
    generator = torch.Generator().manual_seed(0)
    while (clients := pipe.recv()) is not None:
        total.zero_()
        for client in clients:
            with torch.no_grad():
                for parameter, value in zip(parameters, start, strict=True):
                    parameter.copy_(value)
            optimizer = torch.optim.SGD(parameters, LR)
            order = torch.randperm(workload.samples, generator=generator)
            for first in range(0, workload.samples, workload.batch):
                chosen = order[first : first + workload.batch]
                optimizer.zero_grad()
                torch.autograd.backward(cross_entropy(net(x[client, chosen].permute(0, 3, 1, 2)), y[client, chosen]))
                optimizer.step()
            with torch.no_grad():
                for summed, parameter, value in zip(sums, parameters, start, strict=True):
                    summed.add_(parameter - value, alpha=workload.samples)
        pipe.send(workload.samples * len(clients))


def network(workload: Workload) -> nn.Module:
    """fedsim's model of this name; convolutions in channels_last."""
    kinds: dict[str, type[MLP] | type[CNN]] = {"mlp": MLP, "cnn": CNN}
    shape: Shape = workload.shape
    made: nn.Module = kinds[workload.model](shape, 10)
    return made.to(memory_format=torch.channels_last) if workload.model == "cnn" else made


def views(flat: Tensor, parameters: Sequence[Tensor]) -> list[Tensor]:
    """Parts of a flat vector in the shapes and memory formats of the parameters."""
    starts = accumulate((p.numel() for p in parameters), initial=0)
    return [flat.as_strided(p.shape, p.stride(), start) for start, p in zip(starts, parameters, strict=False)]


if __name__ == "__main__":  # python -m benchmarks.pytorch_loop W1 DATA.npz
    import json
    import sys

    print(json.dumps(pytorch_loop(WORKLOADS[sys.argv[1]], Path(sys.argv[2]))))
