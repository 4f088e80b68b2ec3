"""A real SuperLink refuses SuperNodes with a wrong key or certificate."""

import subprocess
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from fedsim.deploy import operators, pki
from fedsim.deploy.chaos.deployment import NODES, Deployment, eventually
from tests.system_tools import BIN

from ..deployment import process
from ..flower import free_port

pytestmark = [pytest.mark.system, pytest.mark.timeout(600)]
ADMITTED = "SuperNode ID"  # in the log of a SuperNode that the SuperLink has accepted
REFUSED = "Exit Code: 305"  # in the log of one that could not connect


def connect(deployment: Deployment, folder: Path, key: Path | None, certificate: Path | None, port: int = 0) -> str:
    """Starts a SuperNode with this key and CA certificate until it is accepted or refused; returns its log."""
    log, where = folder / "supernode.log", f"{deployment.hosts[0].address}:{port or deployment.fleet_port}"
    command = [*deployment.hosts[1].via.split(), str(BIN / "flower-supernode"), "--superlink", where]
    command += ["--max-retries", "1", "--port", str(free_port()), "--node-config", "partition-id=0"]
    command += ["--root-certificates", str(certificate)] if certificate else ["--insecure"]
    command += ["--auth-supernode-private-key", str(key)] if key else []
    with process(command, folder, log.name):
        eventually(lambda: any(words in log.read_text() for words in (ADMITTED, REFUSED)), 90, "an answer")
    return log.read_text()


def assert_refused(log: str) -> None:
    assert REFUSED in log, log
    assert ADMITTED not in log, log


def test_a_key_that_is_not_registered_gets_nothing(deployment: Deployment, tmp_path: Path) -> None:
    pki.create_node_key(tmp_path, "stranger")
    told = connect(deployment, tmp_path, pki.node_key(tmp_path, "stranger"), deployment.folder / "secrets" / pki.CA)
    assert_refused(told)
    assert len(deployment.status()["nodes"]) == NODES
    assert ADMITTED in (deployment.home("ward-0") / "supernode.log").read_text(), "registered keys are accepted"


def test_the_certificate_of_another_ca_is_refused(deployment: Deployment, tmp_path: Path) -> None:
    pki.create_ca(tmp_path, "other")
    told = connect(deployment, tmp_path, pki.node_key(deployment.folder / "secrets", "ward-0"), tmp_path / pki.CA)
    assert_refused(told)


def test_a_connection_without_tls_is_refused(deployment: Deployment, tmp_path: Path) -> None:
    assert_refused(connect(deployment, tmp_path, None, None))


def test_a_certificate_that_was_tampered_with_is_refused(deployment: Deployment, tmp_path: Path) -> None:
    """A SuperLink that shows our certificate with one bit of its signature changed."""
    secrets, port = deployment.folder / "secrets", free_port()
    encoded = bytearray(pki.read_certificate(secrets / pki.SERVER).public_bytes(Encoding.DER))
    encoded[-1] ^= 1
    tampered = x509.load_der_x509_certificate(bytes(encoded)).public_bytes(Encoding.PEM)
    (tmp_path / "server.crt").write_bytes(tampered + (secrets / pki.ISSUER).read_bytes())
    command = [*deployment.hosts[0].via.split(), str(BIN / "flower-superlink"), "--ssl-certfile", "server.crt"]
    command += ["--ssl-keyfile", str(secrets / pki.SERVER_KEY), "--ssl-ca-certfile", str(secrets / pki.CA)]
    command += ["--enable-supernode-auth", "--port", str(free_port()), "--fleet-api-address", f"0.0.0.0:{port}"]
    with process(command, tmp_path, "link.log"):
        eventually(lambda: "Starting Fleet API" in (tmp_path / "link.log").read_text(), 90, "the SuperLink")
        told = connect(deployment, tmp_path, pki.node_key(secrets, "ward-0"), secrets / pki.CA, port)
    assert_refused(told)


def test_a_revoked_certificate_of_the_server_is_refused_by_the_nodes(deployment: Deployment, tmp_path: Path) -> None:
    """A SuperLink with the leaked key and certificate: the nodes believe it before, and no longer after."""
    secrets, port = deployment.folder / "secrets", free_port()
    for name in (pki.SERVER, pki.SERVER_KEY, pki.TRUST):
        (tmp_path / name).write_bytes((secrets / name).read_bytes())
    deployment.fedsim("certificates", "--revoke")
    deployment.fedsim("up")
    assert deployment.status()["healthy"]
    command = [*deployment.hosts[0].via.split(), str(BIN / "flower-superlink"), "--ssl-certfile", pki.SERVER]
    command += ["--ssl-keyfile", pki.SERVER_KEY, "--ssl-ca-certfile", str(secrets / pki.CA)]
    command += ["--port", str(free_port()), "--fleet-api-address", f"0.0.0.0:{port}"]
    with process(command, tmp_path, "link.log"):
        eventually(lambda: "Starting Fleet API" in (tmp_path / "link.log").read_text(), 90, "the SuperLink")
        assert ADMITTED in connect(deployment, tmp_path, None, tmp_path / pki.TRUST, port), "what they trusted before"
        assert_refused(connect(deployment, tmp_path, None, deployment.home("ward-0") / "ca.crt", port))


def test_rotated_keys_are_the_only_ones_from_then_on(deployment: Deployment, tmp_path: Path) -> None:
    secrets, former = deployment.folder / "secrets", tmp_path / "former.key"
    former.write_bytes(pki.node_key(secrets, "ward-0").read_bytes())
    former.chmod(0o600)
    deployment.fedsim("init", "--rotate")
    assert deployment.fedsim("up").count("the previous key of") == NODES
    assert deployment.status()["healthy"]
    assert_refused(connect(deployment, tmp_path, former, secrets / pki.CA))


def test_a_home_holds_no_secret_of_another(deployment: Deployment) -> None:
    owners = {path.read_bytes(): path.stem for path in (deployment.folder / "secrets").rglob("*.key")}
    assert len(owners) == NODES + 4  # those of the CA, the intermediate, the server and an operator, too
    for name in ("server", *(f"ward-{number}" for number in range(NODES))):
        files = [path for path in deployment.home(name).rglob("*") if path.is_file()]
        assert {owners[path.read_bytes()] for path in files if path.read_bytes() in owners} == {name}
        assert {path.stat().st_mode & 0o777 for path in deployment.home(name).glob("*.key")} == {0o600}


def test_an_account_on_the_server_is_not_enough_to_use_it(deployment: Deployment, tmp_path: Path) -> None:
    """What any account can read is the address and the CA's certificate; both are public."""
    for name in ("server.json", "ca.crt"):
        (tmp_path / name).write_bytes((deployment.home("server") / name).read_bytes())
    operators.create_key(tmp_path / "admin.key")

    def control(verb: str, token: str) -> str:
        command = [
            *deployment.hosts[0].via.split(),
            str(BIN / "python"),
            "-m",
            "fedsim.deploy.control",
            "--token",
            verb,
        ]
        done = subprocess.run(command, cwd=tmp_path, input=f"{token}\n", capture_output=True, text=True, check=False)
        return done.stdout + done.stderr

    forged = operators.token(tmp_path / "admin.key", "wards", "nodes")
    assert "the signature is not by the key of operator 'admin'" in control("nodes", forged)
    assert "the call brings no token of an operator" in control("runs", "")
    own = deployment.folder / "secrets" / "operators" / "admin.key"
    assert '"name": "ward-0"' in control("nodes", operators.token(own, "wards", "nodes"))
    assert "refused" in deployment.fedsim("audit", "show", "--lines", "8")


def test_roles_and_the_audit_logs(deployment: Deployment, tmp_path: Path) -> None:
    """An operator who may only read sees the status and cannot start a run; who changes a log is found."""
    secrets, inventory = deployment.folder / "secrets", (deployment.folder / "federation.toml").read_text()
    public = operators.create_key(secrets / "operators" / "eva.key")
    try:
        key = 'operator = "secrets/operators/{}.key"\n'
        (deployment.folder / "federation.toml").write_text(key.format("admin") + inventory)
        deployment.fedsim("operator", "eva", "--role", "read", "--key", public)
        before = deployment.process("server", "superlink")
        deployment.fedsim("up")
        assert deployment.process("server", "superlink") == before, "no restart"
        (deployment.folder / "federation.toml").write_text(key.format("eva") + inventory)
        assert deployment.status()["healthy"]
        refused = deployment.attempt("run", "--out", str(tmp_path / "run"), "--set", "rounds=1")
        assert "eva has the role read, and may not start-run" in refused.stderr
    finally:
        (deployment.folder / "federation.toml").write_text(inventory)
        for suffix in (".key", ".pub"):
            (secrets / "operators" / "eva").with_suffix(suffix).unlink()
        deployment.fedsim("operator", "eva", "--remove")
    deployment.fedsim("up")
    deployment.run(tmp_path / "run", "rounds=1")
    assert deployment.fedsim("audit", "verify").count("ok ") == NODES + 1
    log = deployment.home("ward-0") / "audit.log"
    content = log.read_bytes()
    try:
        log.write_bytes(content.replace(b'"message": "query"', b'"message": "quern"', 1))
        broken = deployment.attempt("audit", "verify")
        assert broken.returncode == 1
        assert "BROKEN ward-0: " in broken.stdout
        assert "was changed" in broken.stdout
        log.write_bytes(b"".join(content.splitlines(keepends=True)[:-1]))
        assert "is missing: the log had" in deployment.attempt("audit", "verify").stdout
    finally:
        log.write_bytes(content)
    assert deployment.fedsim("audit", "verify").count("ok ") == NODES + 1
