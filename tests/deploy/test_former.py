"""Nodes that are taken out of the inventory do not go on unseen."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy import agent, former
from deploy.federation import Federation
from deploy.inventory import FILE, read, template
from fedsim.errors import FedsimError


def write(folder: Path, text: str) -> None:
    (folder / FILE).write_text(text)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Three nodes were up, and the last of them still runs (without a key, so its processes end and start again)."""
    write(tmp_path, template("wards", "127.0.0.1", 3))
    former.remember(read(tmp_path / FILE))
    home = tmp_path / "homes" / "node-2"
    home.mkdir(parents=True)
    about = {"role": "node", "name": "node-2", "superlink": "127.0.0.1:1", "ca": "no", "key": "no", "port": 1}
    (home / "node.json").write_text(json.dumps({**about, "config": {"partition-id": 2, "state-dir": "state"}}))
    agent.start(home)
    yield tmp_path
    agent.stop(home)


def names(folder: Path) -> list[str]:
    return [host.name for host in former.former(read(folder / FILE))]


def test_who_is_no_longer_there(folder: Path) -> None:
    assert names(folder) == []
    text = template("wards", "127.0.0.1", 3)
    write(folder, text.replace('"node-1"', '"other"'))
    assert names(folder) == ["node-1"]
    write(folder, text.replace("[server]\n", '[server]\nssh = "fed@far.example"\n'))
    assert names(folder) == ["server"]  # it moved
    former.forget(read(folder / FILE))
    write(folder, template("wards", "127.0.0.1", 1))
    assert names(folder) == []


def test_a_former_inventory_need_not_make_sense(folder: Path) -> None:
    write(folder, template("wards", "127.0.0.1", 3).replace("port = 9095", "port = 9094"))
    former.remember(read(folder / FILE, sound=False))
    write(folder, template("wards", "127.0.0.1", 2))
    assert names(folder) == ["node-2"]


def test_up_stops_it_and_says_so(folder: Path) -> None:
    write(folder, template("wards", "127.0.0.1", 2))
    said = list[str]()
    Federation(read(folder / FILE), said.append)._stop_former()
    assert said == [f"node-2: stopped, it is no longer in the inventory; {folder / 'homes' / 'node-2'} stays there"]
    assert agent.running(folder / "homes" / "node-2") is None
    assert names(folder) == []


def test_down_stops_it_too(folder: Path) -> None:
    write(folder, template("wards", "127.0.0.1", 2))
    said = list[str]()
    Federation(read(folder / FILE), said.append).down()
    assert "node-2: stopped" in said
    assert agent.running(folder / "homes" / "node-2") is None


def test_down_stops_what_it_can_and_names_the_rest(folder: Path) -> None:
    text = template("wards", "127.0.0.1", 2).replace("[server]\n", '[server]\nvia = "/no/such/command"\n')
    write(folder, text)
    said = list[str]()
    with pytest.raises(FedsimError, match=r"not everything could be stopped\nserver: No such file .*/no/such/command"):
        Federation(read(folder / FILE), said.append).down()
    assert "node-2: stopped" in said
    assert names(folder) == ["node-2", "server"]  # to be tried again


def test_one_that_cannot_be_reached_does_not_keep_the_rest_from_starting(folder: Path) -> None:
    text = template("wards", "127.0.0.1", 3)
    write(folder, text.replace('"node-1"\n', '"node-1"\nvia = "/no/such/command"\n'))
    former.remember(read(folder / FILE))
    write(folder, template("wards", "127.0.0.1", 1))
    said = list[str]()
    Federation(read(folder / FILE), said.append)._stop_former()
    unreached, stopped = said
    assert "node-1" in unreached
    assert "It is no longer in the inventory, but may go on there" in unreached
    assert stopped.startswith("node-2: stopped")
