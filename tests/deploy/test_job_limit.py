"""Jobs that hang are ended, in a process of their own as the executor makes them."""

import os
import signal
import time

import pytest

from fedsim.deploy import executor, job_limit
from fedsim.errors import FedsimError


def in_child(work: object) -> int:
    """The exit code of a process that does this; -N if signal N ended it."""
    if child := os.fork():
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    try:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        work()  # type: ignore[operator]
    except FedsimError as error:
        os._exit(3 if str(error) == "the job took longer than 0.1 seconds and was ended" else 4)
    except BaseException:
        os._exit(5)
    os._exit(0)


def hangs() -> None:
    with job_limit.limited(0.1):
        time.sleep(60)


def cannot_be_interrupted() -> None:
    with job_limit.limited(0.1):
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
        time.sleep(60)


def is_in_time() -> None:
    with job_limit.limited(0.1):
        pass
    time.sleep(0.3)


def test_a_job_that_hangs_ends_with_an_error_that_says_so() -> None:
    assert in_child(hangs) == 3


def test_one_that_cannot_be_interrupted_ends_with_its_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_limit, "GRACE", 0.1)
    assert in_child(cannot_be_interrupted) == 1


def test_one_that_ends_in_time_is_left_alone() -> None:
    assert in_child(is_in_time) == 0


def test_the_executor_ends_a_process_that_never_gets_its_message(monkeypatch: pytest.MonkeyPatch) -> None:
    """`run_in_child` forks, so this test waits for the child as its parent."""
    monkeypatch.setattr(executor, "OTHER_SECONDS", 0.1)
    monkeypatch.setattr(executor, "run_client_app", lambda *_: time.sleep(60))
    executor.run_in_child("nowhere", "token")
    assert os.waitstatus_to_exitcode(os.wait()[1]) == 1
