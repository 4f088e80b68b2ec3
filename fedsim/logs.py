"""Messages for the user. The core logs them below the logger `fedsim`; command line and ServerApp print them.

With `log-format=json` every message is one JSON object: time, level, logger, message, the run, and the client and the round
that it is about. A message is about a client if it was logged with `extra={"client": id}`.
"""

import json
import logging
from datetime import UTC, datetime

LOGGER = logging.getLogger("fedsim")
ABOUT = ("client", "round")  # attributes of a record that a JSON line holds, too
context: dict[str, object] = {}  # what every JSON line of this process holds: the run


class StandardOutput(logging.Handler):
    """Prints each message as a line to whatever `sys.stdout` is at that moment."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            print(self.format(record), flush=True)
        except Exception:
            self.handleError(record)


class JsonFormatter(logging.Formatter):
    """A message as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        about = {name: getattr(record, name) for name in ABOUT if hasattr(record, name)}
        told = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            told["exception"] = self.formatException(record.exc_info)
        return json.dumps({**told, **context, **about}, default=str)


def print_messages(form: str | None = None) -> None:
    """Prints the messages of this process from level INFO on, as `text` or `json`; None: as before, at first as text."""
    handlers = [handler for handler in LOGGER.handlers if isinstance(handler, StandardOutput)]
    if not handlers:
        handlers = [StandardOutput()]
        LOGGER.addHandler(handlers[0])
        LOGGER.setLevel(logging.INFO)
    if form is not None:
        handlers[0].setFormatter(JsonFormatter() if form == "json" else None)
