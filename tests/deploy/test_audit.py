"""The audit log: whoever changes, removes or inserts a line is found, and the line is named."""

import json
import multiprocessing
from pathlib import Path

import pytest

from fedsim.deploy.audit import AuditLog, main, show, verify
from fedsim.errors import FedsimError


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Five lines."""
    audit = AuditLog(tmp_path / "audit.log")
    for number in range(5):
        audit.append("start-run", operator="ana", run=str(number), note="ä\n" * 2)
    return audit.path


def lines(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines(keepends=True)


def test_an_unbroken_log(log: Path, tmp_path: Path) -> None:
    found = verify(log)
    assert (found.lines, found.incomplete) == (5, ())
    assert verify(log, 5, found.head) == found
    assert verify(tmp_path / "none").lines == 0
    assert log.stat().st_mode & 0o777 == 0o600
    first, second = (json.loads(line) for line in lines(log)[:2])
    assert (first["n"], first["what"], first["previous"]) == (1, "start-run", "0" * 64)
    assert second["previous"] != first["previous"]
    assert AuditLog(log).last()["run"] == "4"
    shown = list(show(log, 2))
    assert len(shown) == 2
    assert 'start-run operator="ana" run="4"' in shown[1]


def test_a_changed_line_is_named(log: Path) -> None:
    content = lines(log)
    content[2] = content[2].replace(b"ana", b"bob")
    log.write_bytes(b"".join(content))
    with pytest.raises(FedsimError, match="line 3 was changed"):
        verify(log)


def test_a_removed_or_inserted_line_is_named(log: Path) -> None:
    content = lines(log)
    log.write_bytes(b"".join(content[:2] + content[3:]))
    with pytest.raises(FedsimError, match="line 3 has the number 4: lines were removed or inserted"):
        verify(log)
    log.write_bytes(b"".join(content[:2] + content[1:]))
    with pytest.raises(FedsimError, match="line 3 has the number 2"):
        verify(log)


def test_what_is_cut_off_or_rewritten_at_the_end_is_found_by_who_remembers_it(log: Path) -> None:
    before, content = verify(log), lines(log)
    log.write_bytes(b"".join(content[:3]))
    assert verify(log).lines == 3
    with pytest.raises(FedsimError, match="line 4 is missing: the log had 5 lines, now it has 3"):
        verify(log, before.lines, before.head)
    log.write_bytes(b"".join(content[:4]))
    AuditLog(log).append("stop-run", operator="ana")
    with pytest.raises(FedsimError, match="line 5 was changed: its hash was"):
        verify(log, before.lines, before.head)


def test_a_foreign_line_is_named(log: Path) -> None:
    log.write_bytes(b"".join([*lines(log)[:4], b"nonsense\n", lines(log)[4]]))
    with pytest.raises(FedsimError, match="line 5 is not an entry of an audit log"):
        verify(log)
    log.write_bytes(b"".join([*lines(log)[:4], b"nonsense\n"]))
    with pytest.raises(FedsimError, match="line 5 is not an entry of an audit log"):
        verify(log)
    AuditLog(log).append("more")
    with pytest.raises(FedsimError, match="line 5 is not an entry of an audit log"):
        verify(log)


@pytest.mark.parametrize("kept", [1, 40, -1])
def test_a_line_that_a_crash_cut_off_is_told_and_the_log_goes_on(log: Path, kept: int) -> None:
    content = lines(log)
    log.write_bytes(b"".join(content[:4]) + content[4][:kept])
    whole = kept == -1  # without its newline
    assert verify(log).incomplete == (() if whole else (5,))
    AuditLog(log).append("more")
    found = verify(log)
    assert found.lines == 6
    assert found.incomplete == (() if whole else (5,))
    assert AuditLog(log).last()["after-incomplete"] is True


def test_several_processes_write_one_log(tmp_path: Path) -> None:
    audit = AuditLog(tmp_path / "audit.log")
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=_write, args=(audit,)) for _ in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert verify(audit.path).lines == 40


def _write(audit: AuditLog) -> None:
    for number in range(10):
        audit.append("job", number=number)


def test_the_command(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main("verify", log, []) == 0
    found = json.loads(capsys.readouterr().out)
    assert main("verify", log, ["5", found["head"]]) == 0
    assert main("show", log, ["1"]) == 0
    assert "start-run" in capsys.readouterr().out
    assert main("verify", log, ["6", found["head"]]) == 1
    assert "line 6 is missing" in capsys.readouterr().err
