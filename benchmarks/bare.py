"""The bare PyTorch loop: what one round of FedAvg costs when nothing but the training and the averaging is done."""

import time
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from benchmarks.process import pool
from clients.models import CNN

Weights = list[NDArray[np.float32]]
BATCH = 32


def bare(workers: int, clients: int, samples: int, rounds: int) -> list[float]:
    """The moments at which the rounds end; the first one only warms up. Each worker is a process with one thread."""
    weights: Weights = []
    moments = []
    shares = [len(part) for part in np.array_split(np.arange(clients), workers)]
    with pool(workers) as processes:
        for _ in range(rounds + 1):
            sums = list(processes.map(train, [weights] * workers, shares, [samples] * workers))
            weights = [sum(parts) / np.float32(clients) for parts in zip(*sums, strict=True)]
            moments.append(time.monotonic())
    return moments


def train(start: Weights, clients: int, samples: int) -> Weights:
    """One epoch for each of so many clients, all from the same weights (none: the initial ones); the sum of theirs."""
    torch.set_num_threads(1)
    network, x, y = _setting(samples)
    parameters, loss_of = list(network.parameters()), nn.CrossEntropyLoss()
    start = start or _copy(parameters)
    total = [np.zeros_like(s) for s in start]
    for client in range(clients):
        with torch.no_grad():
            for parameter, value in zip(parameters, start, strict=True):
                parameter.copy_(torch.from_numpy(value))
        optimizer = torch.optim.SGD(parameters, 0.05)
        order = torch.from_numpy(np.random.default_rng(client).permutation(samples))
        for chosen in (order[i : i + BATCH] for i in range(0, samples, BATCH)):
            optimizer.zero_grad()
            loss_of(network(x[chosen].permute(0, 3, 1, 2)), y[chosen]).backward()
            optimizer.step()
        for sums, value in zip(total, _copy(parameters), strict=True):
            sums += value
    return total


def _copy(parameters: Sequence[Any]) -> Weights:
    return [p.detach().numpy().copy() for p in parameters]


@lru_cache
def _setting(samples: int) -> tuple[nn.Module, Tensor, Tensor]:
    network = CNN((1, 28, 28), 10).to(memory_format=torch.channels_last)
    return network, torch.randn(samples, 28, 28, 1), torch.arange(samples) % 10
