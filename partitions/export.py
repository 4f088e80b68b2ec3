"""The clients of a partition as files: a federation of nodes that bring them trains like the simulated partition."""

import json
from dataclasses import asdict
from pathlib import Path

import numpy as np

from fedsim.config import RunConfig
from fedsim.errors import ConfigError
from fedsim.files import write_json, write_npz, write_text
from fedsim.partitions.client_data import load_dataset, shares
from fedsim.partitions.datasets import Dataset, Progress
from fedsim.partitions.split import Array, Indices, Share

README = """\
{clients} silos of {dataset}, partition {partition} {params}, seed {seed}.

client-NNNN.npz is all that client NNNN may see: x_train, y_train, x_test, y_test, the dataset's objective and number of
classes, and the mean and std of its samples. silos.json lists sizes and label counts. Copy each file to its machine and
start the node there with

  --node-config 'partition-id=3 data="/path/to/client-0003.npz"'

then run with clients={clients} partition=own{unseen} seed={seed}; dataset={dataset} is only a name in such a run.
"""


def export(config: RunConfig, out: Path, progress: Progress) -> None:
    """Writes silos.json, a README, and an npz per client with the order and normalization of the simulated client.

    Raises ConfigError if `out` is not empty or a client would have no training or no test samples.
    """
    if out.is_dir() and any(out.iterdir()):
        raise ConfigError(f"{out} is not empty: choose a new folder")
    dataset, split = load_dataset(config), shares(config)
    if empty := [i for i, share in enumerate(split) if not len(share.train) or not len(share.test)]:
        raise ConfigError(f"client {empty[0]} has no training or no test samples: use fewer clients")
    out.mkdir(parents=True, exist_ok=True)
    silos = []
    for client, share in enumerate(split):
        name = f"client-{client:04d}.npz"
        targets = {"y_train": dataset.targets[share.train], "y_test": dataset.targets[share.test]}
        about = {"classes": dataset.classes, "objective": dataset.objective, "vocabulary": dataset.vocabulary}
        write_npz(out / name, {**_samples(dataset, share), **targets, **about})
        sizes = {"train": len(share.train), "test": len(share.test), "transform": share.transform}
        silos.append({"file": name, "client": client, **sizes, **_label_counts(dataset, share)})
        progress(client + 1, len(split))
    told = {
        "dataset": config.dataset,
        "partition": config.partition,
        "params": asdict(config.params("partition")),
        "seed": config.seed,
        "clients": config.clients,
        "classes": dataset.classes,
        "objective": dataset.objective,
    }
    unseen = {"unseen": list(config.unseen)} if config.unseen else {}
    write_json(out / "silos.json", {**told, **unseen, "silos": silos})
    kept_out = f" partition.unseen={config.sections['partition']['unseen']}" if unseen else ""
    write_text(out / "README.txt", README.format(**{**told, "params": json.dumps(told["params"]), "unseen": kept_out}))


def _label_counts(dataset: Dataset, share: Share) -> dict[str, list[int]]:
    if not dataset.has_class_labels:
        return {}
    parts = {"labels_train": share.train, "labels_test": share.test}
    return {key: np.bincount(dataset.targets[i], minlength=dataset.classes).tolist() for key, i in parts.items()}


def _samples(dataset: Dataset, share: Share) -> dict[str, Array]:
    """Samples as the dataset stores them, with its mean and deviation: those measured on one silo would differ.

    A client of several datasets with a normalization each gets its images normalized already.
    """
    sources = dataset.labels.source
    held = [0] if sources is None else np.unique(sources[np.concatenate([share.train, share.test])]).tolist()
    parts = [dataset.parts[number] for number in held]
    raw = len({(part.mean, part.std, part.x_train.dtype) for part in parts}) == 1
    dtype = parts[0].x_train.dtype if raw else np.dtype(np.float32)

    def stored(indices: Indices) -> Array:
        x = dataset.samples(indices, normalized=not raw, transform=share.transform).astype(dtype)
        return _channels_last(x) if parts[0].is_images else x

    arrays = {"x_train": stored(share.train), "x_test": stored(share.test)}
    if parts[0].mean:
        mean, std = (parts[0].mean, parts[0].std) if raw else ((0.0,), (1.0,))
        channels = dataset.shape[0 if parts[0].is_images else -1]
        arrays["mean"], arrays["std"] = (np.broadcast_to(v, channels) for v in (mean, std))
    return arrays


def _channels_last(x: Array) -> Array:
    """N x C x H x W -> the usual layout of files: N x H x W x C, and N x H x W for grey images."""
    return np.ascontiguousarray(x.transpose(0, 2, 3, 1) if x.shape[1] > 1 else x[:, 0])
