"""Files to write, and those that every way of running shares: fedsim itself, and an inventory to operate it with."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from string import Template

from deploy.install import build_wheel
from deploy.inventory import Inventory, Machine
from fedsim.errors import ConfigError

CONSTRAINTS = Path(__file__).parents[2] / "constraints.txt"


@dataclass(frozen=True)
class File:
    content: bytes
    private: bool = False
    owner: int | None = None  # who shall own it, where we may decide

    @classmethod
    def of(cls, content: str | bytes) -> "File":
        return cls(content.encode() if isinstance(content, str) else content)


def secret(content: bytes, owner: int | None = None) -> File:
    return File(content, private=True, owner=owner)


def fill(template: str, **values: object) -> File:
    """One of templates/ with its gaps filled."""
    return File.of(Template(_template(template)).substitute(values))


def package() -> dict[str, File]:
    """fedsim as a wheel, and the versions it was tested with."""
    wheel = build_wheel()
    return {wheel.name: File.of(wheel.read_bytes()), CONSTRAINTS.name: File.of(CONSTRAINTS.read_bytes())}


def image() -> dict[str, File]:
    """All that `docker build` needs."""
    return {
        **package(),
        "Dockerfile": File.of(_template("Dockerfile")),
        ".dockerignore": File.of(_template("dockerignore")),
    }


def operator(inventory: Inventory, machines: Mapping[str, Machine], remark: str) -> File:
    """An inventory that reaches the machines where they run now: for `fedsim deploy status|run|logs --dir`."""
    server = inventory.server
    lines = [f"# {remark}", f'name = "{inventory.name}"', "", "[server]", *_machine(server.host, machines["server"])]
    lines += [f"fleet-port = {server.fleet_port}", f"control-port = {server.control_port}"]
    for node in inventory.nodes:
        own = [f'name = "{node.name}"', f"partition-id = {node.partition_id}", f"port = {node.port}"]
        lines += ["", "[[node]]", *own, *_machine(node.host, machines[node.name])]
    return File.of("\n".join(lines) + "\n")


def absolute(path: str, whose: str) -> str:
    """A path that means the same wherever it is read."""
    if not path.startswith("/") or not path.isprintable():
        raise ConfigError(f"{whose} = {path!r} must be an absolute path of printable characters to be rendered")
    return path


def _machine(host: str, machine: Machine) -> list[str]:
    values = {
        "host": host,
        "ssh": machine.ssh,
        "via": machine.via,
        "python": machine.python,
        "home": machine.home,
    }
    return [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in values.items() if value]


@cache
def _template(name: str) -> str:
    return (files("deploy.render") / "templates" / name).read_text()
