"""The client app of stock Flower on a workload. A module of its own, so that Ray actors import nothing else.

The workload's name and data come from the environment, which Ray's workers inherit.
"""

import os
from functools import cache
from pathlib import Path

import numpy as np
import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from benchmarks.pytorch_loop import network
from benchmarks.workloads import LR, WORKLOADS, load

WORKLOAD, DATA = "BENCHMARK_WORKLOAD", "BENCHMARK_DATA"
app = ClientApp()


@cache
def setting() -> tuple[nn.Module, Tensor, Tensor]:
    """The network and all clients' samples: made once per process."""
    torch.set_num_threads(1)
    workload = WORKLOADS[os.environ[WORKLOAD]]
    x, y = (torch.from_numpy(array) for array in load(workload, Path(os.environ[DATA])))
    return network(workload), x.permute(0, 1, 3, 4, 2).contiguous(), y


@app.train()
def train(message: Message, context: Context) -> Message:
    """One epoch of SGD from the received model; returns the new model."""
    workload = WORKLOADS[os.environ[WORKLOAD]]
    net, x, y = setting()
    client = int(context.node_config["partition-id"])
    parameters = list(net.parameters())
    received = message.content.array_records["arrays"].to_numpy_ndarrays()
    with torch.no_grad():
        for parameter, value in zip(parameters, received, strict=True):
            parameter.copy_(torch.from_numpy(np.asarray(value)))
    optimizer = torch.optim.SGD(parameters, LR)
    order = torch.randperm(workload.samples)
    for first in range(0, workload.samples, workload.batch):
        chosen = order[first : first + workload.batch]
        optimizer.zero_grad()
        torch.autograd.backward(cross_entropy(net(x[client, chosen].permute(0, 3, 1, 2)), y[client, chosen]))
        optimizer.step()
    arrays = ArrayRecord([p.detach().numpy() for p in parameters])
    metrics = MetricRecord({"num-examples": workload.samples})
    return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)
