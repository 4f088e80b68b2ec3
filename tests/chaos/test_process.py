"""Copies of a process: how they end, and what they leave behind."""

import subprocess
import sys
import time
from pathlib import Path

from fedsim.chaos.process import Copy


def test_output_exit_code_and_processor_time_are_those_of_the_call(tmp_path: Path) -> None:
    def call() -> int:
        print("to standard output")
        print("to standard error", file=sys.stderr)
        return 3

    ended = Copy(call, tmp_path / "log.txt").wait(30)
    assert (ended.code, ended.left) == (3, ())
    assert {"to standard output", "to standard error"} == set(ended.output.splitlines())
    assert ended.cpu <= ended.seconds + 1


def test_an_exception_is_a_traceback_and_code_1(tmp_path: Path) -> None:
    def call() -> int:
        raise ValueError("no")

    ended = Copy(call, tmp_path / "log.txt").wait(30)
    assert ended.code == 1
    assert "ValueError: no" in ended.output


def test_what_takes_too_long_is_killed(tmp_path: Path) -> None:
    assert Copy(lambda: int(time.sleep(60) or 0), tmp_path / "log.txt").wait(0.2).code is None


def test_a_process_that_outlives_the_copy_is_found_and_killed(tmp_path: Path) -> None:
    def call() -> int:
        subprocess.Popen(["sleep", "61"])
        return 0

    ended = Copy(call, tmp_path / "log.txt").wait(30)
    assert ended.left == ("sleep 61",)
