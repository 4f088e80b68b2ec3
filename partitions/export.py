"""The silos of a partition as files to hand out: a federation on them trains exactly like the simulated partition."""

import json
from dataclasses import asdict
from pathlib import Path

import numpy as np

from fedsim.config import RunConfig
from fedsim.errors import ConfigError
from fedsim.files import write_json, write_npz, write_text
from partitions import silo
from partitions.datasets import Dataset, Progress
from partitions.sources import Array
from partitions.split import Indices, Share

README = """\
{clients} silos of {dataset}, partition {partition} {params}, seed {seed}.

client-NNNN.npz is all that client NNNN may see: x_train, y_train, x_test, y_test, and the dataset's number of classes,
mean and std. silos.json lists sizes and label counts. Copy each file to its machine and start the node there with

  --node-config 'partition-id=3 data="/path/to/client-0003.npz"'

then run with clients={clients} partition=own seed={seed}; dataset={dataset} is only a name in such a run.
"""


def export(config: RunConfig, out: Path, progress: Progress) -> None:
    """One npz per client, in the order and with the normalisation a simulated client has."""
    if out.is_dir() and any(out.iterdir()):
        raise ConfigError(f"{out} is not empty: choose a new folder")
    dataset, shares = silo.dataset_of(config), silo.shares(config)
    if empty := [i for i, share in enumerate(shares) if not len(share.train) or not len(share.test)]:
        raise ConfigError(f"client {empty[0]} has no training or no test samples: use fewer clients")
    pooled, silos = dataset.labels.pooled, []
    out.mkdir(parents=True, exist_ok=True)
    for client, share in enumerate(shares):
        name = f"client-{client:04d}.npz"
        labels = {f"y_{part}": pooled[own] for part, own in (("train", share.train), ("test", share.test))}
        write_npz(out / name, {**_images(dataset, share), **labels, "classes": dataset.classes})
        counts = {
            f"labels_{part[2:]}": np.bincount(y, minlength=dataset.classes).tolist() for part, y in labels.items()
        }
        sizes = {"train": len(share.train), "test": len(share.test), "quarter_turns": share.turns}
        silos.append({"file": name, "client": client, **sizes, **counts})
        progress(client + 1, len(shares))
    about = {
        "dataset": config.dataset,
        "partition": config.partition,
        "params": asdict(config.params("partition")),
        "seed": config.seed,
        "clients": config.clients,
        "classes": dataset.classes,
    }
    write_json(out / "silos.json", {**about, "silos": silos})
    write_text(out / "README.txt", README.format(**{**about, "params": json.dumps(about["params"])}))


def _images(dataset: Dataset, share: Share) -> dict[str, Array]:
    """Images as the dataset stores them, with its mean and deviation: those measured on one silo would differ.

    A client of several datasets with a normalisation each gets its images normalised already.
    """
    sources = dataset.labels.source
    held = [0] if sources is None else np.unique(sources[np.concatenate([share.train, share.test])]).tolist()
    parts = [dataset.parts[number] for number in held]
    raw = len({(part.mean, part.std, part.x_train.dtype) for part in parts}) == 1
    dtype = parts[0].x_train.dtype if raw else np.dtype(np.float32)

    def images(indices: Indices) -> Array:
        x = np.rot90(dataset.images(indices, normalised=not raw), share.turns, axes=(2, 3)).astype(dtype)
        return _as_read(x)

    mean, std = (parts[0].mean, parts[0].std) if raw else ((0.0,), (1.0,))
    channels = dataset.shape[0]
    return {
        "x_train": images(share.train),
        "x_test": images(share.test),
        "mean": np.broadcast_to(mean, channels),
        "std": np.broadcast_to(std, channels),
    }


def _as_read(x: Array) -> Array:
    """N x C x H x W -> the usual way to write it: N x H x W x C, grey images N x H x W, tables N x D."""
    if x.shape[1] > 1:
        return np.ascontiguousarray(x.transpose(0, 2, 3, 1))
    return np.ascontiguousarray(x[:, 0, 0] if x.shape[2] == 1 else x[:, 0])
