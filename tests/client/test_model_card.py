"""The personal model as a file: its content, its model card, and that the code in the card loads it."""

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from safetensors import safe_open

from fedsim.client.model_card import card, facts
from fedsim.clients.task import TorchTask
from fedsim.config import RunConfig
from fedsim.partitions.client_data import client_data
from fedsim.results.record import Record, read_manifest, read_summary
from fedsim.server.app import build
from tests.nodes import Nodes


def test_the_card_tells_how_to_load_the_model(small: Callable[..., RunConfig], tmp_path: Path) -> None:
    config = small("clients=3", "algorithm=apfl", "rounds=2", "seed=5", "model=mlp")
    build(config).start(Nodes(config, tmp_path), record=Record(tmp_path / "run", config, "test"))
    run, summary = read_manifest(tmp_path / "run")["run"], read_summary(tmp_path / "run")
    card = (tmp_path / "2" / run / "client-0002.md").read_text()
    accuracy = summary["accuracy"]["personal"]["per_client"][2]
    for fact in (
        f"| run | {run} |",
        "| algorithm | apfl (",
        "| dataset | digits |",
        "| partition | dirichlet |",
        "| rounds | 2 |",
        "| seed | 5 |",
        f"| accuracy on its own tests | {accuracy:.4f} |",
    ):
        assert fact in card

    (code,) = re.findall(r"```python\n(.*?)```", card, re.DOTALL)
    place = dict[str, torch.nn.Module]()
    exec(code.replace('"client-0002', f'"{tmp_path}/2/{run}/client-0002'), place)
    data = client_data(config, 2)
    with torch.inference_mode():
        said = place["model"](torch.from_numpy(data.x_test)).argmax(1).numpy()
    assert np.mean(said == data.y_test) == accuracy
    with safe_open(tmp_path / "2" / run / "client-0002.safetensors", "numpy") as file:
        assert file.metadata()["client"] == "2"
        assert set(file.keys()) == {t.name for t in TorchTask(config, data, 10).layout.parameters}


def test_the_card_says_which_inputs_the_model_expects(small: Callable[..., RunConfig]) -> None:
    def text(config: RunConfig) -> str:
        return card(facts(config, "run", 0, (1, 1), None), config, "m.safetensors", (1, 8, 8), 10, buffers=False)

    assert "mean 0 and standard deviation 1" in text(small())
    assert "0 to 255" in text(small("inputs=raw"))
