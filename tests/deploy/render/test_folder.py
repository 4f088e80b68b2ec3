"""The folder that is rendered: complete, operated from where it is, and rendered again without leftovers."""

import zipfile
from pathlib import Path

import pytest
import yaml

from fedsim.deploy.inventory import FILE, Inventory, read
from fedsim.deploy.render import render

from .example import NODES, make


@pytest.mark.parametrize(
    ("kind", "reach"),
    [
        ("compose", "docker exec -i trial-{}"),
        ("kubernetes", "kubectl -n trial exec -i fedsim-node-{}-0 --"),
        ("systemd", "fed@seven.example.org -p 2222 sudo -n -u fedsim"),
    ],
)
def test_the_federation_is_operated_from_its_folder(rendered: dict[str, Path], kind: str, reach: str) -> None:
    found = read(rendered[kind] / FILE)
    seven = found.nodes[1]
    assert (seven.via or seven.ssh) == reach.format("7")
    assert found.server.python.endswith("/bin/python")
    assert [node.name for node in found.nodes] == list(NODES)


def test_fedsim_itself_is_in_the_folder(rendered: dict[str, Path]) -> None:
    for folder in (rendered["compose"], rendered["kubernetes"], rendered["systemd"] / "server"):
        (wheel,) = folder.glob("fedsim_flower-*.whl")
        inside = set(zipfile.ZipFile(wheel).namelist())
        assert {"fedsim/deploy/agent.py", "fedsim/deploy/render/templates/Dockerfile", "fedsim/client/app.py"} <= inside
        assert "fedsim/deploy/render/templates/requirements.txt" in inside


def test_every_placeholder_is_replaced(rendered: dict[str, Path]) -> None:
    for path in (p for folder in rendered.values() for p in folder.rglob("README.txt")):
        assert "$" not in path.read_text()
    assert all(f"{name}/install.sh" in (rendered["systemd"] / "README.txt").read_text() for name in ("server", *NODES))


def test_rendering_again_removes_outdated_files(tmp_path: Path) -> None:
    (tmp_path / "federation").mkdir()
    before, out = make(tmp_path / "federation"), tmp_path / "out"
    list(render(before, "compose", out))
    (out / "mine.txt").write_text("kept")
    after = Inventory(before.name, before.server, before.nodes[:2], before.folder)
    list(render(after, "compose", out))
    assert sorted(path.name for path in (out / "secrets/nodes").iterdir()) == ["7.key", "no.key"]
    assert (out / "mine.txt").exists()
    assert set(yaml.safe_load((out / "compose.yaml").read_text())["volumes"]) == {"server", "7", "no"}
