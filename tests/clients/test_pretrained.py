"""A model that starts from a checkpoint: formats, names, heads of another size, and files that do not fit."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from fedsim.clients.building import build_model
from fedsim.clients.pretrained import load_pretrained
from fedsim.clients.task import TorchTask
from fedsim.config import RunConfig
from fedsim.engine.launch import launch
from fedsim.errors import ConfigError
from fedsim.files import read_npz
from fedsim.partitions.client_data import client_data
from fedsim.results.record import read_events, read_summary
from tests.clients.test_building import Plain

SHAPE = (1, 8, 8)


def dnn(outputs: int = 10, seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return build_model("dnn", SHAPE, outputs)


def same(one: nn.Module, other: nn.Module, part: str = "") -> bool:
    names = [name for name in one.state_dict() if name.startswith(part)]
    return all(torch.equal(one.state_dict()[name], other.state_dict()[name]) for name in names)


def save_npz(tensors: dict[str, torch.Tensor], path: Path) -> None:
    np.savez(path, **{name: tensor.numpy() for name, tensor in tensors.items()})


def save_checkpoint(tensors: dict[str, torch.Tensor], path: Path) -> None:
    torch.save({"state_dict": tensors, "epoch": 3}, path)


@pytest.mark.parametrize(
    ("save", "file"),
    [(torch.save, "m.pt"), (save_checkpoint, "m.ckpt"), (save_file, "m.safetensors"), (save_npz, "m.npz")],
)
def test_every_format_is_the_same_start(save: Callable[..., object], file: str, tmp_path: Path) -> None:
    before, network = dnn(seed=1), dnn(seed=2)
    save(before.state_dict(), tmp_path / file)
    assert load_pretrained(network, str(tmp_path / file)) == ""
    assert same(before, network)


def test_a_head_of_another_size_keeps_its_initial_values(tmp_path: Path) -> None:
    before, network, fresh = dnn(outputs=7, seed=1), dnn(seed=2), dnn(seed=2)
    torch.save(before.state_dict(), tmp_path / "m.pt")
    note = load_pretrained(network, str(tmp_path / "m.pt"))
    assert "the head keeps its initial values (the file has head.weight 7 x 100 instead of 10 x 100" in note
    assert same(before, network, "base.")
    assert same(fresh, network, "head.")


def test_names_without_base_and_head(tmp_path: Path) -> None:
    torch.manual_seed(1)
    own = Plain(4)
    torch.save(own.state_dict(), tmp_path / "own.pt")
    network = build_model("tests.clients.test_building:Plain", SHAPE, 4)
    assert load_pretrained(network, str(tmp_path / "own.pt")) == ""
    x = torch.rand(3, *SHAPE)
    assert torch.equal(network(x), own(x))
    del own.last
    torch.save(own.state_dict(), tmp_path / "base.pt")
    assert "(the file has none)" in load_pretrained(network, str(tmp_path / "base.pt"))


def test_files_of_torchvision(tmp_path: Path) -> None:
    from torchvision.models import mobilenet_v2

    torch.save(mobilenet_v2(num_classes=5).state_dict(), tmp_path / "mobile.pt")
    network = build_model("mobilenet", (3, 64, 64), 5)
    assert load_pretrained(network, str(tmp_path / "mobile.pt")) == ""
    with pytest.raises(ConfigError, match=r"it has base.features.0.0.weight 32 x 3 x 3 x 3 instead of 32 x 1 x 3 x 3"):
        load_pretrained(build_model("mobilenet", (1, 64, 64), 5), str(tmp_path / "mobile.pt"))


def test_files_that_do_not_fit_are_refused_with_names(tmp_path: Path) -> None:
    torch.save(build_model("mlp", SHAPE, 10).state_dict(), tmp_path / "mlp.pt")
    with pytest.raises(
        ConfigError, match=r"it has base.0.weight 200 x 64 instead of 100 x 64.* The file holds: base.0"
    ):
        load_pretrained(dnn(), str(tmp_path / "mlp.pt"))
    torch.save({"other": torch.zeros(1)}, tmp_path / "other.pt")
    with pytest.raises(ConfigError, match=r"it lacks base.0.weight, base.0.bias. The file holds: other"):
        load_pretrained(dnn(), str(tmp_path / "other.pt"))


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    torch.save(dnn(), tmp_path / "whole.pt")
    torch.save([1, 2], tmp_path / "list.pt")
    (tmp_path / "broken.npz").write_bytes(b"PK")
    (tmp_path / "text.safetensors").write_text("no")
    for file, told in (
        ("missing.pt", "no such file"),
        ("whole.pt", "no file of plain tensors.*model.state_dict"),
        ("list.pt", "not a state_dict"),
        ("broken.npz", "cannot be read"),
        ("text.safetensors", "cannot be read"),
    ):
        with pytest.raises(ConfigError, match=f"model.pretrained={tmp_path / file}.*{told}"):
            load_pretrained(dnn(), str(tmp_path / file))


def test_a_run_goes_on_where_another_ended(small: Callable[..., RunConfig], tmp_path: Path) -> None:
    first = launch(small("clients=2", "rounds=2", "model=dnn").replace(out=str(tmp_path / "first")), "inline")
    config = small("clients=2", "rounds=1", "model=dnn", f"model.pretrained={first / 'model.npz'}")
    task = TorchTask(config.with_model("dnn"), client_data(config, 0), 10)
    assert np.array_equal(task.layout.named(task.initial())["head.bias"], read_npz(first / "model.npz")["head.bias"])
    second = launch(config.replace(out=str(tmp_path / "second")), "inline")
    received = [row["global"] for row in read_events(second)[0]["clients"]]
    assert received == read_summary(first)["accuracy"]["global"]["per_client"]
    draw = task.network("model:1").initial
    assert np.array_equal(task.layout.named(draw)["base.0.bias"], task.layout.named(task.initial())["base.0.bias"])
    assert not np.array_equal(task.layout.named(draw)["head.bias"], task.layout.named(task.initial())["head.bias"])


def test_several_models_have_no_common_start() -> None:
    with pytest.raises(ConfigError, match="the start of one model, but the clients have mlp, cnn"):
        RunConfig(algorithm="local", model="mlp,cnn", sections={"model": {"pretrained": "m.pt"}})
