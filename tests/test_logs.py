"""Messages of the core reach standard output, whatever it is at the moment."""

import logging
from contextlib import redirect_stdout
from io import StringIO

import pytest

from fedsim.logs import LOGGER, print_messages


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
