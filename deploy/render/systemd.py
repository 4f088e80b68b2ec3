"""systemd: per machine a folder to copy there, with its home, its unit and a script that installs both."""

import shlex
from dataclasses import replace
from importlib.metadata import version
from pathlib import PurePosixPath

from deploy import belongings
from deploy.belongings import Belongings
from deploy.hosts import python_of
from deploy.inventory import Inventory, Machine, Node
from deploy.render.output import File, absolute, fill, operator, package, secret
from fedsim.errors import ConfigError

USER = "fedsim"
REMARK = "The federation under systemd: `fedsim deploy status|run|logs --dir`. systemctl starts and stops it."
ENVIRONMENT, HOMES = "/opt/fedsim", "/var/lib/fedsim"  # where the inventory says nothing
NO_DEVICES = "PrivateDevices=yes"
GPU_DEVICES = "DevicePolicy=closed\n" + "\n".join(
    f"DeviceAllow=char-{group} rw" for group in ("nvidia", "nvidia-frontend", "nvidia-uvm", "nvidia-caps")
)
REGISTER = """\
ExecStartPost=/bin/sh -c '"$$0" -m deploy.office ready && exec "$$0" -m deploy.office register < nodes.json' {}
"""


def files(inventory: Inventory) -> dict[str, File]:
    server = belongings.of_server(inventory)
    keys = {"nodes.json": belongings.as_json(belongings.public_keys(inventory))}
    machines = {"server": _settled(inventory, "server", inventory.server)}
    written = _folder("server", machines["server"], Belongings(server.private, {**server.public, **keys}), NO_DEVICES)
    for node in inventory.nodes:
        machines[node.name] = _settled(inventory, node.name, node)
        devices = NO_DEVICES if node.device == "cpu" else GPU_DEVICES
        written |= _folder(node.name, machines[node.name], belongings.of_node(inventory, node), devices)
    return {
        "README.txt": fill("systemd.txt", name=inventory.name, machines=_commands(inventory), user=USER),
        "federation.toml": operator(inventory, {n: _reached(m) for n, m in machines.items()}, REMARK),
        **written,
    }


def unit(name: str) -> str:
    return "fedsim-server.service" if name == "server" else f"fedsim-node-{name}.service"


def _folder(name: str, machine: Machine, own: Belongings, devices: str) -> dict[str, File]:
    service = fill(
        "unit.service",
        what="server" if name == "server" else f"node {name}",
        user=USER,
        python=_quoted(machine.python),  # the only word of a command where $ means itself
        environment=_quoted(f"HOME={machine.home}"),
        home=_quoted(machine.home),
        home_argument=_quoted(machine.home, command=True),
        home_plain=machine.home.replace("%", "%%"),
        register=REGISTER.format(_quoted(machine.python, command=True)) if name == "server" else "",
        devices=devices,
    )
    script = fill(
        "install.sh",
        user=USER,
        python=shlex.quote(machine.python),
        environment=shlex.quote(str(PurePosixPath(machine.python).parent.parent)),
        version=version("fedsim"),
        home=shlex.quote(machine.home),
        unit=unit(name),
    )
    kept = {f"home/{file}": secret(content) for file, content in own.private.items()}
    kept |= {f"home/{file}": File.of(content) for file, content in own.public.items()}
    files = {unit(name): service, "install.sh": script, **kept, **package()}
    return {f"{name}/{path}": file for path, file in files.items()}


def _settled(inventory: Inventory, name: str, machine: Machine) -> Machine:
    """With paths that do not depend on who logs in."""
    home = absolute(machine.home or f"{HOMES}/{inventory.name}/{name}", f"home of {name}")
    python = absolute(python_of(replace(machine, python=machine.python or ENVIRONMENT)), f"python of {name}")
    if set(python) & set("\"'\\"):
        raise ConfigError(
            f"python of {name} = {python!r}: systemd starts no program with quotes or backslashes in its path"
        )
    return replace(machine, home=home, python=python)


def _reached(machine: Machine) -> Machine:
    """As the user whom the home belongs to."""
    become = f"sudo -n -u {USER}"
    if machine.ssh:
        return replace(machine, ssh=f"{machine.ssh} {become}")
    return replace(machine, via=f"{machine.via} {become}".strip())


def _commands(inventory: Inventory) -> str:
    """How each folder gets to its machine, and what to do there."""
    lines = []
    machines: list[tuple[str, Machine | Node]] = [("server", inventory.server), *((n.name, n) for n in inventory.nodes)]
    for name, machine in machines:
        if machine.ssh:
            lines.append(f"  tar -cf - {name} | ssh {machine.ssh} 'umask 077; tar -xpf -'")
            lines.append(f"  ssh -t {machine.ssh} 'sudo sh {name}/install.sh && rm -r {name}'")
        else:
            where = f"  (on the machine behind `{machine.via}`)" if machine.via else ""
            lines.append(f"  sudo sh {name}/install.sh{where}")
    return "\n".join(lines)


def _quoted(path: str, command: bool = False) -> str:
    """One word of a unit file; in a command $ would be a variable."""
    text = path.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{text.replace("$", "$$") if command else text}"'
