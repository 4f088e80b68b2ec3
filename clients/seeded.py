"""Torch's global random numbers: networks draw them when they are made, and dropout whenever it trains."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock
from weakref import WeakKeyDictionary

import torch
from torch import nn

_lock = RLock()  # the generator is one for all threads of the process


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Inside, the random numbers of torch depend on `seed` alone; outside, they go on as if nothing had been drawn.

    Only one thread at a time is inside.
    """
    with _lock, torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


_draws: WeakKeyDictionary[nn.Module, bool] = WeakKeyDictionary()


def draws_in_training(network: nn.Module) -> bool:
    """Whether a network has modules that draw random numbers when it trains: dropout, and layers with a dropout of
    their own such as nn.LSTM. The modules are searched once per network object."""
    if network not in _draws:
        drawing = (nn.modules.dropout._DropoutNd, nn.RReLU)
        found = any(isinstance(module, drawing) or getattr(module, "dropout", 0) for module in network.modules())
        _draws[network] = found
    return _draws[network]
