"""Checks of a home folder: one finding with its remedy for each problem, none without."""

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsim.deploy import doctor

from .home_folder import VERSIONS, change, the_problem


def test_nothing_wrong(node: Path, server: Path) -> None:
    for home in (node, server):
        found = doctor.check_home(home, reference=time.time())
        assert [str(finding) for finding in found if finding.level != "ok"] == []
    told = "\n".join(map(str, doctor.check_home(node)))
    assert "silo.npz holds 8 training and 8 test samples of 2 classes" in told
    assert f"flwr: {VERSIONS['flwr']}" in told


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, "holds neither of node.json and server.json"),
        ("{", "node.json cannot be read as JSON"),
        ("[]", "must hold one JSON object"),
        ('{"name": "a"}', "node.json: missing keys: superlink, ca, key, port, config, versions"),
    ],
)
def test_a_home_folder_without_a_usable_configuration(content: str | None, told: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "node.json").write_text(content)
    assert told in the_problem(doctor.check_home(tmp_path))


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("port", "many", "port must be of type int, not 'many'"),
        ("port", 70_000, "port must be at least 1 and at most 65535, not 70000"),
        ("versions", 3, "versions must be an object, not 3"),
        ("key", 3, "key must be a path, not 3"),
        ("prot", 1, "unknown config key 'prot'. Did you mean 'port'?"),
    ],
)
def test_a_wrong_value_is_named_with_its_file(key: str, value: Any, told: str, node: Path) -> None:
    change(node, **{key: value})
    assert f"{node / 'node.json'}: {told}" in the_problem(doctor.check_home(node))


def test_a_node_without_a_partition_id(node: Path) -> None:
    change(node, config={"data": "silo.npz", "device": "cpu"})
    assert "node.json has no partition-id" in the_problem(doctor.check_home(node))


def test_wrong_versions(node: Path) -> None:
    change(node, versions={**VERSIONS, "flwr": "1.38.0"})
    line = the_problem(doctor.check_home(node))
    assert f"{VERSIONS['flwr']} is installed" in line
    assert "pip install 'flwr==1.38.0'" in line
    change(node, versions={**VERSIONS, "fedsim-flower": "0.0.1"})
    line = the_problem(doctor.check_home(node))
    assert "the federation runs fedsim-flower 0.0.1" in line
    assert "run `fedsim deploy up --install`" in line
    assert "pip install" not in line  # of that name something else may be published
    change(node, versions={"no-such-package": "1"})
    assert "it is not installed" in the_problem(doctor.check_home(node))


def test_missing_data(node: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (node / "silo.npz").unlink()
    monkeypatch.chdir(node)
    line = the_problem(doctor.check_home(Path(".")))
    assert f"{node / 'silo.npz'} is not there; expected an npz file" in line


def test_data_with_a_missing_array(node: Path) -> None:
    np.savez(node / "silo.npz", x_train=np.zeros((2, 3)))
    assert "silo.npz lacks x_test, y_train, y_test" in the_problem(doctor.check_home(node))
