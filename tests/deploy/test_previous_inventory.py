"""Machines that are taken out of the inventory are stopped by the next `up` or `down`."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from fedsim.deploy import agent, machine_config, previous_inventory
from fedsim.deploy.federation import Federation
from fedsim.deploy.inventory import FILE, read, template
from fedsim.deploy.machine_config import NodeConfig
from fedsim.errors import FedsimError


def write(folder: Path, text: str) -> None:
    (folder / FILE).write_text(text)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Three nodes were up, and the last of them still runs (without a key, so its processes end and start again)."""
    write(tmp_path, template("wards", "127.0.0.1", 3))
    previous_inventory.save(read(tmp_path / FILE))
    home = tmp_path / "homes" / "node-2"
    home.mkdir(parents=True)
    config = NodeConfig("node-2", "127.0.0.1:1", Path("no"), Path("no"), 1, {"partition-id": 2}, {})
    (home / "node.json").write_text(machine_config.to_json(config))
    agent.start(home)
    yield tmp_path
    agent.stop(home)


def names(folder: Path) -> list[str]:
    return [host.name for host in previous_inventory.removed_hosts(read(folder / FILE))]


def test_removed_hosts(folder: Path) -> None:
    assert names(folder) == []
    text = template("wards", "127.0.0.1", 3)
    write(folder, text.replace('"node-1"', '"other"'))
    assert names(folder) == ["node-1"]
    write(folder, text.replace("[server]\n", '[server]\nssh = "fed@far.example"\n'))
    assert names(folder) == ["server"]  # it moved
    previous_inventory.delete(read(folder / FILE))
    write(folder, template("wards", "127.0.0.1", 1))
    assert names(folder) == []


def test_a_previous_inventory_need_not_be_valid(folder: Path) -> None:
    write(folder, template("wards", "127.0.0.1", 3).replace("port = 9095", "port = 9094"))
    previous_inventory.save(read(folder / FILE, check=False))
    write(folder, template("wards", "127.0.0.1", 2))
    assert names(folder) == ["node-2"]


def test_up_stops_it_and_says_so(folder: Path) -> None:
    write(folder, template("wards", "127.0.0.1", 2))
    reported = list[str]()
    Federation(read(folder / FILE), reported.append)._stop_removed_hosts()
    assert reported == [f"node-2: stopped, it is no longer in the inventory; {folder / 'homes' / 'node-2'} is kept"]
    assert agent.running(folder / "homes" / "node-2") is None
    assert names(folder) == []


def test_down_stops_it_too(folder: Path) -> None:
    write(folder, template("wards", "127.0.0.1", 2))
    reported = list[str]()
    Federation(read(folder / FILE), reported.append).down()
    assert "node-2: stopped" in reported
    assert agent.running(folder / "homes" / "node-2") is None


def test_down_stops_what_it_can_and_names_the_rest(folder: Path) -> None:
    text = template("wards", "127.0.0.1", 2).replace("[server]\n", '[server]\nvia = "/no/such/command"\n')
    write(folder, text)
    reported = list[str]()
    with pytest.raises(FedsimError, match=r"not everything could be stopped\nserver: No such file .*/no/such/command"):
        Federation(read(folder / FILE), reported.append).down()
    assert "node-2: stopped" in reported
    assert names(folder) == ["node-2", "server"]  # to be tried again


def test_one_that_cannot_be_reached_does_not_keep_the_rest_from_starting(folder: Path) -> None:
    text = template("wards", "127.0.0.1", 3)
    write(folder, text.replace('"node-1"\n', '"node-1"\nvia = "/no/such/command"\n'))
    previous_inventory.save(read(folder / FILE))
    write(folder, template("wards", "127.0.0.1", 1))
    reported = list[str]()
    Federation(read(folder / FILE), reported.append)._stop_removed_hosts()
    unreached, stopped = reported
    assert "node-1" in unreached
    assert "It is no longer in the inventory, but its processes may still run there" in unreached
    assert stopped.startswith("node-2: stopped")
