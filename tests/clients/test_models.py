import pytest
import torch

from fedsim import registry
from fedsim.clients.models import CNN, MLP, MLR, VGG11, BatchNormResNet9, FedAvgCNN, LeNet5, ResNet9
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


@pytest.mark.parametrize(
    ("shape", "features"), [((3, 32, 32), 512), ((3, 96, 96), 4608), ((1, 28, 28), 512), ((1, 8, 8), 512)]
)
def test_resnet9_has_the_blocks_of_its_table(shape: tuple[int, int, int], features: int) -> None:
    """Table 11; at 96 pixels the head is as wide as in the authors' code."""
    blocks = [(shape[0], 64), (64, 128), (128, 128), (128, 128), (128, 256), (256, 512), (512, 512), (512, 512)]
    convolutions = sum(9 * before * after + 3 * after for before, after in blocks)  # with bias, scale and shift
    net = ResNet9(shape, 10)
    assert count(net) == convolutions + features * 10 + 10
    assert layout_of(net).features == features
    assert net(torch.zeros(1, *shape)).shape == (1, 10)


def test_resnet9_adds_the_second_block_to_the_third() -> None:
    net = ResNet9((3, 8, 8), 2).eval()
    second = torch.rand(1, 128, 4, 4)
    inside = net.base[2][1](net.base[2][0](second))
    assert torch.equal(net.base[2](second), second + inside)


def test_resnet9_normalizes_groups_of_channels_or_batches() -> None:
    assert layout_of(ResNet9((1, 8, 8), 2)).buffer_size == 0
    means_and_variances = 2 * (64 + 3 * 128 + 256 + 3 * 512)
    assert layout_of(BatchNormResNet9((1, 8, 8), 2)).buffer_size == means_and_variances


def test_stages_are_the_top_level_children() -> None:
    assert list(layout_of(CNN((1, 28, 28), 10)).stages) == ["base", "head"]
    assert list(layout_of(MLR((1, 28, 28), 10)).stages) == ["head"]
    layout = layout_of(CNN((1, 28, 28), 10))
    (head,) = layout.stages["head"]
    assert head.stop - head.start == 512 * 10 + 10
