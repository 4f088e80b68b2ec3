"""Rendered files, and those that every kind has: the wheel of fedsim, and an inventory to operate the federation with."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.resources import files
from string import Template

from fedsim.deploy import operators
from fedsim.deploy.install import build_wheel
from fedsim.deploy.inventory import Inventory, Machine, joined_template
from fedsim.errors import ConfigError

REQUIREMENTS = "requirements.txt"
BASE_IMAGE = "python:3.11-slim"
PINNED = re.compile(r"[a-z0-9][\w./:-]*@sha256:[0-9a-f]{64}")


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
    """The wheel of fedsim, and the versions and hashes of it and of everything that it needs."""
    wheel = build_wheel()
    content = wheel.read_bytes()
    own = f"./{wheel.name} \\\n    --hash=sha256:{sha256(content).hexdigest()}\n"
    return {wheel.name: File.of(content), REQUIREMENTS: File.of(_template(REQUIREMENTS) + own)}


def image_files(base: str) -> dict[str, File]:
    """Everything that `docker build` needs. `base`: the image that this one is made from, IMAGE@sha256:DIGEST; empty: the
    usual one, whatever it is when the image is built. Raises ConfigError for one without a digest."""
    if base and not PINNED.fullmatch(base):
        raise ConfigError(f"base image {base!r} is not pinned: give its digest, {BASE_IMAGE}@sha256:...")
    return {
        **package_files(),
        "Dockerfile": from_template("Dockerfile", base=base or BASE_IMAGE),
        ".dockerignore": File.of(_template("dockerignore")),
    }


def base_image_note(base: str) -> str:
    """For README.txt: whether the image that this one is made from is pinned, and how."""
    if base:
        return f"So is the image that it is built on:\n  {base}"
    return (
        f"The image that it is built on\n  is not: {BASE_IMAGE} may be another one tomorrow. Look up its digest\n"
        f"  (docker buildx imagetools inspect {BASE_IMAGE}) and render with --base-image {BASE_IMAGE}@sha256:..."
    )


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
