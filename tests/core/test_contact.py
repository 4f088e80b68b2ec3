"""Waiting for a SuperLink that is away."""

from threading import Event

import pytest

from fedsim import contact
from fedsim.contact import reach
from fedsim.errors import FedsimError


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contact, "SILENCE", 0.02)


def test_an_answer_at_once_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert reach(lambda: 7, timeout=60) == 7
    assert capsys.readouterr().out == ""


def test_silence_is_told_and_so_is_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    back, lines = Event(), list[str]()

    def link() -> int:
        back.wait(60)
        return 7

    def tell(text: str, flush: bool) -> None:
        """The SuperLink comes back as soon as its absence was told."""
        lines.append(text)
        back.set()

    monkeypatch.setattr(contact, "print", tell, raising=False)
    assert reach(link, timeout=60) == 7
    lost, found = lines
    assert lost.startswith("no answer from the SuperLink")
    assert found.startswith("the SuperLink answers again")


def test_it_gives_up_in_the_end() -> None:
    with pytest.raises(FedsimError, match=r"the SuperLink did not answer for 0 s"):
        reach(lambda: Event().wait(60), timeout=0.05)


@pytest.mark.parametrize("error", [ValueError("no such run"), TimeoutError("of its own")])
def test_what_the_call_raises_is_raised(error: Exception) -> None:
    def fail() -> None:
        raise error

    with pytest.raises(type(error), match=str(error)):
        reach(fail, timeout=60)
