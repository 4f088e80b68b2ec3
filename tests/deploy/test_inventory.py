"""The inventory: what is read from it, and what is refused."""

from pathlib import Path

import pytest

from fedsim.deploy.inventory import Inventory, read, template
from fedsim.errors import ConfigError

TWO = '[[node]]\nname = "a"\n[[node]]\nname = "b"\nport = 9095\n'


def inventory(folder: Path, text: str) -> Inventory:
    (folder / "federation.toml").write_text(text)
    return read(folder / "federation.toml")


def test_the_template_is_a_valid_federation_of_this_machine(tmp_path: Path) -> None:
    found = inventory(tmp_path, template("lab", "127.0.0.1", 3))
    assert [node.name for node in found.nodes] == ["node-0", "node-1", "node-2"]
    assert [node.partition_id for node in found.nodes] == [0, 1, 2]
    assert len({node.port for node in found.nodes}) == 3
    assert not found.server.remote


def test_the_node_config_of_a_node(tmp_path: Path) -> None:
    text = TWO + 'data = "/data/b.npz"\ndevice = "cuda:1"\nconfig = { ward = "north" }\n'
    found = inventory(tmp_path, text)
    assert found.node_config(found.nodes[0]) == {
        "partition-id": 0,
        "num-partitions": 2,
        "device": "auto",
        "state-dir": "state",
    }
    assert found.node_config(found.nodes[1]) == {
        "partition-id": 1,
        "num-partitions": 2,
        "data": "/data/b.npz",
        "device": "cuda:1",
        "state-dir": "state",
        "ward": "north",
    }


def test_homes_lie_beside_the_file_or_below_the_login_folder(tmp_path: Path) -> None:
    found = inventory(tmp_path, TWO + 'ssh = "fed@b"\n')
    assert found.home("a", found.nodes[0]) == str(tmp_path / "homes" / "a")
    assert found.home("b", found.nodes[1]) == ".fedsim/federation/b"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "lists no node"),
        ("[[node]]\nname = 3\n[server\n", "not valid TOML"),
        ('[[node]]\nname = "A b"\n', "small letters"),
        ('[[node]]\nname = "server"\n', "cannot be called server"),
        ('[[node]]\nname = "a"\nprot = 1\n', "Did you mean 'node.port'"),
        ('[[node]]\nname = "a"\n[serwer]\n', "unknown key"),
        ('[server]\nfleet-port = "many"\n[[node]]\nname = "a"\n', "server.fleet-port must be of type int"),
        ('[[node]]\nname = "a"\n[[node]]\nname = "a"\nport = 1\n', "the same name, a"),
        ('[[node]]\nname = "a"\n[[node]]\nname = "b"\n', "the same machine and port"),
        ('[server]\nfleet-port = 9094\n[[node]]\nname = "a"\n', "the same machine and port, this machine, 9094"),
        (TWO.replace("9095", "95000"), "node.port must be at least 1 and at most 65535, not 95000"),
        ("[server]\ncontrol-port = 0\n", "server.control-port must be at least 1 and at most 65535, not 0"),
        (TWO.replace('"b"', '"b"\npartition-id = 0'), "the same partition-id, 0"),
        (TWO.replace('"b"', '"b"\npartition-id = 7'), "0 to 1 are needed"),
        (TWO.replace('"b"', '"b"\nhome = "/x"') + '[server]\nhome = "/x"\n', "the same machine and home"),
        (TWO + 'ssh = "x"\nvia = "y"\n', "either ssh or via"),
        (TWO + "config = { partition-id = 1 }\n", "beside config"),
    ],
)
def test_an_invalid_inventory_is_refused(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        inventory(tmp_path, text)


def test_a_missing_file_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="deploy init"):
        read(tmp_path / "federation.toml")
