import pytest
import torch

from fedsim import registry
from fedsim.clients.models import CNN, MLP, MLR, VGG11, FedAvgCNN, LeNet5
from fedsim.clients.task import layout_of
from fedsim.errors import ConfigError


def count(model: torch.nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


def test_parameter_counts_of_the_papers() -> None:
    assert count(MLP((1, 28, 28), 10)) == 199_210  # McMahan's 2NN
    assert count(MLR((1, 28, 28), 10)) == 7_850
    assert count(FedAvgCNN((1, 28, 28), 10)) == 1_663_370  # 832 + 51,264 + 7x7x64x512+512 + 5,130
    assert count(VGG11((3, 32, 32), 10)) == 9_220_480 + 5_130  # the convolutions and one linear layer
    assert registry.find("model", "fedavg-mlp") is MLP
    # 5x5x1x20+20, 5x5x20x50+50, 4x4x50x512+512, 512x10+10
    assert count(CNN((1, 28, 28), 10)) == 520 + 25_050 + 410_112 + 5_130


@pytest.mark.parametrize("model", [MLR, MLP, CNN, FedAvgCNN, VGG11])
@pytest.mark.parametrize("shape", [(1, 8, 8), (1, 16, 16), (1, 28, 28), (3, 32, 32), (3, 96, 96)])
def test_every_model_takes_every_dataset(model: type[torch.nn.Module], shape: tuple[int, int, int]) -> None:
    net = model(shape, 7)
    assert net(torch.zeros(2, *shape)).shape == (2, 7)


@pytest.mark.parametrize(("shape", "flat"), [((1, 28, 28), 256), ((3, 32, 32), 400), ((1, 16, 16), 16)])
def test_lenet5_has_the_tensors_of_its_paper(shape: tuple[int, int, int], flat: int) -> None:
    net = LeNet5(shape, 10)
    convolutions = 25 * shape[0] * 6 + 6 + 25 * 6 * 16 + 16
    assert count(net) == convolutions + flat * 120 + 120 + 120 * 84 + 84 + 84 * 10 + 10
    assert net(torch.zeros(2, *shape)).shape == (2, 10)
    assert layout_of(net).features == 84


@pytest.mark.parametrize("shape", [(1, 8, 8), (1, 28, 15)])
def test_lenet5_refuses_small_images(shape: tuple[int, int, int]) -> None:
    with pytest.raises(ConfigError, match=f"at least 16 x 16 pixels, not {shape[1]} x {shape[2]}"):
        LeNet5(shape, 10)


def test_stages_are_the_top_level_children() -> None:
    assert list(layout_of(CNN((1, 28, 28), 10)).stages) == ["base", "head"]
    assert list(layout_of(MLR((1, 28, 28), 10)).stages) == ["head"]
    layout = layout_of(CNN((1, 28, 28), 10))
    (head,) = layout.stages["head"]
    assert head.stop - head.start == 512 * 10 + 10
