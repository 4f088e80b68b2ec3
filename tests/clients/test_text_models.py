"""Models of text, sensors and torchvision: sizes, padding, and samples that do not fit."""

import pytest
import torch

from fedsim import registry
from fedsim.clients.models import AmazonMLP, HarCNN, check_fits
from fedsim.clients.task import layout_of
from fedsim.clients.vectorized import dense_layers
from fedsim.errors import ConfigError

TEXT = ["fasttext", "textcnn", "lstm", "transformer", "char-lstm"]


@pytest.mark.parametrize("name", TEXT)
def test_padding_changes_nothing(name: str) -> None:
    net = registry.find("model", name)((9,), 4, 12).eval()
    text = torch.tensor([[3, 5, 1, 7]])
    padded = torch.nn.functional.pad(text, (0, 5))
    assert torch.allclose(net(text), net(padded), atol=1e-6)
    assert not torch.allclose(net(text), net(text.flip(1) + 1), atol=1e-6)
    assert net(torch.zeros(2, 9, dtype=torch.int64)).isfinite().all()
    assert list(layout_of(net).stages) == ["base", "head"]
    assert dense_layers(net) is None  # trained one by one


def test_leafs_character_model() -> None:
    net = registry.find("model", "char-lstm")((80,), 80, 82)
    first, second = 4 * 256 * (8 + 256 + 2), 4 * 256 * (256 + 256 + 2)
    assert sum(p.numel() for p in net.parameters()) == 82 * 8 + first + second + 256 * 80 + 80
    every = registry.find("model", "char-lstm-lm")((80,), 82, 82)
    assert every(torch.ones(2, 5, dtype=torch.int64)).shape == (2, 5, 82)


def test_sensors_and_word_counts() -> None:
    assert HarCNN((128, 9), 6)(torch.zeros(2, 128, 9)).shape == (2, 6)
    sizes = [5000 * 1000 + 1000, 1000 * 500 + 500, 500 * 100 + 100, 100 * 2 + 2]
    assert sum(p.numel() for p in AmazonMLP((5000,), 2).parameters()) == sum(sizes)


@pytest.mark.parametrize("name", ["resnet18", "mobilenet"])
def test_torchvisions_models_take_small_images(name: str) -> None:
    net = registry.find("model", name)((1, 8, 8), 7)
    assert net(torch.zeros(2, 1, 8, 8)).shape == (2, 7)
    assert bool(layout_of(net).buffers) == (name == "mobilenet")  # ResNet-18 has GroupNorm


@pytest.mark.parametrize(("name", "least"), [("alexnet", 63), ("googlenet", 15)])
def test_too_small_images_are_refused(name: str, least: int) -> None:
    with pytest.raises(ConfigError, match=f"'{name}' needs images of at least {least} x {least} pixels, not 8 x 8"):
        registry.find("model", name)((3, 8, 8), 7)


@pytest.mark.parametrize(
    ("name", "shape", "vocabulary", "fits"),
    [
        ("lstm", (1, 8, 8), 0, "mlp, .*cnn"),
        ("cnn", (20,), 50, "fasttext, textcnn"),
        ("mlp", (20,), 50, "fasttext, textcnn"),
        ("har-cnn", (3, 8, 8), 0, "mlp, .*cnn"),
    ],
)
def test_models_that_do_not_fit_name_those_that_do(
    name: str, shape: tuple[int, ...], vocabulary: int, fits: str
) -> None:
    with pytest.raises(ConfigError, match=f"model '{name}' needs .* of shape .* Models that fit: .*{fits}"):
        check_fits(registry.find("model", name), name, shape, vocabulary)
