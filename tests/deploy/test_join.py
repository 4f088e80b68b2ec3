"""A site joins: its key stays there, the operator signs, and both sides find out what was changed on the way."""

import json
from pathlib import Path

import pytest

from fedsim.cli import main
from fedsim.deploy import doctor, join, machine_config, machine_files, pki
from fedsim.deploy.inventory import FILE, Inventory, read
from fedsim.deploy.join import accept, approve, request, write_approvals
from fedsim.deploy.setup import init, new_intermediate
from fedsim.errors import ConfigError, FedsimError

SECRET = b"correct horse battery"


@pytest.fixture
def operator(tmp_path: Path) -> Path:
    """The folder of a federation without nodes, whose CA has a passphrase."""
    folder = tmp_path / "operator"
    list(init(folder, "wards", "fl.example.org", 0, [], False, encrypt=lambda: SECRET))
    return folder


@pytest.fixture
def site(tmp_path: Path) -> Path:
    return tmp_path / "site"


def secret() -> bytes:
    return SECRET


def inventory(folder: Path) -> Inventory:
    return read(folder / FILE, check=False)


def joined(operator: Path, site: Path, name: str = "ward-3") -> Path:
    """Request and approval; returns the file of the approval."""
    asked = operator.parent / f"{name}.request"
    list(request(site, name, asked))
    list(approve(inventory(operator), asked, secret))
    return operator / join.APPROVALS / f"{name}.approval"


def test_a_node_joins_and_nothing_secret_leaves_its_machine(operator: Path, site: Path) -> None:
    approval = joined(operator, site)
    list(accept(site, approval, "", {"data": "/data/silo.npz"}, 9100))
    (node,) = read(operator / FILE).nodes
    assert (node.name, node.partition_id, node.joined) == ("ward-3", 0, True)
    about = machine_config.read_node(site)
    assert (about.name, about.superlink, about.port) == ("ward-3", "fl.example.org:9092", 9100)
    assert about.config == {
        "partition-id": 0,
        "num-partitions": 1,
        "data": "/data/silo.npz",
        "device": "auto",
        "state-dir": "state",
    }
    key = (site / machine_files.NODE_KEY).read_bytes()
    assert (site / machine_files.NODE_KEY).stat().st_mode & 0o777 == 0o600
    travelled = [operator.parent / "ward-3.request", approval]
    private = key.splitlines()[1]
    assert all(private not in path.read_bytes() for path in [*travelled, *operator.rglob("*")] if path.is_file())
    assert all(b"PRIVATE" not in path.read_bytes() for path in travelled)
    assert not pki.node_key(operator / "secrets", "ward-3").exists()
    assert (
        json.loads(machine_files.public_keys(read(operator / FILE)))["ward-3"].encode().split()[:2]
        == (pki.public_key_of(site / machine_files.NODE_KEY).split()[:2])
    )
    problems = {found.what.split()[0] for found in doctor.check_home(site) if found.level == "problem"}
    assert problems <= {"data"}, "the doctor finds nothing wrong but the data, which is not there"


def test_a_fingerprint_that_does_not_fit_is_refused(operator: Path, site: Path) -> None:
    approval = joined(operator, site)
    right = pki.fingerprint(pki.read_certificate(operator / "secrets" / pki.CA))
    with pytest.raises(FedsimError, match=f"is of another CA: its fingerprint is {right}"):
        list(accept(site, approval, "ab" * 32, {}, None))
    assert not (site / machine_config.NODE).exists()
    list(accept(site, approval, right.replace(" ", ":").upper(), {}, None))


def test_an_approval_that_was_changed_on_the_way_is_refused(operator: Path, site: Path) -> None:
    approval = joined(operator, site)
    whole = json.loads(approval.read_text())
    changed = {**whole, "content": whole["content"].replace("fl.example.org", "evil.example.org")}
    approval.write_text(json.dumps(changed))
    with pytest.raises(FedsimError, match="was changed after the operator signed it"):
        list(accept(site, approval, "", {}, None))
    other = operator.parent / "other"
    list(init(other, "wards", "evil.example.org", 1, [], False))
    forged = json.loads(whole["content"])
    forged["trust"] = (other / "secrets" / pki.TRUST).read_text()
    content = json.dumps(forged)
    signature = join.base64.b64encode(pki.sign(other / "secrets", content.encode())).decode()
    issuer = (other / "secrets" / pki.ISSUER).read_text()
    approval.write_text(json.dumps({"content": content, "signature": signature, "issuer": issuer}))
    with pytest.raises(FedsimError, match="is not signed by its CA"):
        list(accept(site, approval, "", {}, None))
    for text in ("", "[]", "{}", '{"content": "{}", "signature": "", "issuer": ""}'):
        approval.write_text(text)
        with pytest.raises(FedsimError, match="is not an approval"):
            list(accept(site, approval, "", {}, None))


def test_an_approval_of_another_ca_an_older_one_or_for_another_key_is_refused(operator: Path, site: Path) -> None:
    approval = joined(operator, site)
    first = approval.read_text()
    list(accept(site, approval, "", {}, None))
    list(write_approvals(read(operator / FILE), ["ward-3"], secret))
    list(accept(site, approval, "", {}, None))
    approval.write_text(first)
    with pytest.raises(FedsimError, match="is older than the approval that is in use"):
        list(accept(site, approval, "", {}, None))
    other = operator.parent / "other"
    list(init(other, "wards", "evil.example.org", 0, [], False))
    list(approve(inventory(other), operator.parent / "ward-3.request", pki.no_passphrase))
    with pytest.raises(FedsimError, match=r"is of another CA than .*root\.crt"):
        list(accept(site, other / join.APPROVALS / "ward-3.approval", "", {}, None))
    with pytest.raises(FedsimError, match="is for another key than"):
        list(accept(operator.parent / "elsewhere", approval, "", {}, None))


def test_after_a_revocation_the_node_trusts_the_new_intermediate_alone_and_keeps_its_settings(
    operator: Path, site: Path
) -> None:
    approval = joined(operator, site)
    list(accept(site, approval, "", {"data": "/data/silo.npz", "device": "cpu"}, 9101))
    before = (site / "ca.crt").read_bytes()
    list(new_intermediate(read(operator / FILE), revoke=True, passphrase=secret))
    list(write_approvals(read(operator / FILE), ["ward-3"], secret))
    list(accept(site, approval, "", {"device": "cuda"}, None))
    assert (site / "ca.crt").read_bytes() == (operator / "secrets" / pki.ISSUER).read_bytes() != before
    about = machine_config.read_node(site)
    assert (about.port, about.config["data"], about.config["device"]) == (9101, "/data/silo.npz", "cuda")


def test_a_site_renews_its_key_by_a_second_request(operator: Path, site: Path) -> None:
    joined(operator, site)
    old = pki.node_public(operator / "secrets", "ward-3").read_bytes()
    (site / machine_files.NODE_KEY).unlink()
    list(accept(site, joined(operator, site), "", {}, None))
    assert pki.node_public(operator / "secrets", "ward-3").read_bytes() != old
    assert len(read(operator / FILE).nodes) == 1
    second = operator.parent / "second"
    list(accept(second, joined(operator, second, "ward-4"), "", {}, None))
    assert [node.partition_id for node in read(operator / FILE).nodes] == [0, 1]


def test_requests_that_cannot_be_approved(operator: Path, site: Path) -> None:
    asked = operator.parent / "ward-3.request"
    with pytest.raises(ConfigError, match="a node cannot be called 'Ward 3'"):
        list(request(site, "Ward 3", asked))
    with pytest.raises(ConfigError, match="cannot read /nowhere"):
        list(approve(inventory(operator), Path("/nowhere"), secret))
    asked.write_text("nothing")
    with pytest.raises(FedsimError, match="is not a request of `fedsim deploy join`"):
        list(approve(inventory(operator), asked, secret))
    list(request(site, "ward-3", asked))
    with pytest.raises(FedsimError, match="has a passphrase"):
        list(approve(inventory(operator), asked, pki.no_passphrase))
    list(approve(inventory(operator), asked, secret))
    list(request(site, "ward-4", asked))
    with pytest.raises(ConfigError, match="ward-3 has the same key: every node needs its own"):
        list(approve(inventory(operator), asked, secret))
    list(init(operator, "", "", 0, ["ward-5"], False, secret))
    list(request(operator.parent / "third", "ward-5", asked))
    with pytest.raises(ConfigError, match="ward-5 is a node whose key is made here"):
        list(approve(inventory(operator), asked, secret))


def test_the_commands(
    operator: Path, site: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FEDSIM_CA_PASSPHRASE", SECRET.decode())
    monkeypatch.chdir(operator.parent)
    assert main(["deploy", "join", "ward-3", "--home", str(site)]) == 0
    key = capsys.readouterr().out.rpartition(": ")[2].strip()
    assert main(["deploy", "approve", "ward-3.request", "--dir", str(operator)]) == 0
    told = capsys.readouterr().out
    assert f"fingerprint of its key: {key}" in told
    approval = str(operator / join.APPROVALS / "ward-3.approval")
    assert main(["deploy", "join", "--home", str(site), "--approval", approval, "--data", "silo.npz"]) == 0
    assert "compare it with the operator" in capsys.readouterr().out
    assert machine_config.read_node(site).config["data"] == str(operator.parent / "silo.npz")
    assert main(["deploy", "certificates", "--revoke", "--dir", str(operator)]) == 0
    assert f"send {approval} to the site" in capsys.readouterr().out
    assert main(["deploy", "join", "--home", str(site)]) == 2
    assert "give either the name of the node" in capsys.readouterr().err
