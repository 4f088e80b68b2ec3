"""Files for systemd: a folder for each machine, with its home folder, its unit and a script that installs both."""

import shlex
from dataclasses import replace
from pathlib import PurePosixPath

from fedsim.deploy import machine_files
from fedsim.deploy.hosts import python_path
from fedsim.deploy.inventory import Inventory, Machine
from fedsim.deploy.machine_files import MachineFiles
from fedsim.deploy.render.output import (
    File,
    absolute_path,
    from_template,
    operator_inventory,
    package_files,
    secret,
)
from fedsim.distribution import NAME, installed_version
from fedsim.errors import ConfigError

USER = "fedsim"
REMARK = "The federation under systemd: `fedsim deploy status|run|logs --dir`. systemctl starts and stops it."
ENVIRONMENT, HOMES = "/opt/fedsim", "/var/lib/fedsim"  # defaults of `python` and `home`
HIDDEN = ("/home/", "/root/", "/run/user/")  # by ProtectHome
NO_DEVICES = "PrivateDevices=yes"
GPU_DEVICES = "DevicePolicy=closed\n" + "\n".join(
    f"DeviceAllow=char-{group} rw" for group in ("nvidia", "nvidia-frontend", "nvidia-uvm", "nvidia-caps")
)
CONTROL = '"$$0" -m fedsim.deploy.control'
REGISTER_KEYS = f"ExecStartPost=/bin/sh -c '{CONTROL} ready && exec {CONTROL} register < nodes.json' {{}}\n"


def files(inventory: Inventory, base: str = "") -> dict[str, File]:
    if base:
        raise ConfigError("a base image is for containers: systemd runs no image")
    nodes = inventory.managed
    roles: list[tuple[str, Machine]] = [("server", inventory.server), *((node.name, node) for node in nodes)]
    machines = {name: _with_absolute_paths(inventory, name, machine) for name, machine in roles}
    server = machine_files.server_files(inventory)
    server.public["nodes.json"] = machine_files.public_keys(inventory).encode()
    package = package_files()
    written = _folder("server", machines["server"], server, NO_DEVICES, package)
    for node in nodes:
        devices = NO_DEVICES if node.device == "cpu" else GPU_DEVICES
        data = absolute_path(node.data, f"data of node {node.name}") if node.data else ""
        found = machine_files.node_files(inventory, node)
        written |= _folder(node.name, machines[node.name], found, devices, package, data)
    reached = {name: _as_service_user(machine) for name, machine in machines.items()}
    return {
        "README.txt": from_template("systemd.txt", name=inventory.name, machines=_install_commands(roles), user=USER),
        "federation.toml": operator_inventory(inventory, reached, REMARK),
        **written,
    }


def unit(name: str) -> str:
    return "fedsim-server.service" if name == "server" else f"fedsim-node-{name}.service"


def _folder(
    name: str, machine: Machine, files: MachineFiles, devices: str, package: dict[str, File], data: str = ""
) -> dict[str, File]:
    service = from_template(
        "unit.service",
        what="server" if name == "server" else f"node {name}",
        user=USER,
        python=_quoted(machine.python),  # the only word of a command where $ means itself
        environment=_quoted(f"HOME={machine.home}"),
        home=_quoted(machine.home),
        home_argument=_quoted(machine.home, command=True),
        home_plain=machine.home.replace("%", "%%"),
        register=REGISTER_KEYS.format(_quoted(machine.python, command=True)) if name == "server" else "",
        devices=devices,
        homes=_homes(machine.home, [str(PurePosixPath(machine.python).parent.parent), *([data] if data else [])]),
    )
    script = from_template(
        "install.sh",
        user=USER,
        python=shlex.quote(machine.python),
        environment=shlex.quote(str(PurePosixPath(machine.python).parent.parent)),
        distribution=NAME,
        wheel=NAME.replace("-", "_"),
        version=installed_version(),
        home=shlex.quote(machine.home),
        unit=unit(name),
    )
    home = {f"home/{file}": secret(content) for file, content in files.private.items()}
    home |= {f"home/{file}": File.of(content) for file, content in files.public.items()}
    folder = {unit(name): service, "install.sh": script, **home, **package}
    return {f"{name}/{path}": file for path, file in folder.items()}


def _with_absolute_paths(inventory: Inventory, name: str, machine: Machine) -> Machine:
    """With defaults for `home` and `python` that do not depend on a login folder; raises ConfigError for relative paths."""
    home = absolute_path(machine.home or f"{HOMES}/{inventory.name}/{name}", f"home of {name}")
    python = absolute_path(python_path(replace(machine, python=machine.python or ENVIRONMENT)), f"python of {name}")
    if set(python) & set("\"'\\"):
        raise ConfigError(
            f"python of {name} = {python!r}: systemd starts no program with quotes or backslashes in its path"
        )
    return replace(machine, home=home, python=python)


def _as_service_user(machine: Machine) -> Machine:
    """Runs commands as the user who owns the home folder."""
    become = f"sudo -n -u {USER}"
    if machine.ssh:
        return replace(machine, ssh=f"{machine.ssh} {become}")
    return replace(machine, via=f"{machine.via} {become}".strip())


def _homes(home: str, readable: list[str]) -> str:
    """Hides the home folders of people, but what the service needs of them: its own home folder, its Python and its data."""
    own = [("BindPaths", home), *(("BindReadOnlyPaths", path) for path in readable)]
    needed = [(key, path) for key, path in own if f"{path}/".startswith(HIDDEN)]
    if not needed:
        return "ProtectHome=yes"
    return "\n".join(
        ["ProtectHome=tmpfs", *(f"{key}={_quoted(path.replace(':', chr(92) + ':'))}" for key, path in needed)]
    )


def _install_commands(machines: list[tuple[str, Machine]]) -> str:
    """The commands that copy each folder to its machine and install it there."""
    lines = []
    for name, machine in machines:
        if machine.ssh:
            lines.append(f"  tar -cf - {name} | ssh {machine.ssh} 'umask 077; tar -xpf -'")
            lines.append(f"  ssh -t {machine.ssh} 'sudo sh {name}/install.sh && rm -r {name}'")
        else:
            where = f"  (on the machine behind `{machine.via}`)" if machine.via else ""
            lines.append(f"  sudo sh {name}/install.sh{where}")
    return "\n".join(lines)


def _quoted(path: str, command: bool = False) -> str:
    """One word of a unit file; in a command every $ is doubled, which systemd would take for a variable."""
    text = path.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{text.replace("$", "$$") if command else text}"'
