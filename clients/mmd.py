"""Maximum mean discrepancy: how far two batches of features are from coming from one distribution."""

from collections.abc import Sequence

import torch
from torch import Tensor

SMALLEST = 1e-6  # bandwidth: below it differences are rounding errors


def mmd(x: Tensor, y: Tensor, bandwidths: Sequence[float] | Tensor) -> Tensor:
    """mean k(x, x') + mean k(y, y') - 2 mean k(x, y), over all pairs, with k(u, v) = sum_b exp(-|u - v|^2 / b).

    The means include each sample's pair with itself. A Gaussian of standard deviation s has the bandwidth 2 s^2.
    """

    def mean_kernel(u: Tensor, v: Tensor) -> Tensor:
        distances = squared_distances(u, v)
        return torch.stack([torch.exp(-distances / b).mean() for b in bandwidths]).sum()

    return mean_kernel(x, x) + mean_kernel(y, y) - 2 * mean_kernel(x, y)


def bandwidths_of(x: Tensor, y: Tensor, count: int = 5, factor: float = 2.0) -> Tensor:
    """Bandwidths around the mean squared distance between different samples of both batches, each `factor` times the
    one before; without a gradient."""
    with torch.no_grad():
        both = torch.cat([x, y])
        distances = squared_distances(both, both)
        mean = distances.sum() / max(1, len(both) * (len(both) - 1))
        steps = torch.arange(count, device=x.device) - count // 2
        return mean.clamp(min=SMALLEST) * factor**steps


def squared_distances(u: Tensor, v: Tensor) -> Tensor:
    """|u_i - v_j|^2 for all pairs of rows; never negative."""
    products = u @ v.T
    return (u.square().sum(1)[:, None] + v.square().sum(1)[None, :] - 2 * products).clamp(min=0)
