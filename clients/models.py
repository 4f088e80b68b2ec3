"""Image classifiers. A model's stages are its top-level children, in order; the last one is called `head`.

Each is built from the input shape (channels, height, width) and the number of classes, and adapts to both.
"""

import torch
from torch import Tensor, nn

Shape = tuple[int, int, int]


class MLR(nn.Module):
    """Multinomial logistic regression: one linear layer."""

    def __init__(self, shape: Shape, classes: int) -> None:
        super().__init__()
        self.head = nn.Linear(shape[0] * shape[1] * shape[2], classes)

    def forward(self, x: Tensor) -> Tensor:
        return _classify(self.head, x.flatten(1))


class MLP(nn.Module):
    """McMahan's 2NN: two hidden layers of 200 units."""

    def __init__(self, shape: Shape, classes: int, hidden: int = 200) -> None:
        super().__init__()
        inputs = shape[0] * shape[1] * shape[2]
        layers = [nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU()]
        self.base = nn.Sequential(*layers)
        self.head = nn.Linear(hidden, classes)

    def forward(self, x: Tensor) -> Tensor:
        return _classify(self.head, self.base(x.flatten(1)))


class CNN(nn.Module):
    """Conv 5x5x20, pool, conv 5x5x50, pool, FC 512, FC classes. Images under 16 pixels get padding, so that they fit."""

    def __init__(self, shape: Shape, classes: int) -> None:
        super().__init__()
        padding = 2 if min(shape[1:]) < 16 else 0
        convolutions = nn.Sequential(
            nn.Conv2d(shape[0], 20, 5, padding=padding),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(20, 50, 5, padding=padding),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
        )
        with torch.no_grad():
            features = convolutions(torch.zeros(1, *shape)).shape[1]
        self.base = nn.Sequential(*convolutions, nn.Linear(features, 512), nn.ReLU())
        self.head = nn.Linear(512, classes)

    def forward(self, x: Tensor) -> Tensor:
        return _classify(self.head, self.base(x))


def _classify(head: nn.Module, features: Tensor) -> Tensor:
    logits: Tensor = head(features)
    return logits
