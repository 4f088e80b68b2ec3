"""What is in a home: each trouble is one line with its remedy, health is silence."""

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deploy import doctor

from .home import VERSIONS, change, the_problem


def test_nothing_wrong(node: Path, server: Path) -> None:
    for home in (node, server):
        found = doctor.examine(home, reference=time.time())
        assert [str(finding) for finding in found if finding.level != "ok"] == []
    told = "\n".join(map(str, doctor.examine(node)))
    assert "silo.npz holds 8 training and 8 test samples of 2 classes" in told
    assert f"flwr: {VERSIONS['flwr']}" in told


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, "holds neither of node.json and server.json"),
        ("{", "node.json cannot be read as JSON"),
        ("[]", "must hold one JSON object"),
        ('{"role": "node", "name": "a"}', "node.json lacks superlink, ca, key, port, config, versions"),
    ],
)
def test_a_home_that_says_nothing(content: str | None, told: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "node.json").write_text(content)
    assert told in the_problem(doctor.examine(tmp_path))


@pytest.mark.parametrize(("key", "value"), [("port", "many"), ("versions", 3), ("port", 70_000)])
def test_a_home_with_a_wrong_value(key: str, value: Any, node: Path) -> None:
    change(node, **{key: value})
    assert str(value) in the_problem(doctor.examine(node))


def test_a_node_that_is_nobody(node: Path) -> None:
    change(node, config={"data": "silo.npz", "device": "cpu"})
    assert "node.json says no partition-id" in the_problem(doctor.examine(node))


def test_wrong_versions(node: Path) -> None:
    change(node, versions={**VERSIONS, "flwr": "1.38.0"})
    line = the_problem(doctor.examine(node))
    assert f"{VERSIONS['flwr']} is installed" in line
    assert "pip install 'flwr==1.38.0'" in line
    change(node, versions={"no-such-package": "1"})
    assert "it is not installed" in the_problem(doctor.examine(node))


def test_missing_data(node: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (node / "silo.npz").unlink()
    monkeypatch.chdir(node)
    line = the_problem(doctor.examine(Path(".")))
    assert f"{node / 'silo.npz'} is not there; expected an npz file" in line


def test_data_with_a_missing_array(node: Path) -> None:
    np.savez(node / "silo.npz", x_train=np.zeros((2, 3)))
    assert "silo.npz lacks x_test, y_train, y_test" in the_problem(doctor.examine(node))
