"""A run elsewhere is shown by what it prints."""

import pytest

from fedsim.results.progress import Lines, Relay, Silent


class Noted(Silent):
    def __init__(self) -> None:
        self.seen: list[object] = []

    def begin(self, title: str, rounds: int, done: int = 0) -> None:
        self.seen.append((title, rounds, done))

    def round(self, number: int) -> None:
        self.seen.append(number)

    def evaluated(self, number: int, text: str) -> None:
        self.seen.append(text)


def test_the_lines_of_one_end_are_the_bar_of_the_other(capsys: pytest.CaptureFixture[str]) -> None:
    lines, noted = Lines(), Noted()
    lines.begin("spfl on digits/iid", 4, 2)
    lines.evaluated(3, "personal 0.512")
    lines.evaluated(4, "personal 0.777")
    said, relay = capsys.readouterr().out.splitlines(), Relay(noted)
    for line in [*said, "client 1 is lost"]:
        relay(line)
    assert noted.seen == [("spfl on digits/iid", 4, 2), 3, "personal 0.512", 4, "personal 0.777"]
    assert capsys.readouterr().out == "client 1 is lost\n"
