"""Contact with the SuperLink. Flower's own calls try again for ever and in silence while it is away."""

import time
from collections.abc import Callable
from concurrent.futures import Future
from threading import Thread
from typing import TypeVar

from fedsim.errors import FedsimError

T = TypeVar("T")
SILENCE = 5.0  # seconds without an answer after which the user is told


def reach(call: Callable[[], T], timeout: float) -> T:
    """What a call brings; says when it takes long and when it is over, and gives up after `timeout` seconds."""
    answer: Future[T] = Future()
    began = time.monotonic()
    Thread(target=_fulfil, args=(answer, call), daemon=True).start()
    try:
        return answer.result(min(SILENCE, timeout))
    except TimeoutError:
        if answer.done():  # the call itself ran into a time limit
            raise
    print(f"no answer from the SuperLink for {SILENCE:.0f} s: trying again for {timeout:.0f} s", flush=True)
    try:
        result = answer.result(max(0.0, began + timeout - time.monotonic()))
    except TimeoutError:
        if answer.done():
            raise
        raise FedsimError(f"the SuperLink did not answer for {timeout:.0f} s") from None
    print(f"the SuperLink answers again, after {time.monotonic() - began:.0f} s", flush=True)
    return result


def _fulfil(answer: "Future[T]", call: Callable[[], T]) -> None:
    try:
        answer.set_result(call())
    except BaseException as error:
        answer.set_exception(error)
