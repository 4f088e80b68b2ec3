"""Helpers to write and change the home folder of a node or server, and to read what the doctor finds in it."""

import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

from fedsim.deploy.finding import Finding

VERSIONS = {name: version(name) for name in ("fedsim-flower", "flwr")}


def write(file: Path, values: dict[str, Any]) -> None:
    file.write_text(json.dumps(values))


def change(home: Path, **values: Any) -> None:
    """Changes keys of node.json or server.json; dashes of keys are written as underscores."""
    (file,) = home.glob("*.json")
    write(file, {**json.loads(file.read_text()), **{k.replace("_", "-"): v for k, v in values.items()}})


def the_problem(found: list[Finding], level: str = "problem") -> str:
    """The line of the only finding that is not ok."""
    (wrong,) = [finding for finding in found if finding.level != "ok"]
    assert wrong.level == level
    assert wrong.remedy
    assert "\n" not in str(wrong)
    return str(wrong)
