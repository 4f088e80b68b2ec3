"""Checks of ports and servers, on real sockets: free, reachable, with a valid certificate."""

import json
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from fedsim.deploy import doctor
from fedsim.deploy.checks import network

from ...system.flower import Federation, await_port, free_port
from ..certificate_authority import CertificateAuthority, store
from .home_folder import change, the_problem


def test_a_port_in_use(node: Path, server: Path) -> None:
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        change(node, port=port)
        change(server, fleet_port=port)
        assert f"port {port} of this machine is in use" in the_problem(doctor.check_home(node))
        assert f"fleet-port {port}" in the_problem(doctor.check_home(server))
        assert all(finding.level == "ok" for finding in doctor.check_home(server, running=True))


def test_only_the_address_that_is_listened_at_matters(server: Path) -> None:
    with socket.create_server(("127.0.0.2", 0)) as taken:
        change(server, fleet_port=taken.getsockname()[1])
        assert "in use" in the_problem(doctor.check_home(server))
        change(server, bind="127.0.0.1")
        assert all(finding.level == "ok" for finding in doctor.check_home(server))
    change(server, bind="192.0.2.1")
    assert "nothing can listen at 192.0.2.1:" in the_problem(doctor.check_home(server))


def test_a_host_that_is_elsewhere(server: Path, ca: CertificateAuthority) -> None:
    store(server / "server.key", ca.issue(server / "server.crt", ["192.0.2.1", "no-such-host.invalid"]))
    change(server, host="192.0.2.1")
    assert "192.0.2.1) is not an address of this machine" in the_problem(doctor.check_home(server), "warning")
    change(server, host="no-such-host.invalid")
    assert "no-such-host.invalid cannot be resolved" in the_problem(doctor.check_home(server))


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


def test_the_server_proves_itself(node: Path, server: Path, ca: CertificateAuthority) -> None:
    with listening(server) as address:
        change(node, superlink=address)
        assert all(finding.level == "ok" for finding in doctor.check_home(node, reach=True))
        CertificateAuthority.new().publish(node / "ca.crt")
        line = the_problem(doctor.check_home(node, reach=True))
        assert f"the certificate of {address} is refused" in line
        assert str(node / "ca.crt") in line
    store(server / "server.key", ca.issue(server / "server.crt", ["10.0.0.1"]))
    ca.publish(node / "ca.crt")
    with listening(server) as address:
        change(node, superlink=address)
        assert "IP address mismatch" in the_problem(doctor.check_home(node, reach=True))


def test_a_server_in_plain_text(node: Path) -> None:
    with listening(None) as address:
        change(node, superlink=address)
        assert f"{address} does not speak TLS" in the_problem(doctor.check_home(node, reach=True))


def test_an_unreachable_server(node: Path) -> None:
    port = free_port()
    change(node, superlink=f"127.0.0.1:{port}")
    assert f"nothing listens at 127.0.0.1:{port}" in the_problem(doctor.check_home(node, reach=True))
    change(node, superlink="no-such-host.invalid:9092")
    assert "no-such-host.invalid cannot be resolved" in the_problem(doctor.check_home(node, reach=True))
    change(node, superlink="10.0.0.1")
    assert "write it as HOST:PORT" in the_problem(doctor.check_home(node, reach=True))


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


@pytest.mark.system
def test_a_real_superlink(server: Path, tmp_path: Path) -> None:
    """gRPC and HTTP, both behind the federation's certificate."""
    config = json.loads((server / "server.json").read_text())
    files = ["--ssl-certfile", server / "server.crt", "--ssl-keyfile", server / "server.key"]
    ports = ["--fleet-api-address", f"127.0.0.1:{config['fleet-port']}", "--port", config["control-port"]]
    federation = Federation(tmp_path, 0)
    with ExitStack() as stack:
        stack.push(federation)  # which ends what it has spawned
        link = ["flower-superlink", *files, "--ssl-ca-certfile", server / "ca.crt", *ports]
        federation.spawn("secured", [str(part) for part in link])
        for port in (config["fleet-port"], config["control-port"]):
            await_port(port)
            assert network.reachable(f"127.0.0.1:{port}", server / "ca.crt").level == "ok"
        assert all(finding.level == "ok" for finding in doctor.check_home(server, running=True, reach=True))
        assert f"fleet-port {config['fleet-port']}" in str(doctor.check_home(server))
