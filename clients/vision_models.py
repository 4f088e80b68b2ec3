"""Architectures of torchvision as head(base(x)), for the channels and classes of the data, with random weights.

Torchvision is imported when one of them is built, so that other clients do without.
"""

from typing import Any, ClassVar

from torch import nn

from fedsim.clients.models import HeadOnBase, Kind, Shape, image_shape
from fedsim.errors import ConfigError


class VisionModel(HeadOnBase):
    """A network of torchvision whose last linear layer is the head."""

    kind: ClassVar[Kind] = "images"
    name: ClassVar[str]
    smallest: ClassVar[int] = 1  # pixels of the shorter side

    def __init__(self, shape: Shape, classes: int) -> None:
        super().__init__()
        channels, *sides = image_shape(shape, self.name)
        if min(sides) < self.smallest:
            least = f"{self.smallest} x {self.smallest}"
            raise ConfigError(
                f"model {self.name!r} needs images of at least {least} pixels, not {sides[0]} x {sides[1]}"
            )
        try:
            from torchvision import models
        except ImportError as error:
            raise ConfigError(f"model {self.name!r} needs torchvision: pip install torchvision ({error})") from error
        self.base, self.head = self.parts(models, channels, classes, min(sides))

    def parts(self, models: Any, channels: int, classes: int, side: int) -> tuple[nn.Module, nn.Module]:
        """Base and head, from the module torchvision.models."""
        raise NotImplementedError


class ResNet18(VisionModel):
    """ResNet-18 with GroupNorm; images under 64 pixels meet a 3x3 convolution first and no pooling."""

    name, head_name = "resnet18", "fc"

    def parts(self, models: Any, channels: int, classes: int, side: int) -> tuple[nn.Module, nn.Module]:
        net = models.resnet18(weights=None, norm_layer=self.normalization)
        small = side < 64
        net.conv1 = nn.Conv2d(channels, 64, 3, padding=1, bias=False) if small else _first(net.conv1, channels)
        net.maxpool = nn.Identity() if small else net.maxpool
        net.fc = nn.Identity()
        return net, nn.Linear(512, classes)

    @staticmethod
    def normalization(channels: int) -> nn.Module:
        return nn.GroupNorm(32, channels)


class BatchNormResNet18(ResNet18):
    """ResNet-18 with BatchNorm, as torchvision has it."""

    name = "resnet18-bn"

    @staticmethod
    def normalization(channels: int) -> nn.Module:
        return nn.BatchNorm2d(channels)


class MobileNet(VisionModel):
    """MobileNetV2 (BatchNorm); the first convolution keeps the size of images under 64 pixels."""

    name, head_name = "mobilenet", "classifier.1"

    def parts(self, models: Any, channels: int, classes: int, side: int) -> tuple[nn.Module, nn.Module]:
        net = models.mobilenet_v2(weights=None)
        first = net.features[0][0]
        first.stride = (1, 1) if side < 64 else first.stride
        net.features[0][0] = _first(first, channels)
        net.classifier = nn.Identity()
        return net, nn.Linear(net.last_channel, classes)


class AlexNet(VisionModel):
    """AlexNet with two hidden layers of 4096 units, for images from 63 pixels on."""

    name, head_name, smallest = "alexnet", "classifier.6", 63

    def parts(self, models: Any, channels: int, classes: int, side: int) -> tuple[nn.Module, nn.Module]:
        net = models.alexnet(weights=None)
        net.features[0] = _first(net.features[0], channels)
        net.classifier = nn.Sequential(*list(net.classifier)[:-1])
        return net, nn.Linear(4096, classes)


class GoogLeNet(VisionModel):
    """GoogLeNet (BatchNorm) without auxiliary classifiers, for images from 15 pixels on."""

    name, head_name, smallest = "googlenet", "fc", 15

    def parts(self, models: Any, channels: int, classes: int, side: int) -> tuple[nn.Module, nn.Module]:
        net = models.googlenet(weights=None, aux_logits=False, init_weights=False)
        net.conv1.conv = _first(net.conv1.conv, channels)
        net.fc = nn.Identity()
        return net, nn.Linear(1024, classes)


def _first(layer: nn.Conv2d, channels: int) -> nn.Conv2d:
    """The same convolution for images of so many channels."""
    size, stride, padding = layer.kernel_size, layer.stride, layer.padding
    return nn.Conv2d(channels, layer.out_channels, size, stride, padding, bias=layer.bias is not None)  # type: ignore[arg-type]
