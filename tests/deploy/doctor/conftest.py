"""Home folders of a node and a server with nothing wrong, as real files; each test breaks its own copy."""

from pathlib import Path

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from ...system.flower import free_port
from ..certificate_authority import CertificateAuthority, store
from .home_folder import VERSIONS, write


@pytest.fixture(scope="package")
def ca() -> CertificateAuthority:
    return CertificateAuthority.new()


@pytest.fixture
def node(tmp_path: Path, ca: CertificateAuthority) -> Path:
    """A node with nothing wrong."""
    home = tmp_path / "node"
    home.mkdir()
    ca.publish(home / "ca.crt")
    store(home / "node.key", ec.generate_private_key(ec.SECP384R1()), ssh=True)
    x, y = np.zeros((8, 4, 4), np.uint8), np.arange(8) % 2
    np.savez(home / "silo.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    config = {"partition-id": 0, "data": "silo.npz", "device": "cpu", "state-dir": "state"}
    config_file = {"name": "hospital-a", "superlink": "127.0.0.1:9092", "ca": "ca.crt", "key": "node.key"}
    write(home / "node.json", {**config_file, "port": free_port(), "config": config, "versions": VERSIONS})
    return home


@pytest.fixture
def server(tmp_path: Path, ca: CertificateAuthority) -> Path:
    """A server with nothing wrong."""
    home = tmp_path / "server"
    home.mkdir()
    ca.publish(home / "ca.crt")
    store(home / "server.key", ca.issue(home / "server.crt", ["localhost", "127.0.0.1"]))
    config_file = {"name": "wards", "host": "127.0.0.1", "ca": "ca.crt", "certificate": "server.crt"}
    ports = {"fleet-port": free_port(), "control-port": free_port()}
    write(home / "server.json", {**config_file, **ports, "key": "server.key", "versions": VERSIONS})
    return home
