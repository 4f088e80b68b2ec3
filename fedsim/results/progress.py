"""How far a run is, for the user: a bar on a terminal, plain lines in a log."""

import logging
import re
import sys
from typing import Protocol

log = logging.getLogger(__name__)
LINES = 20  # about so many lines in a log, however long the run


class Progress(Protocol):
    """Shows how far a run is."""

    def begin(self, title: str, rounds: int, done: int = 0) -> None: ...

    def within(self, rounds: float) -> None:
        """So many rounds are done; the fraction is the current one."""

    def round(self, number: int) -> None:
        """Round `number` is done."""

    def evaluated(self, number: int, text: str) -> None:
        """The accuracies after round `number` are known; `text` names them."""

    def end(self) -> None: ...


class Bar:
    """A live bar for a terminal."""

    def begin(self, title: str, rounds: int, done: int = 0) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as RichProgress

        columns = (
            TextColumn("[bold]{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[text]}"),
        )
        self._bar = RichProgress(*columns)
        self._task = self._bar.add_task(title, total=rounds, completed=done, text="")
        self._bar.start()

    def within(self, rounds: float) -> None:
        self._bar.update(self._task, completed=int(rounds * 100) / 100)

    def round(self, number: int) -> None:
        self._bar.update(self._task, completed=number)

    def evaluated(self, number: int, text: str) -> None:
        self._bar.update(self._task, text=f"after {number}: {text}")

    def end(self) -> None:
        self._bar.stop()


class Lines:
    """Plain lines for a log, at most about LINES of them."""

    def begin(self, title: str, rounds: int, done: int = 0) -> None:
        self._title, self._rounds, self._next = title, rounds, 0.0
        print(f"{title}: {rounds} rounds" + (f", {done} already done" if done else ""), flush=True)

    def within(self, rounds: float) -> None:
        pass

    def round(self, number: int) -> None:
        pass

    def evaluated(self, number: int, text: str) -> None:
        if number == self._rounds or number >= self._next:
            self._next = number + self._rounds / LINES
            print(f"{self._title}: after round {number}/{self._rounds}  {text}", flush=True)

    def end(self) -> None:
        pass


class Relay:
    """Shows the progress of a remote run from the lines that `Lines` prints there; prints all other lines as they are."""

    LINE = re.compile(
        r"(?P<title>.+): (?:(?P<rounds>\d+) rounds(?:, (?P<done>\d+) already done)?"
        r"|after round (?P<number>\d+)/\d+  (?P<text>.*))"
    )

    def __init__(self, bar: Progress) -> None:
        self._bar, self._begun = bar, False

    def __call__(self, line: str) -> None:
        found = self.LINE.fullmatch(line)
        if found is None:
            print(line, flush=True)
        elif found["rounds"]:
            self._bar.begin(found["title"], int(found["rounds"]), int(found["done"] or 0))
            self._begun = True
        elif self._begun:
            self._bar.round(int(found["number"]))
            self._bar.evaluated(int(found["number"]), found["text"])

    def end(self) -> None:
        if self._begun:
            self._bar.end()


class Silent:
    """Shows nothing."""

    def begin(self, title: str, rounds: int, done: int = 0) -> None:
        pass

    def within(self, rounds: float) -> None:
        pass

    def round(self, number: int) -> None:
        pass

    def evaluated(self, number: int, text: str) -> None:
        pass

    def end(self) -> None:
        pass


class Logged:
    """Messages of the logger, one per round and evaluation."""

    def begin(self, title: str, rounds: int, done: int = 0) -> None:
        self._rounds = rounds
        log.info("%s: %d rounds, %d already done", title, rounds, done)

    def within(self, rounds: float) -> None:
        pass

    def round(self, number: int) -> None:
        log.info("round %d of %d is done", number, self._rounds, extra={"round": number})

    def evaluated(self, number: int, text: str) -> None:
        log.info("after round %d: %s", number, text, extra={"round": number})

    def end(self) -> None:
        pass


def for_output(form: str = "text") -> Progress:
    """Messages if the output is JSON; else a bar if standard output is a terminal, and lines otherwise."""
    if form == "json":
        return Logged()
    return Bar() if sys.stdout.isatty() else Lines()
