"""Models: every one is head(base(x)). A model's stages are its top-level children, in order; the last one is `head`.

Each is built from the shape of a sample and the number of outputs (classes), and adapts to both.
"""

from itertools import pairwise
from math import prod
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from fedsim import registry
from fedsim.clients import MODELS
from fedsim.errors import ConfigError

Shape = tuple[int, ...]
Kind = Literal["numbers", "images", "series", "tokens"]  # samples that a model takes; numbers: of any shape
KINDS: dict[Kind, str] = {
    "numbers": "real numbers",
    "images": "images (channels, height, width)",
    "series": "time series (time, channels)",
    "tokens": "token ids (length,)",
}


TOKENS = ", which are texts, or an npz file with their number as `vocabulary`"


class HeadOnBase(nn.Module):
    """The output is head(base(x)); what the base returns are the features."""

    kind: ClassVar[Kind | None] = None  # None: not known, so nothing is refused
    head_name: str = ""  # of the head in checkpoints of this network that do not have it apart
    base: nn.Module
    head: nn.Module

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.head(self.base(x))
        return output


class FlatSequential(nn.Sequential):
    """Layers on flattened samples."""

    def forward(self, x: Tensor) -> Tensor:
        x = x.flatten(1)
        for layer in self:
            x = layer(x)
        return x


class MLR(HeadOnBase):
    """Multinomial logistic regression: one linear layer."""

    kind: ClassVar[Kind | None] = "numbers"

    def __init__(self, shape: Shape, classes: int) -> None:
        super().__init__()
        self.base = nn.Flatten()
        self.head = nn.Linear(prod(shape), classes)


class MLP(HeadOnBase):
    """McMahan's 2NN: two hidden layers of 200 units."""

    kind: ClassVar[Kind | None] = "numbers"

    def __init__(self, shape: Shape, classes: int, hidden: int = 200) -> None:
        super().__init__()
        layers = [nn.Linear(prod(shape), hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU()]
        self.base = FlatSequential(*layers)
        self.head = nn.Linear(hidden, classes)


class DNN(HeadOnBase):
    """One hidden layer of 100 units."""

    kind: ClassVar[Kind | None] = "numbers"
    hidden: ClassVar[tuple[int, ...]] = (100,)

    def __init__(self, shape: Shape, classes: int) -> None:
        super().__init__()
        sizes = (prod(shape), *self.hidden)
        self.base = FlatSequential(*(layer for pair in pairwise(sizes) for layer in (nn.Linear(*pair), nn.ReLU())))
        self.head = nn.Linear(sizes[-1], classes)


class AmazonMLP(DNN):
    """Hidden layers of 1000, 500 and 100 units, for the 5,000 word counts of a review."""

    hidden = (1000, 500, 100)


class CNN(HeadOnBase):
    """Conv 5x5x20, pool, conv 5x5x50, pool, FC 512, FC classes; with padding for images under 16 pixels."""

    kind: ClassVar[Kind | None] = "images"
    channels = (20, 50)
    same_size = False  # with padding, so that convolutions keep the size of any image

    def __init__(self, shape: Shape, classes: int) -> None:
        super().__init__()
        convolutions = nn.Sequential(*self.convolutions(image_shape(shape, "cnn")))
        with torch.no_grad():
            features = convolutions.eval()(torch.zeros(1, *shape)).shape[1]
        self.base = nn.Sequential(*convolutions.train(), nn.Linear(features, 512), nn.ReLU())
        self.head = nn.Linear(512, classes)

    def convolutions(self, shape: Shape) -> list[nn.Module]:
        padding = 2 if self.same_size or min(shape[1:]) < 16 else 0
        layers: list[nn.Module] = []
        for before, after in pairwise((shape[0], *self.channels)):
            layers += [nn.Conv2d(before, after, 5, padding=padding), *self.after_convolution(after), nn.MaxPool2d(2)]
        return [*layers, nn.Flatten()]

    def after_convolution(self, channels: int) -> list[nn.Module]:
        return [nn.ReLU()]


class FedAvgCNN(CNN):
    """McMahan's CNN: conv 5x5x32, pool, conv 5x5x64, pool, FC 512, FC classes; with padding."""

    channels = (32, 64)
    same_size = True


class VGG11(HeadOnBase):
    """The convolutions of VGG11 without BatchNorm, five of them followed by pooling, and one linear layer."""

    kind: ClassVar[Kind | None] = "images"
    channels = (64, 128, 256, 256, 512, 512, 512, 512)
    pooled = (0, 1, 3, 5, 7)  # the convolutions that pooling follows

    def __init__(self, shape: Shape, classes: int) -> None:
        super().__init__()
        colors, height, width = image_shape(shape, "vgg11")
        layers: list[nn.Module] = []
        for number, (before, after) in enumerate(pairwise((colors, *self.channels))):
            convolution = nn.Conv2d(before, after, 3, padding=1)
            # without normalization, torch's usual initial weights are too small for so many layers
            nn.init.kaiming_normal_(convolution.weight, nonlinearity="relu")
            layers += [convolution, nn.ReLU()]
            if number in self.pooled:
                layers.append(nn.MaxPool2d(2, ceil_mode=True))  # images may be smaller than 32 pixels
                height, width = -(-height // 2), -(-width // 2)
        self.base = nn.Sequential(*layers, nn.Flatten())
        self.head = nn.Linear(self.channels[-1] * height * width, classes)


class BatchNormCNN(CNN):
    """The CNN with BatchNorm after both convolutions."""

    def after_convolution(self, channels: int) -> list[nn.Module]:
        return [nn.BatchNorm2d(channels), nn.ReLU()]


class LeNet5(HeadOnBase):
    """Conv 5x5x6, pool, conv 5x5x16, pool, FC 120, FC 84, FC classes, with ReLU; for images from 16 pixels on."""

    kind: ClassVar[Kind | None] = "images"

    def __init__(self, shape: Shape, classes: int) -> None:
        super().__init__()
        channels, *sides = image_shape(shape, "lenet5")
        if min(sides) < 16:
            raise ConfigError(f"model 'lenet5' needs images of at least 16 x 16 pixels, not {sides[0]} x {sides[1]}")
        features = 16 * prod(((side - 4) // 2 - 4) // 2 for side in sides)
        self.base = nn.Sequential(
            *(nn.Conv2d(channels, 6, 5), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
            *(nn.Linear(features, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU()),
        )
        self.head = nn.Linear(84, classes)


class Residual(nn.Sequential):
    """The layers' output added to their input."""

    def forward(self, x: Tensor) -> Tensor:
        output = x
        for layer in self:
            output = layer(output)
        return x + output


class ResNet9(HeadOnBase):
    """Conv 3x3 blocks of 64, 128, 128+128 (residual), 256, 512, 512+512 (residual) channels with GroupNorm, pooling.

    Its sums are b2 + b3 and b5 + b6. (Table 11 of "Rethinking Data Heterogeneity in FL" prints b4 + b5, of 256 and 512
    channels, for the second one.) The width of the head follows from the size of the images.
    """

    kind: ClassVar[Kind | None] = "images"

    def __init__(self, shape: Shape, classes: int) -> None:
        super().__init__()
        channels, *sides = image_shape(shape, "resnet9")
        self.base = nn.Sequential(
            self.block(channels, 64),
            self.block(64, 128, pooled=True),
            Residual(self.block(128, 128), self.block(128, 128)),
            self.block(128, 256, pooled=True),
            self.block(256, 512, pooled=True),
            Residual(self.block(512, 512), self.block(512, 512)),
            nn.MaxPool2d(4, ceil_mode=True),
            nn.Flatten(),
        )
        self.head = nn.Linear(512 * prod(-(-side // 32) for side in sides), classes)  # 2 * 2 * 2 * 4 = 32

    def block(self, before: int, after: int, pooled: bool = False) -> nn.Module:
        pooling = [nn.MaxPool2d(2, ceil_mode=True)] if pooled else []  # images may be smaller than 32 pixels
        return nn.Sequential(nn.Conv2d(before, after, 3, padding=1), self.normalization(after), nn.ReLU(), *pooling)

    def normalization(self, channels: int) -> nn.Module:
        return nn.GroupNorm(32, channels)


class BatchNormResNet9(ResNet9):
    """ResNet-9 with BatchNorm in the place of GroupNorm, as the authors of the paper above ran it."""

    def normalization(self, channels: int) -> nn.Module:
        return nn.BatchNorm2d(channels)


class HarCNN(HeadOnBase):
    """Convolutions over 9 moments of time (32, 64 channels) with pooling, FC 1024, FC 512; samples (time, channels)."""

    kind: ClassVar[Kind | None] = "series"

    def __init__(self, shape: Shape, classes: int) -> None:
        super().__init__()
        if len(shape) != 2:
            raise ConfigError(f"model 'har-cnn' needs {KINDS['series']}, not samples of shape {shape}")
        time, channels = shape
        layers: list[nn.Module] = []
        for before, after in pairwise((channels, 32, 64)):
            layers += [nn.Conv1d(before, after, 9, padding=4), nn.ReLU(), nn.MaxPool1d(2, ceil_mode=True)]
        units = 64 * -(-time // 4)
        dense = (nn.Linear(units, 1024), nn.ReLU(), nn.Linear(1024, 512), nn.ReLU())
        self.base = nn.Sequential(TimeLast(), *layers, nn.Flatten(), *dense)
        self.head = nn.Linear(512, classes)


class TimeLast(nn.Module):
    """Samples (time, channels) as torch's convolutions want them."""

    def forward(self, x: Tensor) -> Tensor:
        return x.mT


def check_fits(make: Any, name: str, shape: Shape, vocabulary: int) -> None:
    """Raises ConfigError, naming models that fit, if a model cannot take samples of this shape; those with a `vocabulary`
    are token ids. Models without a `kind` are not judged."""
    kind = getattr(make, "kind", None)
    held: Kind = "tokens" if vocabulary else {2: "series", 3: "images"}.get(len(shape), "numbers")  # type: ignore[assignment]
    fitting: set[Kind] = {held} if vocabulary else {held, "numbers"}
    if kind is None or kind in fitting:
        return
    others = [other for other in MODELS if getattr(registry.find("model", other), "kind", None) in fitting]
    raise ConfigError(
        f"model {name!r} needs {KINDS[kind]}{TOKENS if kind == 'tokens' else ''}, not "
        f"{KINDS[held] if vocabulary else 'samples'} of shape {shape}. "
        f"Models that fit: {', '.join(others)}"
    )


def image_shape(shape: Shape, model: str) -> Shape:
    """`shape` if it is that of an image (channels, height, width); raises ConfigError otherwise."""
    if len(shape) != 3:
        raise ConfigError(f"model {model!r} needs images (channels, height, width), not samples of shape {shape}")
    return shape
