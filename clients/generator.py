"""FedGen's generator: features of a class from noise. Clients only use it; its training runs on the server, if that has
torch: the server half loads this module by name."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, one_hot

from fedsim.clients.seeded import seeded
from fedsim.clients.training import assign, flatten, load, weights_of
from fedsim.payload import Array
from fedsim.weights import Vec, Weights


@dataclass(frozen=True)
class Sizes:
    """Of a generator's layers."""

    noise: int
    classes: int
    hidden: int
    features: int


class Generator(nn.Module):
    """Noise and a label -> hidden units with BatchNorm -> features."""

    def __init__(self, sizes: Sizes, weights: Weights | None = None, seed: int = 0) -> None:
        super().__init__()
        self.sizes = sizes
        with seeded(seed):
            first, last = nn.Linear(sizes.noise + sizes.classes, sizes.hidden), nn.Linear(sizes.hidden, sizes.features)
        self.layers = nn.Sequential(first, nn.BatchNorm1d(sizes.hidden), nn.ReLU(), last)
        if weights is not None:
            load(self, weights)

    def forward(self, noise: Tensor, labels: Tensor) -> Tensor:
        features: Tensor = self.layers(torch.cat([noise, one_hot(labels, self.sizes.classes).float()], dim=1))
        return features

    def noise(self, count: int, rng: np.random.Generator) -> Tensor:
        """Uniform on [0, 1)."""
        return torch.from_numpy(rng.random((count, self.sizes.noise), np.float32))


def initial_generator(sizes: Sizes, seed: int) -> Weights:
    return weights_of(Generator(sizes, seed=seed))


def diversity(noise: Tensor, features: Tensor) -> Tensor:
    """(2): near 0 if different noise makes different features, 1 if all are the same."""
    apart = (torch.cdist(values, values, p=1) / values.shape[1] for values in (noise, features))
    return torch.exp(-torch.stack(list(apart)).prod(dim=0).mean())


@dataclass
class Ensemble:
    """The heads of several clients, K x C x F and K x C, and how many samples of each class each was trained on."""

    matrices: Array
    biases: Array
    counts: Array  # K x C

    def __post_init__(self) -> None:
        held = np.maximum(self.counts.sum(axis=0), 1)
        self._heads = [torch.from_numpy(np.float32(values)) for values in (self.matrices, self.biases)]
        self._shares = torch.from_numpy(np.float32(self.counts / held))

    def __call__(self, features: Tensor, labels: Tensor) -> Tensor:
        """The outputs of all heads, weighed by the shares of each sample's label: sum_k a_k(y) psi_k(f)."""
        matrices, biases = self._heads
        return torch.einsum(
            "nkc,kn->nc", torch.einsum("nf,kcf->nkc", features, matrices) + biases, self._shares[:, labels]
        )

    def draw(self, count: int, rng: np.random.Generator) -> Tensor:
        """Labels as often as the clients hold them."""
        totals = self.counts.sum(axis=0)
        return torch.from_numpy(rng.choice(len(totals), count, p=totals / totals.sum()))


def train_generator(
    sizes: Sizes,
    start: tuple[Weights, Vec, Vec, int],
    ensemble: Ensemble,
    steps: int,
    batch: int,
    optimizer: tuple[float, float],
    rng: np.random.Generator,
) -> tuple[Weights, Vec, Vec, int]:
    """(1): so many steps of Adam (learning rate, weight decay) on mini-batches of generated features.

    `start`, as the result: the generator, Adam's first and second moments, and the number of its steps so far.
    """
    weights, *moments, taken = start
    generator, adam = Generator(sizes, weights).train(), torch.optim.Adam
    parameters = list(generator.parameters())
    made = adam(parameters, lr=optimizer[0], weight_decay=optimizer[1])
    lists = [[torch.empty_like(p) for p in parameters] for _ in moments]
    for tensors, values in zip(lists, moments, strict=True):
        assign(tensors, values)
    for parameter, mean, square in zip(parameters, *lists, strict=True):
        made.state[parameter] = {"step": torch.tensor(float(taken)), "exp_avg": mean, "exp_avg_sq": square}
    for _ in range(steps):
        labels, noise = ensemble.draw(batch, rng), generator.noise(batch, rng)
        features = generator(noise, labels)
        made.zero_grad()
        torch.autograd.backward(cross_entropy(ensemble(features, labels), labels) + diversity(noise, features))
        made.step()
    first, second = (_moments(made, parameters, name) for name in ("exp_avg", "exp_avg_sq"))
    return weights_of(generator), first, second, taken + steps


def _moments(adam: torch.optim.Optimizer, parameters: Sequence[Tensor], name: str) -> Vec:
    return flatten([adam.state[parameter][name] for parameter in parameters])
