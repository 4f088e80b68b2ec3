"""Commands and files on machines, however they are reached."""

from pathlib import Path

import pytest

from fedsim.deploy.hosts import Host
from fedsim.deploy.inventory import Inventory, Machine, Server
from fedsim.errors import FedsimError


def host(folder: Path, **how: str) -> Host:
    return Host(Inventory("lab", Server(), (), folder), "ward", Machine(home=str(folder / "home"), **how))


@pytest.mark.parametrize("via", ["", "env WARD=north"])
def test_files_arrive_whole_with_their_mode_and_come_back(tmp_path: Path, via: str) -> None:
    there = host(tmp_path, via=via)
    there.put("node.key", b"\x00secret\n", private=True)
    there.put("some folder/ca.crt", b"public")
    assert (tmp_path / "home" / "node.key").read_bytes() == b"\x00secret\n"
    assert (tmp_path / "home" / "node.key").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "home" / "some folder" / "ca.crt").stat().st_mode & 0o777 == 0o644
    there.fetch(str(tmp_path / "home"), tmp_path / "copy")
    assert (tmp_path / "copy" / "some folder" / "ca.crt").read_bytes() == b"public"


def test_words_arrive_as_they_are(tmp_path: Path) -> None:
    there = host(tmp_path)
    there.put("x", b"")
    assert there.run("printf", "%s|", "a b", "$HOME", "it's") == "a b|$HOME|it's|"


def test_a_machine_that_was_never_set_up_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(FedsimError, match="ward: it is not set up: run `fedsim deploy up`"):
        host(tmp_path).run("true")


def test_another_command_carries_the_words(tmp_path: Path) -> None:
    there = host(tmp_path, via="env WARD=north")
    there.put("x", b"")
    assert there.run("sh", "-c", "echo $WARD").strip() == "north"


def test_ssh_gets_one_line_that_a_shell_reads_back() -> None:
    there = host(Path("/srv"), ssh="-p 2222 fed@ward")
    *front, line = there.command(["echo", "a b"], in_home=False)
    assert front[0] == "ssh"
    assert front[-3:] == ["-p", "2222", "fed@ward"]
    assert line == "echo 'a b'"


def test_failures_name_the_machine_and_the_reason(tmp_path: Path) -> None:
    there = host(tmp_path)
    there.put("x", b"")
    with pytest.raises(FedsimError, match="ward: no such ward"):
        there.run("sh", "-c", "echo first >&2; echo no such ward >&2; exit 3")
    with pytest.raises(FedsimError, match=r"ward: .* took longer than 0 s"):
        there.run("sleep", "5", timeout=0.1)
    with pytest.raises(FedsimError, match="Set `python` of ward"):
        there.run("no-such-python", "-c", "1")
    with pytest.raises(FedsimError, match="ward: No such file"):
        host(tmp_path, via="no-such-carrier").run("true", in_home=False)


def test_lines_come_while_the_command_runs(tmp_path: Path) -> None:
    there = host(tmp_path)
    there.put("x", b"")
    with there.stream("sh", "-c", "echo one; echo two; sleep 60") as lines:
        assert [next(lines), next(lines)] == ["one", "two"]  # and leaving ends it
