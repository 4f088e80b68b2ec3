"""The doctor on real files, sockets and certificates: each trouble is one line with its remedy, health is silence."""

import json
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from deploy import doctor
from deploy.checks import machine, network, software
from deploy.finding import Finding
from fedsim.cli import main

from ..system.flower import Federation, await_port, free_port
from .authority import DAY, Authority, store

VERSIONS = {name: version(name) for name in ("fedsim", "flwr")}


def write(file: Path, values: dict[str, Any]) -> None:
    file.write_text(json.dumps(values))


def change(home: Path, **values: Any) -> None:
    """Changes keys of the home's file; dashes are written as underscores."""
    (file,) = home.glob("*.json")
    write(file, {**json.loads(file.read_text()), **{k.replace("_", "-"): v for k, v in values.items()}})


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority.new()


@pytest.fixture
def node(tmp_path: Path, authority: Authority) -> Path:
    """A node with nothing wrong."""
    home = tmp_path / "node"
    home.mkdir()
    authority.publish(home / "ca.crt")
    store(home / "node.key", ec.generate_private_key(ec.SECP384R1()), ssh=True)
    x, y = np.zeros((8, 4, 4), np.uint8), np.arange(8) % 2
    np.savez(home / "silo.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    config = {"partition-id": 0, "data": "silo.npz", "device": "cpu", "state-dir": "state"}
    about = {"role": "node", "name": "hospital-a", "superlink": "127.0.0.1:9092", "ca": "ca.crt", "key": "node.key"}
    write(home / "node.json", {**about, "port": free_port(), "config": config, "versions": VERSIONS})
    return home


@pytest.fixture
def server(tmp_path: Path, authority: Authority) -> Path:
    """A server with nothing wrong."""
    home = tmp_path / "server"
    home.mkdir()
    authority.publish(home / "ca.crt")
    store(home / "server.key", authority.issue(home / "server.crt", ["localhost", "127.0.0.1"]))
    about = {"role": "server", "name": "wards", "host": "127.0.0.1", "ca": "ca.crt", "certificate": "server.crt"}
    ports = {"fleet-port": free_port(), "control-port": free_port()}
    write(home / "server.json", {**about, **ports, "key": "server.key", "versions": VERSIONS})
    return home


def the_problem(found: list[Finding], level: str = "problem") -> str:
    """The line of the only finding that is not ok."""
    (wrong,) = [finding for finding in found if finding.level != "ok"]
    assert wrong.level == level
    assert wrong.remedy
    assert "\n" not in str(wrong)
    return str(wrong)


def test_nothing_wrong(node: Path, server: Path) -> None:
    for home in (node, server):
        found = doctor.examine(home, reference=time.time())
        assert [str(finding) for finding in found if finding.level != "ok"] == []
    told = "\n".join(map(str, doctor.examine(node)))
    assert "silo.npz holds 8 training and 8 test samples of 2 classes" in told
    assert f"flwr: {VERSIONS['flwr']}" in told


def test_a_port_in_use(node: Path, server: Path) -> None:
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        change(node, port=port)
        change(server, fleet_port=port)
        assert f"port {port} of this machine is in use" in the_problem(doctor.examine(node))
        assert f"fleet-port {port}" in the_problem(doctor.examine(server))
        assert all(finding.level == "ok" for finding in doctor.examine(server, running=True))


def test_only_the_address_that_is_listened_at_matters(server: Path) -> None:
    with socket.create_server(("127.0.0.2", 0)) as taken:
        change(server, fleet_port=taken.getsockname()[1])
        assert "in use" in the_problem(doctor.examine(server))
        change(server, bind="127.0.0.1")
        assert all(finding.level == "ok" for finding in doctor.examine(server))
    change(server, bind="192.0.2.1")
    assert "nothing can listen at 192.0.2.1:" in the_problem(doctor.examine(server))


@pytest.mark.parametrize(("ahead", "told"), [(6, "6.0 s ahead of"), (-7, "7.0 s behind")])
def test_a_skewed_clock(node: Path, ahead: float, told: str) -> None:
    line = the_problem(doctor.examine(node, reference=1000.0, here=1000.0 + ahead))
    assert told in line
    assert "more than 5 s ahead or 305 s behind" in line


def test_wrong_versions(node: Path) -> None:
    change(node, versions={**VERSIONS, "flwr": "1.38.0"})
    line = the_problem(doctor.examine(node))
    assert f"{VERSIONS['flwr']} is installed" in line
    assert "pip install 'flwr==1.38.0'" in line
    change(node, versions={"no-such-package": "1"})
    assert "it is not installed" in the_problem(doctor.examine(node))


def test_missing_data(node: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (node / "silo.npz").unlink()
    monkeypatch.chdir(node)
    line = the_problem(doctor.examine(Path(".")))
    assert f"{node / 'silo.npz'} is not there; expected an npz file" in line


def test_data_with_a_missing_array(node: Path) -> None:
    np.savez(node / "silo.npz", x_train=np.zeros((2, 3)))
    assert "silo.npz lacks x_test, y_train, y_test" in the_problem(doctor.examine(node))


def test_a_node_that_is_nobody(node: Path) -> None:
    change(node, config={"data": "silo.npz", "device": "cpu"})
    assert "node.json says no partition-id" in the_problem(doctor.examine(node))


def test_a_device_that_is_not_there(node: Path) -> None:
    config = json.loads((node / "node.json").read_text())["config"]
    change(node, config={**config, "device": "cuda:99"})
    assert "cuda:99 was asked for" in the_problem(doctor.examine(node))
    change(node, config={**config, "device": "tpu"})
    assert "unknown device 'tpu'" in the_problem(doctor.examine(node))


def test_a_key_others_can_read(node: Path) -> None:
    (node / "node.key").chmod(0o644)
    line = the_problem(doctor.examine(node))
    assert f"{node / 'node.key'} can be read by others (mode 644)" in line
    assert f"chmod 600 {node / 'node.key'}" in line


def test_a_key_that_is_no_key_of_a_node(node: Path) -> None:
    key = node / "node.key"
    store(key, ec.generate_private_key(ec.SECP384R1()))  # PEM, which a SuperNode does not take
    assert "is not what Flower's SuperNode takes" in the_problem(doctor.examine(node))
    other = ed25519.Ed25519PrivateKey.generate()
    key.write_bytes(other.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
    assert "is not what Flower's SuperNode takes" in the_problem(doctor.examine(node))
    key.write_text("no key")
    line = the_problem(doctor.examine(node))
    assert "is no private key" in line
    key.unlink()
    assert "node.key cannot be read: No such file" in the_problem(doctor.examine(node))


def test_an_expired_certificate(server: Path, authority: Authority) -> None:
    key = authority.issue(server / "server.crt", ["127.0.0.1"], first=-2 * DAY, last=-DAY)
    store(server / "server.key", key)
    assert "server.crt expired on 20" in the_problem(doctor.examine(server))


def test_a_certificate_that_expires_soon(server: Path, authority: Authority) -> None:
    store(server / "server.key", authority.issue(server / "server.crt", ["127.0.0.1"], last=10.5 * DAY))
    assert "in 10 days" in the_problem(doctor.examine(server), "warning")


def test_a_certificate_from_the_future(server: Path, authority: Authority) -> None:
    store(server / "server.key", authority.issue(server / "server.crt", ["127.0.0.1"], first=DAY))
    assert "this clock says" in the_problem(doctor.examine(server))


def test_another_ca(server: Path) -> None:
    Authority.new().publish(server / "ca.crt")  # of the same name
    assert f"is not signed by the CA {server / 'ca.crt'}" in the_problem(doctor.examine(server))


def test_a_changed_certificate(server: Path) -> None:
    """One bit of the signature: it still reads as a certificate, and no longer holds."""
    content = bytearray(ssl.PEM_cert_to_DER_cert((server / "server.crt").read_text()))
    content[-1] ^= 1
    (server / "server.crt").write_text(ssl.DER_cert_to_PEM_cert(bytes(content)))
    assert "is not signed by the CA" in the_problem(doctor.examine(server))


def test_a_certificate_for_another_host_or_key(server: Path, authority: Authority) -> None:
    store(server / "server.key", authority.issue(server / "server.crt", ["10.0.0.1", "far.example"]))
    assert "server.crt is for far.example, 10.0.0.1, not for 127.0.0.1" in the_problem(doctor.examine(server))
    authority.issue(server / "server.crt", ["127.0.0.1"])
    assert "does not belong to the key" in the_problem(doctor.examine(server))


def test_a_ca_that_is_none(node: Path, authority: Authority) -> None:
    authority.issue(node / "ca.crt", ["127.0.0.1"])
    assert "ca.crt is no certificate of a CA" in the_problem(doctor.examine(node))
    (node / "ca.crt").write_text("nothing")
    assert "ca.crt is no certificate in PEM format" in the_problem(doctor.examine(node))


def test_a_host_that_is_elsewhere(server: Path, authority: Authority) -> None:
    store(server / "server.key", authority.issue(server / "server.crt", ["192.0.2.1", "no-such-host.invalid"]))
    change(server, host="192.0.2.1")
    assert "192.0.2.1) is no address of this machine" in the_problem(doctor.examine(server), "warning")
    change(server, host="no-such-host.invalid")
    assert "no-such-host.invalid cannot be resolved" in the_problem(doctor.examine(server))


@contextmanager
def listening(home: Path | None) -> Iterator[str]:
    """A server that takes one connection after the other; with the certificate in `home`, or in plain text."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    if home is not None:
        context.load_cert_chain(home / "server.crt", home / "server.key")

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return  # closed: the test is over
            with connection:
                try:
                    if home is None:
                        connection.recv(10)
                        connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                    else:
                        context.wrap_socket(connection, server_side=True).close()
                except OSError:
                    pass  # the doctor hung up, as it should on a bad certificate

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
    thread.join()


def test_the_server_proves_itself(node: Path, server: Path, authority: Authority) -> None:
    with listening(server) as address:
        change(node, superlink=address)
        assert all(finding.level == "ok" for finding in doctor.examine(node, reach=True))
        Authority.new().publish(node / "ca.crt")
        line = the_problem(doctor.examine(node, reach=True))
        assert f"the certificate of {address} is refused" in line
        assert str(node / "ca.crt") in line
    store(server / "server.key", authority.issue(server / "server.crt", ["10.0.0.1"]))
    authority.publish(node / "ca.crt")
    with listening(server) as address:
        change(node, superlink=address)
        assert "IP address mismatch" in the_problem(doctor.examine(node, reach=True))


def test_a_server_in_plain_text(node: Path) -> None:
    with listening(None) as address:
        change(node, superlink=address)
        assert f"{address} does not speak TLS" in the_problem(doctor.examine(node, reach=True))


def test_an_unreachable_server(node: Path) -> None:
    port = free_port()
    change(node, superlink=f"127.0.0.1:{port}")
    assert f"nothing listens at 127.0.0.1:{port}" in the_problem(doctor.examine(node, reach=True))
    change(node, superlink="no-such-host.invalid:9092")
    assert "no-such-host.invalid cannot be resolved" in the_problem(doctor.examine(node, reach=True))
    change(node, superlink="10.0.0.1")
    assert "write it as HOST:PORT" in the_problem(doctor.examine(node, reach=True))


def test_a_server_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A full backlog takes no further connection: the attempt waits until its time is over."""
    monkeypatch.setattr(network, "PATIENCE", 0.3)
    with socket.socket() as silent, socket.socket() as first, socket.socket() as second:
        silent.bind(("127.0.0.1", 0))
        silent.listen(0)
        for waiting in (first, second):
            waiting.setblocking(False)
            waiting.connect_ex(silent.getsockname())
        finding = network.reachable(f"127.0.0.1:{silent.getsockname()[1]}")
    assert "did not answer within" in str(finding)
    assert "firewall" in finding.remedy


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, "holds neither of node.json and server.json"),
        ("{", "node.json cannot be read as JSON"),
        ("[]", "must hold one JSON object"),
        ('{"role": "node", "name": "a"}', "node.json lacks superlink, ca, key, port, config, versions"),
    ],
)
def test_a_home_that_says_nothing(content: str | None, told: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "node.json").write_text(content)
    assert told in the_problem(doctor.examine(tmp_path))


@pytest.mark.parametrize(("key", "value"), [("port", "many"), ("versions", 3), ("port", 70_000)])
def test_a_home_with_a_wrong_value(key: str, value: Any, node: Path) -> None:
    change(node, **{key: value})
    assert str(value) in the_problem(doctor.examine(node))


def test_disks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    assert machine.disk("state", tmp_path / "not" / "yet" / "there").level == "ok"
    refused = machine.disk("state", tmp_path / "file" / "state")
    assert (refused.level, f"{tmp_path / 'file' / 'state'} cannot be written" in refused.told) == ("problem", True)
    monkeypatch.setattr(machine, "LITTLE", float("inf"))
    assert machine.disk("state", tmp_path).level == "warning"
    monkeypatch.setattr(machine, "TOO_LITTLE", float("inf"))
    assert machine.disk("state", tmp_path).level == "problem"


def test_gpus_that_torch_does_not_see(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "nvidia-smi"
    listed = "".join(f"GPU {i}: Test\n" for i in range(99))
    tool.write_text(f"#!/bin/sh\nif [ \"$1\" = -L ]; then printf '{listed}'; else echo 'CUDA Version: 1.0'; fi\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    found = machine.gpus()
    assert found.level == "warning"
    assert "nvidia-smi sees 99, torch" in found.told


@pytest.mark.parametrize(
    ("built", "count", "newest", "hidden", "told"),
    [
        ("13.0", 0, "", None, "lists none either"),
        (None, 1, "12.4", None, "built without CUDA"),
        ("13.0", 1, "12.4", "0", "the driver runs CUDA 12.4 at most, torch is built for 13.0"),
        ("9.2", 2, "12.4", "1", "CUDA_VISIBLE_DEVICES=1 hides the others"),
        ("9.2", 1, "12.4", None, "does not answer"),
    ],
)
def test_why_torch_sees_no_gpu(built: str | None, count: int, newest: str, hidden: str | None, told: str) -> None:
    assert told in machine._blindness(built, count, newest, hidden)[0]


def test_this_machine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "pets" / "train").mkdir(parents=True)
    (tmp_path / "wards.npz").touch()
    port = free_port()
    assert main(["doctor", "--data-root", str(tmp_path), "--port", str(port)]) == 0
    told = capsys.readouterr().out
    assert "wards from wards.npz, pets from pets" in told
    assert f"port {port} is free" in told
    for package in ("flwr", "torch", "ray", "grpcio", "numpy"):
        assert f"ok       {package}: {version(package)}" in told


def test_packages_that_do_not_fit() -> None:
    need = software.Requirement("numpy>=99")
    assert f"{version('numpy')} is installed, but fedsim needs numpy >=99" in str(software._fits(need, "fedsim"))


def test_the_command_tells_the_same_as_data_and_exits_with_1(node: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["doctor", "--home", str(node), "--now", str(time.time() - 100_000)]
    assert main(arguments) == 1
    lines = capsys.readouterr().out.splitlines()
    assert main([*arguments, "--json"]) == 1
    data = json.loads(capsys.readouterr().out)
    assert [line.split()[0] for line in lines] == [entry["level"] for entry in data]
    (wrong,) = [entry for entry in data if entry["level"] == "problem"]
    assert wrong["what"] == "clock"
    assert set(wrong) == {"level", "what", "told", "remedy"}


@pytest.mark.parametrize(
    "arguments", [["--home", "x", "--deep"], ["--home", "x", "--reach", "a:1"], ["--running"], ["--reach"]]
)
def test_options_that_do_not_go_together(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", *arguments]) == 2
    assert "--home" in capsys.readouterr().err


@pytest.mark.system
def test_a_real_superlink(server: Path, tmp_path: Path) -> None:
    """gRPC and HTTP, both behind the federation's certificate."""
    about = json.loads((server / "server.json").read_text())
    files = ["--ssl-certfile", server / "server.crt", "--ssl-keyfile", server / "server.key"]
    ports = ["--fleet-api-address", f"127.0.0.1:{about['fleet-port']}", "--port", about["control-port"]]
    federation = Federation(tmp_path, 0)
    with ExitStack() as stack:
        stack.push(federation)  # which ends what it has spawned
        link = ["flower-superlink", *files, "--ssl-ca-certfile", server / "ca.crt", *ports]
        federation.spawn("secured", [str(part) for part in link])
        for port in (about["fleet-port"], about["control-port"]):
            await_port(port)
            assert network.reachable(f"127.0.0.1:{port}", server / "ca.crt").level == "ok"
        assert all(finding.level == "ok" for finding in doctor.examine(server, running=True, reach=True))
        assert f"fleet-port {about['fleet-port']}" in str(doctor.examine(server))


@pytest.mark.system
def test_ray_starts() -> None:
    assert machine.ray() == Finding("ok", "ray", "ray starts")
