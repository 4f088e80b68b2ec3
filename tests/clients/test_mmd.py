"""Maximum mean discrepancy, against the definition with loops."""

import math

import pytest
import torch

from fedsim.clients.mmd import bandwidths_of, mmd, squared_distances


def by_definition(x: torch.Tensor, y: torch.Tensor, bandwidths: list[float]) -> float:
    def mean(u: torch.Tensor, v: torch.Tensor) -> float:
        pairs = [float((a - b).square().sum()) for a in u for b in v]
        return sum(math.exp(-d / width) for d in pairs for width in bandwidths) / len(pairs)

    return mean(x, x) + mean(y, y) - 2 * mean(x, y)


def test_it_is_the_sum_over_bandwidths_of_mean_kernels() -> None:
    x, y = torch.randn(5, 3, generator=torch.manual_seed(0)), torch.randn(4, 3, generator=torch.manual_seed(1))
    assert float(mmd(x, y, [0.5, 2.0])) == pytest.approx(by_definition(x, y, [0.5, 2.0]), abs=1e-5)
    assert float(mmd(x, x, [1.0])) == pytest.approx(0, abs=1e-6)
    near, far = (float(mmd(x, x + shift, [1.0, 8.0])) for shift in (0.1, 3.0))
    assert 0 < near < far


def test_bandwidths_double_around_the_mean_squared_distance() -> None:
    x, y = torch.tensor([[0.0], [2.0]]), torch.tensor([[4.0]])
    # squared distances 4, 16, 4 between different samples: their mean is 8
    assert bandwidths_of(x, y).tolist() == [2, 4, 8, 16, 32]
    assert not bandwidths_of(x.requires_grad_(), y).requires_grad


def test_samples_that_are_all_alike_are_no_discrepancy() -> None:
    x = torch.ones(3, 2, requires_grad=True)
    value = mmd(x, torch.ones(3, 2), bandwidths_of(x, torch.ones(3, 2)))
    value.backward()
    assert float(value.detach()) == 0
    assert torch.isfinite(x.grad).all()


def test_squared_distances_are_never_negative() -> None:
    x = 1000 + torch.rand(20, 8, generator=torch.manual_seed(0))
    assert (squared_distances(x, x) >= 0).all()
