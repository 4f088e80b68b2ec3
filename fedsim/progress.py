"""How far a run is: a bar on a terminal, plain lines in a log."""

import re
import sys
from typing import Protocol

LINES = 20  # about so many lines in a log, however long the run


class Progress(Protocol):
    """Something to tell the user about a run."""

    def begin(self, title: str, rounds: int, done: int = 0) -> None: ...

    def within(self, rounds: float) -> None:
        """Part of a round is done."""

    def round(self, number: int) -> None:
        """The server has stepped."""

    def evaluated(self, number: int, text: str) -> None:
        """The accuracies after this round are known."""

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
    """One plain line for every few evaluations."""

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
    """Shows a run elsewhere as a bar here: reads the lines that `Lines` prints there, and passes on all others."""

    TOLD = re.compile(
        r"(?P<title>.+): (?:(?P<rounds>\d+) rounds(?:, (?P<done>\d+) already done)?"
        r"|after round (?P<number>\d+)/\d+  (?P<text>.*))"
    )

    def __init__(self, bar: Progress) -> None:
        self._bar, self._begun = bar, False

    def __call__(self, line: str) -> None:
        told = self.TOLD.fullmatch(line)
        if told is None:
            print(line, flush=True)
        elif told["rounds"]:
            self._bar.begin(told["title"], int(told["rounds"]), int(told["done"] or 0))
            self._begun = True
        elif self._begun:
            self._bar.round(int(told["number"]))
            self._bar.evaluated(int(told["number"]), told["text"])

    def end(self) -> None:
        if self._begun:
            self._bar.end()


class Silent:
    """Says nothing."""

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


def for_output() -> Progress:
    return Bar() if sys.stdout.isatty() else Lines()
