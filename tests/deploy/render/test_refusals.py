"""What cannot be rendered is refused, with what to do about it."""

from pathlib import Path

import pytest

from fedsim.cli import main
from fedsim.deploy import pki
from fedsim.deploy.inventory import Inventory
from fedsim.deploy.render import KINDS, render
from fedsim.deploy.setup import init
from fedsim.errors import ConfigError, FedsimError

from .example import make


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
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pki, "CONTAINER_HOST", "localhost")  # a certificate that is not valid in containers
        pki.issue_server_certificate(inventory.secrets, [inventory.server.host])
    with pytest.raises(FedsimError, match="not valid for fedsim-server: `fedsim deploy init --rotate` renews it"):
        list(render(inventory, "compose", tmp_path / "out"))
    list(init(tmp_path, "trial", "", 0, [], rotate=True))
    assert list(render(inventory, "compose", tmp_path / "out"))
