"""Operators: keys, roles and signed tokens; what is refused, in which words."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from fedsim.cli import main
from fedsim.deploy import operators
from fedsim.deploy.inventory import Inventory, Server
from fedsim.deploy.operators import FOLLOW_LIFETIME, LIFETIME, TokenRefused
from fedsim.errors import ConfigError, FedsimError

NOW = 1_900_000_000.0


@pytest.fixture
def ana(tmp_path: Path) -> Path:
    """The key of Ana, who may start runs in the federation of this folder."""
    key = tmp_path / "secrets" / "operators" / "ana.key"
    operators.add(tmp_path, "ana", "run", operators.create_key(key))
    return key


def check(token: str, folder: Path, federation: str = "wards", now: float = NOW) -> operators.Claims:
    return operators.check_token(token, operators.read(folder), federation, now)


def test_a_signed_token_is_accepted(ana: Path, tmp_path: Path) -> None:
    claims = check(operators.token(ana, "wards", "start", b"run", NOW), tmp_path)
    assert (claims.operator, claims.verb, len(claims.digest)) == ("ana", "start", 64)
    assert ana.stat().st_mode & 0o777 == 0o600
    assert check(operators.token(ana, "wards", "nodes", now=NOW), tmp_path).digest == ""


def test_tokens_expire_and_those_to_follow_a_run_last_longer(ana: Path, tmp_path: Path) -> None:
    for verb, lifetime in (("start", LIFETIME), ("follow", FOLLOW_LIFETIME)):
        token = operators.token(ana, "wards", verb, now=NOW)
        check(token, tmp_path, now=NOW + lifetime)
        with pytest.raises(TokenRefused, match=r"expired 61 s ago: compare the clocks"):
            check(token, tmp_path, now=NOW + lifetime + 61)
        with pytest.raises(TokenRefused, match="61 s ahead of the server's clock"):
            check(token, tmp_path, now=NOW - 61)


def test_a_token_is_for_one_federation(ana: Path, tmp_path: Path) -> None:
    with pytest.raises(TokenRefused, match="for the federation 'wards', not for 'labs'"):
        check(operators.token(ana, "wards", "start", now=NOW), tmp_path, "labs")


def test_a_token_of_somebody_else_or_a_changed_one_is_refused(ana: Path, tmp_path: Path) -> None:
    other = tmp_path / "elsewhere" / "ana.key"
    operators.create_key(other)
    with pytest.raises(TokenRefused, match="the signature is not by the key of operator 'ana'"):
        check(operators.token(other, "wards", "start", now=NOW), tmp_path)
    eve = tmp_path / "elsewhere" / "eve.key"
    operators.create_key(eve)
    with pytest.raises(TokenRefused, match="'eve' is not an operator of this federation"):
        check(operators.token(eve, "wards", "start", now=NOW), tmp_path)
    claims, signature = operators.token(ana, "wards", "nodes", now=NOW).split(".")
    changed = operators._encode(operators.base64.urlsafe_b64decode(claims + "==").replace(b"nodes", b"start"))
    with pytest.raises(TokenRefused, match="the signature is not by"):
        check(f"{changed}.{signature}", tmp_path)


@pytest.mark.parametrize("text", ["", "a", "a.b", "e30.e30", "W10.W10", ".", "ä.ö", "bnVsbA.bnVsbA", "a.b.c"])
def test_what_is_no_token_is_refused(text: str, ana: Path, tmp_path: Path) -> None:
    with pytest.raises(TokenRefused, match="the call brings no token of an operator"):
        check(text, tmp_path)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[ana]\nrole = 'boss'\nkey = 'x'", "unknown role of operator ana 'boss'. Choices: admin, read, run"),
        ("[ana]\nrole = 'run'", "operator ana needs a role and a key"),
        ("ana = 3", "operator ana needs a role and a key"),
        ("[ana]\nrole = 'run'\nkey = 'ssh-rsa x'", "'ssh-rsa x' is not a public key of the kind ssh-ed25519"),
        ("[service]\nrole = 'run'\nkey = 'x'", "an operator cannot be called 'service'"),
        ("[ana", "cannot read"),
    ],
)
def test_a_bad_list_is_refused_by_name(text: str, told: str, tmp_path: Path) -> None:
    (tmp_path / operators.FILE).write_text(text)
    with pytest.raises(ConfigError) as refused:
        operators.read(tmp_path)
    assert told in str(refused.value)
    assert operators.FILE in str(refused.value)


def test_the_server_gets_the_public_halves_alone(ana: Path, tmp_path: Path) -> None:
    text = operators.to_json(operators.read(tmp_path))
    assert operators.from_json(text) == operators.read(tmp_path)
    assert json.loads(text)["ana"]["key"] == operators.public_key(ana)


def test_which_key_signs(ana: Path, tmp_path: Path) -> None:
    inventory = Inventory("wards", Server(), (), tmp_path)
    assert operators.key_file(inventory) == ana
    operators.create_key(ana.with_name("bob.key"))
    with pytest.raises(ConfigError, match=r"there are several: ana\.key, bob\.key\. Name one with operator = "):
        operators.key_file(inventory)
    assert operators.key_file(replace(inventory, operator="secrets/operators/bob.key")).name == "bob.key"
    with pytest.raises(ConfigError, match="there is none"):
        operators.key_file(replace(inventory, folder=tmp_path / "empty"))
    ana.write_text("no key")
    with pytest.raises(FedsimError, match=r"ana\.key is not the key of an operator"):
        operators.token(ana, "wards", "start")


def test_the_command_adds_lists_and_removes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def deploy(*words: str) -> int:
        return main(["deploy", "operator", *words, "--dir", str(tmp_path)])

    assert deploy("ana", "--new-key", str(tmp_path / "mine")) == 0
    assert deploy("ana", "--role", "admin", "--key", str(tmp_path / "mine" / "ana.pub")) == 0
    assert deploy("bob", "--role", "read", "--key", operators.create_key(tmp_path / "bob.key")) == 0
    capsys.readouterr()
    assert deploy() == 0
    assert [line.split()[:2] for line in capsys.readouterr().out.splitlines()] == [["ana", "admin"], ["bob", "read"]]
    assert deploy("ana", "--remove") == 2
    assert "ana is the only admin: add another one first" in capsys.readouterr().err
    assert deploy("bob", "--remove") == 0
    assert set(operators.read(tmp_path)) == {"ana"}
    assert deploy("bob") == 2
    assert deploy("carl", "--remove") == 2
    assert "Choices: ana" in capsys.readouterr().err
    assert deploy("ana", "--new-key", str(tmp_path / "mine")) == 2
    assert "exists already" in capsys.readouterr().err
