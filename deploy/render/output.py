"""Rendered files, and those that every kind has: the wheel of fedsim, and an inventory to operate the federation with."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from string import Template

from fedsim.deploy import operators
from fedsim.deploy.install import SOURCE, build_wheel
from fedsim.deploy.inventory import Inventory, Machine, joined_template
from fedsim.errors import ConfigError

CONSTRAINTS = SOURCE / "constraints.txt"


@dataclass(frozen=True)
class File:
    """The content of a file to write; private: readable by its owner alone."""

    content: bytes
    private: bool = False
    owner: int | None = None  # user and group id, set if rendering runs as root

    @classmethod
    def of(cls, content: str | bytes) -> "File":
        return cls(content.encode() if isinstance(content, str) else content)


def secret(content: bytes, owner: int | None = None) -> File:
    return File(content, private=True, owner=owner)


def from_template(template: str, **values: object) -> File:
    """A file of templates/ with its $placeholders replaced."""
    return File.of(Template(_template(template)).substitute(values))


def package_files() -> dict[str, File]:
    """The wheel of fedsim, and the versions of its dependencies that it was tested with."""
    wheel = build_wheel()
    return {wheel.name: File.of(wheel.read_bytes()), CONSTRAINTS.name: File.of(CONSTRAINTS.read_bytes())}


def image_files() -> dict[str, File]:
    """Everything that `docker build` needs."""
    return {
        **package_files(),
        "Dockerfile": File.of(_template("Dockerfile")),
        ".dockerignore": File.of(_template("dockerignore")),
    }


def operator_inventory(inventory: Inventory, machines: Mapping[str, Machine], remark: str) -> File:
    """An inventory that reaches the rendered machines, for `fedsim deploy status|run|logs --dir`."""
    server = inventory.server
    key = json.dumps(str(operators.key_file(inventory)), ensure_ascii=False)  # stays where it is
    lines = [
        f"# {remark}",
        f'name = "{inventory.name}"',
        f"operator = {key}",
        "",
        "[server]",
        *_machine(server.host, machines["server"]),
    ]
    lines += [f"fleet-port = {server.fleet_port}", f"control-port = {server.control_port}"]
    for node in inventory.managed:
        own = [f'name = "{node.name}"', f"partition-id = {node.partition_id}", f"port = {node.port}"]
        lines += ["", "[[node]]", *own, *_machine(node.host, machines[node.name])]
    text = "\n".join(lines) + "\n"
    return File.of(text + "".join(joined_template(n.name, n.partition_id) for n in inventory.nodes if n.joined))


def absolute_path(path: str, what: str) -> str:
    """Returns `path` if it is absolute and printable, else raises ConfigError."""
    if not path.startswith("/") or not path.isprintable():
        raise ConfigError(f"{what} = {path!r} must be an absolute path of printable characters to be rendered")
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
    return (files("fedsim.deploy.render") / "templates" / name).read_text()
