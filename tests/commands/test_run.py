"""What `fedsim run` prints at its end."""

from fedsim.commands.run import failure_lines


def test_failures_are_counted_by_their_reason() -> None:
    failures = [
        {"client": 3, "round": 2, "reason": "KeyError: 'targets' (my.py:7)"},
        {"client": 4, "round": 2, "reason": "KeyError: 'targets' (my.py:7)"},
        {"client": 1, "round": 5, "reason": "dropped out"},
    ]
    assert failure_lines(failures) == [
        "failed: client 3 in round 2: KeyError: 'targets' (my.py:7) (and 1 more like it)",
        "failed: client 1 in round 5: dropped out",
    ]
    assert failure_lines([]) == []
