"""What a run on the server prints, read from another machine until the run has ended, also over a connection that breaks."""

import json
import time
from collections.abc import Callable

from fedsim.deploy.hosts import Host
from fedsim.errors import FedsimError
from fedsim.transport.polling import Polling

Report = Callable[[str], None]  # takes a line for the user
CONTROL = "fedsim.deploy.control"  # runs on the server
RECONNECT_SECONDS = 120.0  # without a connection, until a run is no longer followed
SERVER_APP_RAISED = "ServerApp raised an exception"
FLOWER_MESSAGES = ("Successfully installed fedsim-run to", "Connection attempt failed, retrying")


class ConnectionLost(FedsimError):
    """The output of a run ended before the run did, and the server cannot be reached."""


def read_output(server: Host, token: Callable[[], bytes], run: str, output: Report) -> str:
    """Gives what the ServerApp of a run prints to `output`, line by line; returns Flower's status of the run at its end.

    `token` signs a call. Connects again if the connection breaks, and raises ConnectionLost if that takes too long;
    FedsimError if the SuperLink does not tell.
    """
    end, traceback, position = dict[str, str](), list[str](), "0"
    last_contact, polling = time.monotonic(), Polling(0.5, 5.0)
    while not end:
        command = [server.python, "-P", "-m", CONTROL, "--token", "follow", run, position]
        with server.stream(*command, stdin=token()) as lines:
            for line in map(json.loads, lines):
                last_contact = time.monotonic()
                if isinstance(line, float):
                    position = repr(line)
                elif isinstance(line, dict):
                    end = line
                elif SERVER_APP_RAISED in line or traceback:
                    traceback.append(line)
                elif is_for_user(line):
                    output(line)
        if not end and time.monotonic() - last_contact > RECONNECT_SECONDS:
            raise ConnectionLost(f"nothing more was heard of the run {run}")
        if not end:
            polling.sleep()
    if "error" in end:
        raise FedsimError(end["error"])
    if not any("fedsim.errors." in line for line in traceback):  # the status holds their message already
        for line in traceback:
            output(line)
    return end["status"]


def is_for_user(line: str) -> bool:
    """Whether a line is output of the ServerApp and not a message of Flower itself."""
    return bool(line.strip()) and "INFO" not in line[:12] and not any(words in line for words in FLOWER_MESSAGES)
