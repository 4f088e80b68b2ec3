"""Messages for the user. The core logs them below the logger `fedsim`; command line and ServerApp print them."""

import logging

LOGGER = logging.getLogger("fedsim")


class StandardOutput(logging.Handler):
    """Prints each message as a plain line to whatever `sys.stdout` is at that moment."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            print(self.format(record), flush=True)
        except Exception:
            self.handleError(record)


def print_messages() -> None:
    """Prints the messages of this process from level INFO on; further calls change nothing."""
    if not any(isinstance(handler, StandardOutput) for handler in LOGGER.handlers):
        LOGGER.addHandler(StandardOutput())
        LOGGER.setLevel(logging.INFO)
