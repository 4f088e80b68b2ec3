"""Calls to a SuperLink that does not answer."""

import logging
from collections.abc import Iterator
from threading import Event

import pytest
from flwr.app import Message, RecordDict

from fedsim.config import RunConfig
from fedsim.engine.inline import InlineGrid
from fedsim.errors import FedsimError
from fedsim.flower.grid import set_message_id
from fedsim.transport import grid, wire
from fedsim.transport.grid import call_superlink, known_replies


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grid, "SILENCE", 0.02)


class Lines(logging.Handler):
    """Keeps messages, and sets an event with each."""

    def __init__(self) -> None:
        super().__init__()
        self.lines, self.told = list[str](), Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())
        self.told.set()


@pytest.fixture
def lines() -> Iterator[Lines]:
    handler = Lines()
    grid.log.addHandler(handler)
    yield handler
    grid.log.removeHandler(handler)


def test_an_answer_at_once_says_nothing(lines: Lines) -> None:
    assert call_superlink(lambda: 7, timeout=60) == 7
    assert lines.lines == []


def test_silence_is_told_and_so_is_its_end(lines: Lines) -> None:
    """The SuperLink answers as soon as its silence was told."""

    def link() -> int:
        lines.told.wait(60)
        return 7

    assert call_superlink(link, timeout=60) == 7
    lost, found = lines.lines
    assert lost.startswith("no answer from the SuperLink")
    assert found.startswith("the SuperLink answers again")


def test_it_gives_up_in_the_end() -> None:
    with pytest.raises(FedsimError, match=r"the SuperLink did not answer for 0 s"):
        call_superlink(lambda: Event().wait(60), timeout=0.05)


@pytest.mark.parametrize("error", [ValueError("no such run"), TimeoutError("of its own")])
def test_what_the_call_raises_is_raised(error: Exception) -> None:
    def fail() -> None:
        raise error

    with pytest.raises(type(error), match=str(error)):
        call_superlink(fail, timeout=60)


def test_replies_that_nobody_asked_for_are_left_out(caplog: pytest.LogCaptureFixture) -> None:
    def reply(to: str) -> Message:
        order = wire.pack_query(7, wire.ALIVE, 60)
        set_message_id(order, to)
        return Message(RecordDict(), reply_to=order)

    InlineGrid(RunConfig())  # Flower makes messages on behalf of a task
    first, second = reply("a"), reply("a")
    assert known_replies([first, second, reply("b")], {"a", "c"}) == [first]
    told = [record.getMessage() for record in caplog.records]
    assert told == [
        "a second reply from node 7 is left out",
        "a reply to a message that was not sent, or not by this run, from node 7 is left out",
    ]
