"""Messages of the core reach standard output, whatever it is at the moment."""

import json
import logging
from collections.abc import Callable
from contextlib import redirect_stdout
from datetime import datetime, timedelta
from io import StringIO
from pathlib import Path

import pytest

from fedsim.config import RunConfig
from fedsim.engine.launch import launch
from fedsim.logs import LOGGER, print_messages
from fedsim.results.record import read_manifest


def test_messages_are_plain_lines_on_the_current_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    print_messages()
    print_messages()
    elsewhere = StringIO()
    with redirect_stdout(elsewhere):
        logging.getLogger("fedsim.server.loop").warning("client %d is lost: %s", 3, "gone")
    logging.getLogger("fedsim.server.fleet").info("waiting for nodes")
    logging.getLogger("fedsim.server.fleet").debug("a detail")
    assert elsewhere.getvalue() == "client 3 is lost: gone\n"
    assert capsys.readouterr().out == "waiting for nodes\n"
    assert len(LOGGER.handlers) == 1


def test_a_run_with_json_logs_prints_json_alone_with_its_identity(
    small: Callable[..., RunConfig], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        launch(small("log-format=json", f"out={tmp_path / 'run'}"), "inline")
        logging.getLogger("fedsim.test").warning("client %d is lost", 3, extra={"client": 3})
    finally:
        print_messages("text")
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {line["run"] for line in lines} == {read_manifest(tmp_path / "run")["run"]}
    assert [line["round"] for line in lines if "is done" in line["message"]] == [1, 2]
    last = lines[-1]
    assert (last["level"], last["logger"], last["client"]) == ("warning", "fedsim.test", 3)
    assert last["message"] == "client 3 is lost"
    assert datetime.fromisoformat(last["time"]).utcoffset() == timedelta(0)
