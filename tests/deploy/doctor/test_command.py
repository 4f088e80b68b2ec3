"""`fedsim doctor`: the same for people and for programs."""

import json
import time
from pathlib import Path

import pytest

from fedsim.cli import main


def test_the_command_tells_the_same_as_data_and_exits_with_1(node: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["doctor", "--home", str(node), "--now", str(time.time() - 100_000)]
    assert main(arguments) == 1
    lines = capsys.readouterr().out.splitlines()
    assert main([*arguments, "--json"]) == 1
    data = json.loads(capsys.readouterr().out)
    assert [line.split()[0] for line in lines] == [entry["level"] for entry in data]
    (wrong,) = [entry for entry in data if entry["level"] == "problem"]
    assert wrong["what"] == "clock"
    assert set(wrong) == {"level", "what", "message", "remedy"}


@pytest.mark.parametrize(
    "arguments", [["--home", "x", "--deep"], ["--home", "x", "--reach", "a:1"], ["--running"], ["--reach"]]
)
def test_options_that_do_not_go_together(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", *arguments]) == 2
    assert "--home" in capsys.readouterr().err
