"""What `fedsim deploy render` writes: accepted by the tools it is for, complete, and nobody gets another one's key.

Tools that pip cannot install are found on the PATH. Without one a test is skipped with a reason; under CI it fails.
"""

import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
import tomllib
import zipfile
from base64 import b64decode, b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from deploy import pki
from deploy.inventory import FILE, Inventory, read
from deploy.render import KINDS, render
from deploy.render.yaml import dump
from deploy.setup import init
from fedsim.cli import main
from fedsim.errors import ConfigError, FedsimError

ROOT = Path(__file__).parents[2]
DATA = '/srv/silo $HOME: "x" é/%h.npz'  # everything that some format gives a meaning
NODES = ("no", "7", "gpus", "last")  # the first two are no text to YAML
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


def make(folder: Path, **changes: str) -> Inventory:
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


@pytest.fixture(scope="module")
def inventory(tmp_path_factory: pytest.TempPathFactory) -> Inventory:
    return make(tmp_path_factory.mktemp("federation"))


@pytest.fixture(scope="module")
def rendered(inventory: Inventory, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("rendered")
    for kind in KINDS:
        written = list(render(inventory, kind, folder / kind))
        assert all(path.is_file() for path in written)
    return {kind: folder / kind for kind in KINDS}


def tool(name: str, source: str) -> str:
    found = shutil.which(name, path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if found is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(f"{name} is not installed ({source})")
    return str(found)


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


# The tools these files are for


def composed(folder: Path) -> Any:
    """As Docker Compose understands it."""
    plugin = shutil.which("docker") and subprocess.run(
        ["docker", "compose", "version"], capture_output=True, check=False
    )
    command = (
        ["docker", "compose"] if plugin and plugin.returncode == 0 else [tool("docker-compose", ".ci/docker-compose")]
    )
    return json.loads(run(*command, "config", "--format", "json", cwd=folder))


def test_docker_compose_accepts_it_and_reads_what_was_meant(rendered: dict[str, Path], inventory: Inventory) -> None:
    found = composed(rendered["compose"])
    services = found["services"]
    assert set(services) == {"server", "register_keys", *NODES}
    (data,) = [mount for mount in services["no"]["volumes"] if mount["target"].startswith("/data")]
    assert data["source"].replace("$$", "$") == DATA  # `config` writes $ as it must be written
    assert data["read_only"] is True
    assert found["secrets"]["7"]["file"] == str(rendered["compose"] / "secrets/nodes/7.key")
    assert services["server"]["networks"]["federation"]["aliases"] == [pki.INSIDE]
    assert "ports" not in services["server"]  # open to its own network alone
    for name in ("server", *NODES):
        service = services[name]
        assert service["healthcheck"]["test"]
        assert service["restart"] == "unless-stopped"
        assert {(v["source"], v["target"]) for v in service["volumes"] if v["type"] == "volume"} == {
            (name, "/var/lib/fedsim")
        }
        assert [secret["source"] for secret in service["secrets"]] == [name]
    assert "secrets" not in services["register_keys"]


def test_the_compose_file_follows_the_compose_specification(rendered: dict[str, Path]) -> None:
    check = tool("check-jsonschema", "the dev extra")
    run(check, "--builtin-schema", "vendor.compose-spec", rendered["compose"] / "compose.yaml")


@pytest.mark.parametrize("kind", ["compose", "kubernetes"])
def test_hadolint_finds_nothing_in_the_dockerfile(rendered: dict[str, Path], kind: str) -> None:
    assert run(tool("hadolint", "the dev extra, on x86"), rendered[kind] / "Dockerfile") == ""
    ignored = (rendered[kind] / ".dockerignore").read_text().split()
    assert ignored == ["*", "!constraints.txt", "!fedsim-*.whl"]  # no key can get into an image


@pytest.mark.parametrize("name", ["server/fedsim-server", "no/fedsim-node-no"])
def test_systemd_accepts_the_units(rendered: dict[str, Path], name: str) -> None:
    unit = rendered["systemd"] / f"{name}.service"
    analyze = tool("systemd-analyze", "Debian's systemd")
    assert run(analyze, "verify", "--man=no", unit) == ""  # it also looks for the program, in a folder with odd letters
    run(analyze, "security", "--offline=true", "--threshold=30", unit)  # of 100: how much a unit could do


@pytest.mark.parametrize("version", ["1.29", "1.37"])
def test_kubernetes_schemas_accept_every_document(rendered: dict[str, Path], version: str) -> None:
    found = documents(rendered["kubernetes"])
    for document in found:
        kubernetes_validate.validate(document, version, strict=True)
    assert {document["kind"] for document in found} == {
        "Namespace",
        "ConfigMap",
        "Secret",
        "NetworkPolicy",
        "Service",
        "StatefulSet",
    }


def test_a_schema_check_would_notice_a_mistake(rendered: dict[str, Path]) -> None:
    server = of_kind(documents(rendered["kubernetes"]), "StatefulSet")["fedsim-server"]
    server["spec"]["template"]["spec"]["container"] = []
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(server, "1.37", strict=True)


def test_the_install_scripts_are_shell(rendered: dict[str, Path], inventory: Inventory) -> None:
    for name in ("server", *NODES):
        run("sh", "-n", rendered["systemd"] / name / "install.sh")
    script = (rendered["systemd"] / "server" / "install.sh").read_text()
    home = next(line for line in script.splitlines() if line.startswith("home="))
    assert run("sh", "-c", f'{home}; printf %s "$home"') == inventory.server.home


# Who gets what


def private_keys(inventory: Inventory) -> dict[str, bytes]:
    keys = {"authority": inventory.secrets / pki.CA_KEY, "server": inventory.secrets / pki.SERVER_KEY}
    keys |= {name: pki.node_key(inventory.secrets, name) for name in NODES}
    return {name: path.read_bytes() for name, path in keys.items()}


@pytest.mark.parametrize("kind", KINDS)
def test_files_with_a_private_key_are_for_their_owner_and_the_authoritys_is_in_none(
    rendered: dict[str, Path], inventory: Inventory, kind: str
) -> None:
    keys, held = private_keys(inventory), set[str]()
    for path in (p for p in rendered[kind].rglob("*") if p.is_file()):
        content = path.read_bytes()
        inside = {name for name, key in keys.items() if key in content or b64encode(key) in content}
        assert path.stat().st_mode & 0o777 == (0o600 if inside else 0o644), path
        assert ("PRIVATE KEY" in content.decode(errors="replace")) <= bool(inside), path
        held |= inside
    assert held == {"server", *NODES}
    assert (rendered[kind] / ".gitignore").read_text() == "*\n"


def test_a_machines_folder_holds_its_own_key_alone(rendered: dict[str, Path], inventory: Inventory) -> None:
    keys = private_keys(inventory)
    for name in ("server", *NODES):
        contents = [path.read_bytes() for path in (rendered["systemd"] / name).rglob("*") if path.is_file()]
        assert {key for key, pem in keys.items() if any(pem in content for content in contents)} == {name}
        files = {path.name for path in (rendered["systemd"] / name / "home").iterdir()}
        server = {"server.json", "server.key", "server.crt", "ca.crt", "nodes.json"}
        assert files == (server if name == "server" else {"node.json", "node.key", "ca.crt"})


def test_a_pod_gets_its_own_key_alone(rendered: dict[str, Path], inventory: Inventory) -> None:
    keys, found = private_keys(inventory), documents(rendered["kubernetes"])
    secrets, sets = of_kind(found, "Secret"), of_kind(found, "StatefulSet")
    for name in ("server", *NODES):
        full = f"fedsim-{name}" if name == "server" else f"fedsim-node-{name}"
        assert [b64decode(value) for value in secrets[full]["data"].values()] == [keys[name]]
        volumes = sets[full]["spec"]["template"]["spec"]["volumes"]
        assert [v["secret"]["secretName"] for v in volumes if "secret" in v] == [full]


# What they say


def test_containers_call_the_server_by_a_name_of_its_certificate(
    rendered: dict[str, Path], inventory: Inventory
) -> None:
    names = pki.names_of(pki.read_certificate(rendered["compose"] / "config/server.crt"))
    maps = of_kind(documents(rendered["kubernetes"]), "ConfigMap")
    for node in inventory.nodes:
        texts = (
            (rendered["compose"] / f"config/nodes/{node.name}.json").read_text(),
            maps[f"fedsim-node-{node.name}"]["data"]["node.json"],
        )
        for about in map(json.loads, texts):
            host, _, port = about["superlink"].rpartition(":")
            assert host in names
            assert (int(port), about["port"]) == (9392, node.port)
            assert about["gpu"] == ""  # what it sees is what it was given
            assert about["config"]["partition-id"] == node.partition_id
    assert json.loads(maps["fedsim-node-no"]["data"]["node.json"])["config"]["data"] == "/data/%h.npz"
    services = of_kind(documents(rendered["kubernetes"]), "Service")
    assert pki.INSIDE in services
    own = json.loads((rendered["systemd"] / "no/home/node.json").read_text())
    assert (own["superlink"], own["config"]["data"]) == ("192.0.2.1:9392", DATA)


def test_gpus_only_for_those_who_ask(rendered: dict[str, Path]) -> None:
    services = yaml.safe_load((rendered["compose"] / "compose.yaml").read_text())["services"]
    devices = {
        name: service["deploy"]["resources"]["reservations"]["devices"]
        for name, service in services.items()
        if "deploy" in service
    }
    nvidia = {"driver": "nvidia", "capabilities": ["gpu"]}
    assert devices == {"gpus": [{**nvidia, "device_ids": ["1", "3"]}], "last": [{**nvidia, "count": "all"}]}
    limits = {
        name: tree["spec"]["template"]["spec"]["containers"][0]["resources"].get("limits")
        for name, tree in of_kind(documents(rendered["kubernetes"]), "StatefulSet").items()
    }
    two = {"nvidia.com/gpu": 2}  # cuda:1 is the second of two
    assert {name: limit for name, limit in limits.items() if limit} == {
        "fedsim-node-gpus": two,
        "fedsim-node-last": two,
    }
    units = {name: next((rendered["systemd"] / name).glob("*.service")).read_text() for name in ("server", *NODES)}
    assert {name for name, text in units.items() if "PrivateDevices=yes" in text} == {"server", "no"}
    assert {name for name, text in units.items() if "DeviceAllow=char-nvidia-uvm rw" in text} == {"7", "gpus", "last"}


def test_only_nodes_reach_the_fleet_port_and_nobody_the_control_port(rendered: dict[str, Path]) -> None:
    found = documents(rendered["kubernetes"])
    rules = {
        policy["spec"]["podSelector"]["matchLabels"]["fedsim/role"]: policy["spec"]["ingress"]
        for policy in of_kind(found, "NetworkPolicy").values()
    }
    nodes = [{"podSelector": {"matchLabels": {"fedsim/role": "node"}}}]
    assert rules == {"server": [{"from": nodes, "ports": [{"protocol": "TCP", "port": 9392}]}], "node": []}
    roles = {
        name: tree["spec"]["template"]["metadata"]["labels"]["fedsim/role"]
        for name, tree in of_kind(found, "StatefulSet").items()
    }
    assert roles == {"fedsim-server": "server", **{f"fedsim-node-{name}": "node" for name in NODES}}


def test_pods_are_as_restricted_as_can_be(rendered: dict[str, Path]) -> None:
    for tree in of_kind(documents(rendered["kubernetes"]), "StatefulSet").values():
        pod = tree["spec"]["template"]["spec"]
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["containers"][0]["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert "readinessProbe" in pod["containers"][0]


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
        (wheel,) = folder.glob("fedsim-*.whl")
        inside = set(zipfile.ZipFile(wheel).namelist())
        assert {"deploy/agent.py", "deploy/render/templates/Dockerfile", "fedsim/client_app.py"} <= inside
        assert (folder / "constraints.txt").read_bytes() == (ROOT / "constraints.txt").read_bytes()


def test_every_gap_is_filled(rendered: dict[str, Path]) -> None:
    for path in (p for folder in rendered.values() for p in folder.rglob("README.txt")):
        assert "$" not in path.read_text()
    assert all(f"{name}/install.sh" in (rendered["systemd"] / "README.txt").read_text() for name in ("server", *NODES))


def test_rendering_again_takes_away_what_is_no_more(tmp_path: Path) -> None:
    (tmp_path / "federation").mkdir()
    before, out = make(tmp_path / "federation"), tmp_path / "out"
    list(render(before, "compose", out))
    (out / "mine.txt").write_text("kept")
    after = Inventory(before.name, before.server, before.nodes[:2], before.folder)
    list(render(after, "compose", out))
    assert sorted(path.name for path in (out / "secrets/nodes").iterdir()) == ["7.key", "no.key"]
    assert (out / "mine.txt").exists()
    assert set(yaml.safe_load((out / "compose.yaml").read_text())["volumes"]) == {"server", "7", "no"}


# What is refused


def test_another_kind_is_refused_with_the_choices(
    inventory: Inventory, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["deploy", "render", "nomad"])
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert all(word in said for word in ("nomad", *KINDS))
    with pytest.raises(ConfigError, match=r"'compos'.*Did you mean 'compose'.*kubernetes, systemd"):
        list(render(inventory, "compos", tmp_path / "out"))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("kind", "changes", "told"),
    [
        ("compose", {"data": "silo.npz"}, "data of node no = 'silo.npz' must be an absolute path"),
        ("kubernetes", {"data": "~/silo.npz"}, "data of node no = '~/silo.npz' must be an absolute path"),
        ("systemd", {"home": ".fedsim/server"}, "home of server = '.fedsim/server' must be an absolute path"),
        ("systemd", {"python": "venv"}, "python of server = 'venv/bin/python' must be an absolute path"),
        ("systemd", {"python": "/opt/'x'"}, "no program with quotes"),
        ("systemd", {"home": "/srv/a\nb"}, "printable"),
    ],
)
def test_a_path_that_means_nothing_elsewhere_is_refused(
    tmp_path: Path, kind: str, changes: dict[str, str], told: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        list(render(make(tmp_path, **changes), kind, tmp_path / "out"))
    assert told in str(refused.value)
    assert not (tmp_path / "out").exists()


def test_a_name_that_kubernetes_would_refuse_is_refused(inventory: Inventory, tmp_path: Path) -> None:
    wrong = Inventory("trial-", inventory.server, inventory.nodes, inventory.folder)
    with pytest.raises(ConfigError, match="'trial-' does not suit Kubernetes"):
        list(render(wrong, "kubernetes", tmp_path))


def test_keys_and_certificates_must_be_there_and_fit(tmp_path: Path) -> None:
    inventory = make(tmp_path)
    pki.node_key(inventory.secrets, "gpus").unlink()
    with pytest.raises(FedsimError, match=r"gpus\.key is missing: run `fedsim deploy init`"):
        list(render(inventory, "compose", tmp_path / "out"))
    list(init(tmp_path, "trial", "", 0, [], False))
    old = [name for name in pki.names_of(pki.read_certificate(inventory.secrets / pki.SERVER)) if name != pki.INSIDE]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pki, "INSIDE", "localhost")  # as certificates were made before containers had a name for it
        pki.issue_server(inventory.secrets, old)
    with pytest.raises(FedsimError, match="not valid for fedsim-server: `fedsim deploy init --rotate` renews it"):
        list(render(inventory, "compose", tmp_path / "out"))
    list(init(tmp_path, "trial", "", 0, [], rotate=True))
    assert list(render(inventory, "compose", tmp_path / "out"))


# YAML

TEXT = st.text(st.characters(categories=["L", "N", "P", "S"], include_characters=" \n"), max_size=20)
TREES = st.recursive(
    TEXT | st.integers() | st.booleans() | st.none() | st.sampled_from(["no", "~", "1e3", "0x1", "2026-01-01", "a: b"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
)


@given(TREES)
def test_yaml_says_what_was_meant(tree: Any) -> None:
    assert yaml.safe_load(dump(tree)) == tree


# For real


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


def exec_lines(unit: Path) -> dict[str, list[str]]:
    """The commands of a unit, as systemd takes them apart."""
    lines = (line.partition("=") for line in unit.read_text().splitlines() if line.startswith("Exec"))
    return {key: [w.replace("$$", "$").replace("%%", "%") for w in shlex.split(value)] for key, _, value in lines}


@pytest.fixture
def processes() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Ended as systemd does: the whole group, nodes first."""
    started: list[subprocess.Popen[bytes]] = []
    yield started
    for process in reversed(started):
        for sign in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(process.pid, sign)
                process.wait(20)
            except (ProcessLookupError, subprocess.TimeoutExpired):
                continue


@pytest.mark.system
def test_what_the_units_say_brings_a_server_and_a_node_online(
    tmp_path: Path, processes: list[subprocess.Popen[bytes]]
) -> None:
    fleet, control, port = free_ports(3)
    whole = make(tmp_path, fleet=fleet, control=control, node=port, data="")  # type: ignore[arg-type]
    text = (tmp_path / FILE).read_text().replace("192.0.2.1", "127.0.0.1").split('[[node]]\nname = "7"')[0]
    (tmp_path / FILE).write_text(text)
    list(init(tmp_path, "trial", "", 0, [], False))
    inventory = read(tmp_path / FILE)
    list(render(inventory, "systemd", tmp_path / "out"))
    homes = {"server": Path(whole.server.home), "no": Path(whole.nodes[0].home)}
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}

    def start(name: str) -> dict[str, list[str]]:
        shutil.copytree(tmp_path / "out" / name / "home", homes[name])  # what install.sh does
        commands = exec_lines(next((tmp_path / "out" / name).glob("*.service")))
        processes.append(
            subprocess.Popen(commands["ExecStart"], cwd=homes[name], env=environment, start_new_session=True)
        )
        return commands

    def desk(*command: str) -> list[Any]:
        done = subprocess.run(command, cwd=homes["server"], env=environment, capture_output=True, text=True, check=True)
        return [json.loads(line) for line in done.stdout.splitlines()]

    assert desk(*start("server")["ExecStartPost"]) == ["ready", {"registered": "no"}]
    start("no")
    deadline = time.monotonic() + 120
    while (found := desk(sys.executable, "-m", "deploy.office", "nodes"))[0]["status"] != "online":
        assert time.monotonic() < deadline, found
    assert [(node["name"], node["status"]) for node in found] == [("no", "online")]
    assert tomllib.loads((tmp_path / "out" / FILE).read_text())["server"]["home"] == whole.server.home
