"""Models of the user's own by place: their arguments, their heads, and what is wrong with those that cannot be used."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from fedsim import registry
from fedsim.clients.building import build_model
from fedsim.clients.task import layout_of
from fedsim.config import RunConfig
from fedsim.errors import ConfigError
from fedsim.server.app import build
from tests.nodes import Nodes

HERE = __name__


class Plain(nn.Module):
    """As users of torch write networks: no base, no head, and the head is not defined last."""

    def __init__(self, num_classes: int = 3) -> None:
        super().__init__()
        self.last = nn.Linear(8, num_classes)
        self.first = nn.Linear(64, 8)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.first(x.flatten(1)).relu())


class Positional(nn.Sequential):
    def __init__(self, size: tuple[int, ...], outputs: int) -> None:
        super().__init__(nn.Flatten(), nn.Linear(64, outputs))


class Convolutional(nn.Module):
    """No linear layer makes the output."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.inside = nn.Linear(8, 8)
        self.convolution = nn.Conv2d(1, classes, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.convolution(self.inside(x)).mean((2, 3))


class Tokens(nn.Module):
    def __init__(self, vocabulary: int, classes: int) -> None:
        super().__init__()
        self.embedding, self.out = nn.Embedding(vocabulary, 4), nn.Linear(4, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.embedding(x))


class FourOutputs(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Flatten(), nn.Linear(64, 4))


class TooNarrow(nn.Sequential):
    def __init__(self, classes: int) -> None:
        super().__init__(nn.Flatten(), nn.Linear(63, classes))


class Demanding(nn.Module):
    def __init__(self, classes: int, depth: int) -> None:
        super().__init__()


class Raising(nn.Module):
    def __init__(self) -> None:
        raise ValueError("no weights for you")


def number(shape: tuple[int, ...], classes: int) -> int:
    return 3


@pytest.mark.parametrize("kind", [Plain, Positional])
def test_the_layer_that_makes_the_output_is_the_head(kind: type[nn.Module]) -> None:
    torch.manual_seed(0)
    whole = kind(5) if kind is Plain else kind((1, 8, 8), 5)
    torch.manual_seed(0)
    network = build_model(f"{HERE}:{kind.__name__}", (1, 8, 8), 5)
    x = torch.rand(4, 1, 8, 8)
    assert torch.equal(network(x), whole(x))
    assert torch.equal(network.head(network.base(x)), network(x))
    assert network.head.out_features == 5
    assert network.training
    assert layout_of(network).features == network.head.in_features


def test_a_network_that_cannot_be_split_stays_whole() -> None:
    network = build_model(f"{HERE}:Convolutional", (1, 8, 8), 5)
    assert type(network) is Convolutional
    assert {name for name, _ in network.named_children()} == {"inside", "convolution"}
    assert isinstance(network.inside, nn.Linear)


def test_token_ids_and_outputs_per_position() -> None:
    network = build_model(f"{HERE}:Tokens", (6,), 11, vocabulary=11)
    assert network(torch.ones(2, 6, dtype=torch.int64)).shape == (2, 6, 11)
    assert isinstance(network.base.embedding, nn.Embedding)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        (f"{HERE}:FourOutputs", "an output of shape \\(2, 4\\) of 2 samples, where 5 per sample are needed"),
        (f"{HERE}:TooNarrow", "cannot take samples of shape \\(1, 8, 8\\): RuntimeError: mat1 and mat2"),
        (
            f"{HERE}:Demanding",
            "asks for depth, which the run does not know.*shape, classes, num_classes and vocabulary",
        ),
        (f"{HERE}:Raising", "cannot be made for samples of shape \\(1, 8, 8\\) and 5 outputs: ValueError: no weights"),
        (f"{HERE}:number", "is int, not a network"),
        (f"{HERE}:Plan", "unknown class in module .*'Plan'. Did you mean 'Plain'?"),
        ("no_such_module:Net", "'no_such_module' cannot be imported .*No module named.*PYTHONPATH, on every machine"),
    ],
)
def test_what_is_wrong_with_a_model_is_said(name: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        build_model(name, (1, 8, 8), 5)


@pytest.mark.parametrize("name", ["a:b:c", ":Net", "net:", "my module:Net"])
def test_a_place_has_a_module_and_a_class(name: str) -> None:
    with pytest.raises(ConfigError, match="write module:class"):
        RunConfig(model=name)


def test_modules_of_the_working_folder_are_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", ["/nowhere"])
    Path("nets_of_this_folder.py").write_text("class Net: pass\n")
    assert registry.find("model", "nets_of_this_folder:Net").__name__ == "Net"


def test_algorithms_share_the_base_of_an_own_model(small: Callable[..., RunConfig], tmp_path: Path) -> None:
    config = small("algorithm=fedper", "clients=2", "rounds=1", f"model={HERE}:Plain")
    strategy = build(config)
    strategy.start(Nodes(config, tmp_path))
    layout = strategy.server.fleet.layout
    assert [t.name for t in layout.parameters] == ["base.first.weight", "base.first.bias", "head.weight", "head.bias"]
