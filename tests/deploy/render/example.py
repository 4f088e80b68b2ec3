"""A federation whose names and paths have a special meaning in some format, and readers of the files rendered for it."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from fedsim.deploy.inventory import FILE, Inventory, read
from fedsim.deploy.setup import init

ROOT = Path(__file__).parents[3]
DATA = '/srv/silo $HOME: "x" é/%h.npz'  # characters with a meaning in some format
NODES = ("no", "7", "gpus", "last")  # the first two are no strings in YAML
INVENTORY = """
name = "trial"
[server]
host = "192.0.2.1"
fleet-port = {fleet}
control-port = {control}
python = {python}
home = {home}
[[node]]
name = "no"
data = {data}
device = "cpu"
port = {node}
python = {python}
home = {node_home}
[[node]]
name = "7"
ssh = "fed@seven.example.org -p 2222"
host = "worker-7"
port = 7001
[[node]]
name = "gpus"
gpu = "1,3"
port = 7002
[[node]]
name = "last"
device = "cuda:1"
port = 7003
"""


def make(folder: Path, **changes: str | int) -> Inventory:
    """A federation whose paths hold what has to be quoted."""
    odd = folder / "a $b 100%"
    odd.mkdir()
    (odd / "environment").symlink_to(sys.prefix)
    values: dict[str, Any] = {"fleet": 9392, "control": 8300, "node": 9494, "data": DATA}
    values |= {
        "python": str(odd / "environment"),
        "home": str(odd / 'server\'s "home"'),
        "node_home": str(odd / "no"),
        **changes,
    }
    text = INVENTORY.format(**{key: json.dumps(value, ensure_ascii=False) for key, value in values.items()})
    (folder / FILE).write_text(text)
    list(init(folder, "trial", "", 0, [], False))
    return read(folder / FILE)


def run(*command: str | Path, cwd: Path | None = None) -> str:
    done = subprocess.run([str(word) for word in command], cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def documents(folder: Path) -> list[Any]:
    """Everything that kubectl would apply."""
    names = yaml.safe_load((folder / "kustomization.yaml").read_text())["resources"]
    assert set(names) == {path.name for path in folder.glob("*.yaml")} - {"kustomization.yaml"}
    return [document for name in names for document in yaml.safe_load_all((folder / name).read_text())]


def of_kind(found: list[Any], kind: str) -> dict[str, Any]:
    return {document["metadata"]["name"]: document for document in found if document["kind"] == kind}
