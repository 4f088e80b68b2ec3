"""Algorithms, models, partitions and datasets that are given as Python objects instead of by name."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsim import registry
from fedsim.errors import ConfigError
from fedsim.files import write_npz

Arrays = Sequence[Any] | Mapping[str, Any]  # (x, y), (x_train, y_train, x_test, y_test), or by these and further names
NAMES = ("x_train", "y_train", "x_test", "y_test")
TEST_SHARE = 0.2  # of (x, y)


def named(kind: str, given: Any) -> str:
    """The name under which this process and its Ray workers know `given`: an `Algorithm`, a `Partition`, or a class or
    factory of models. A name is returned as it is."""
    if isinstance(given, str):
        return given
    name = getattr(given, "name", None) or getattr(given, "__name__", None)
    if not isinstance(name, str) or not (kind != "model" or callable(given)):
        raise ConfigError(f"{kind}={given!r} is neither a name nor an object that fedsim can use as a {kind}")
    if kind == "model" and isinstance(given, type):
        from torch import nn

        if not issubclass(given, nn.Module):
            raise ConfigError(f"model={name} is a class, but not a network (torch.nn.Module)")
    registry.add(kind, name, given)
    return name


def stored(dataset: str | os.PathLike[str] | Arrays, seed: int) -> str:
    """The name or file of a dataset. Arrays are written to a file in the cache, once for the same content; of (x, y) a
    share that the seed draws becomes test data. Raises ConfigError for anything else."""
    if isinstance(dataset, str | os.PathLike):
        return os.fspath(dataset)
    from fedsim.partitions import cache

    arrays = _by_name(dataset, seed)
    content = [[name, str(array.dtype), array.shape, cache.digest(array)] for name, array in arrays.items()]
    path = cache.root() / "given" / f"{cache.key(content)}.npz"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_npz(path, arrays)
    return str(path)


def _by_name(dataset: Arrays, seed: int) -> dict[str, NDArray[Any]]:
    if isinstance(dataset, Mapping):
        return {str(name): _array(value) for name, value in dataset.items()}
    if not isinstance(dataset, Sequence):
        raise ConfigError(f"a dataset is a name, a file or arrays, not {dataset!r}")
    if len(dataset) not in (2, len(NAMES)):
        raise ConfigError(f"a dataset is (x, y) or ({', '.join(NAMES)}), not {len(dataset)} arrays")
    arrays = [_array(value) for value in dataset]
    if len(arrays) == len(NAMES):
        return dict(zip(NAMES, arrays, strict=True))
    x, y = arrays
    if len(x) != len(y):
        raise ConfigError(f"x has {len(x)} samples and y has {len(y)}")
    order = np.random.default_rng(seed).permutation(len(x))
    test, train = np.split(order, [max(1, round(TEST_SHARE * len(x)))])
    return dict(zip(NAMES, (x[train], y[train], x[test], y[test]), strict=True))


def _array(value: Any) -> NDArray[Any]:
    """Of an array, a torch tensor, a pandas column or a list."""
    try:
        array = np.asarray(value)
    except ValueError:
        array = np.array(None)
    if array.dtype == object and array.ndim and all(isinstance(item, str) for item in array.flat):
        array = array.astype(str)
    if array.dtype == object or not array.ndim:
        raise ConfigError("a dataset must be arrays of numbers or texts, with rows of equal length")
    return array
