"""FedJAX: its `fed_avg` algorithm with clients in one compiled scan, on all cores JAX takes."""

import time
from typing import Any

import fedjax
import haiku
import jax
import numpy as np

from benchmarks.peers.report import arguments, report
from benchmarks.workloads import CLASSES, LR, cohorts, features, load


def forward(batch: Any) -> Any:
    """The layers of fedsim's `mlp` and `cnn`."""
    workload = arguments()[0]
    x = batch["x"]
    if workload.model == "mlp":
        return haiku.Sequential([haiku.Flatten(), haiku.nets.MLP([200, 200, CLASSES])])(x)
    pool = haiku.MaxPool(2, 2, "VALID", channel_axis=-1)
    layers: list[Any] = []
    for channels in (20, 50):
        layers += [haiku.Conv2D(channels, 5, padding="VALID"), jax.nn.relu, pool]
    return haiku.Sequential([*layers, haiku.Flatten(), haiku.Linear(512), jax.nn.relu, haiku.Linear(CLASSES)])(x)


def main() -> None:
    workload, path, rounds = arguments()
    x, y = load(workload, path)
    x = (
        np.ascontiguousarray(x.transpose(0, 1, 3, 4, 2))
        if workload.model == "cnn"
        else x.reshape(*x.shape[:2], features(workload))
    )
    sample = {"x": x[0], "y": y[0]}
    model = fedjax.create_model_from_haiku(
        haiku.transform(forward),
        sample,
        lambda batch, output: fedjax.metrics.unreduced_cross_entropy_loss(batch["y"], output),
        {},
    )
    algorithm = fedjax.algorithms.fed_avg.federated_averaging(
        fedjax.model_grad(model),
        fedjax.optimizers.sgd(LR),
        fedjax.optimizers.sgd(1.0),
        fedjax.ShuffleRepeatBatchHParams(batch_size=workload.batch, num_epochs=1, drop_remainder=False),
    )
    data = [fedjax.ClientDataset({"x": x[i], "y": y[i]}) for i in range(workload.clients)]
    state = algorithm.init(model.init(jax.random.PRNGKey(0)))
    seconds = []
    for number, cohort in enumerate(cohorts(workload, rounds)):
        began = time.perf_counter()
        keys = jax.random.split(jax.random.PRNGKey(number), workload.cohort)
        clients = [(str(c).encode(), data[c], key) for c, key in zip(cohort, keys, strict=True)]
        state, _ = algorithm.apply(state, clients)
        jax.block_until_ready(state)
        seconds.append(time.perf_counter() - began)
    report(seconds)


if __name__ == "__main__":
    main()
