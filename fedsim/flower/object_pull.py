"""Shorter waits for the objects of a message.

A message is announced before all of its objects (arrays, chunks) have arrived at the SuperLink. Flower retries a missing
object after 1 s, then 2 s, and so on; the first wait alone would be most of a round.

Private part of Flower: the default of `initial_backoff` in the two functions that pull objects.
"""

from typing import Any

from flwr.supercore.inflatable import inflatable_utils

FIRST_RETRY = 0.02  # seconds; doubled with every attempt, as in Flower
PULL_FUNCTIONS: tuple[Any, ...] = (
    inflatable_utils.pull_objects,
    inflatable_utils.pull_and_inflate_object_from_tree,
)


def retry_sooner() -> None:
    """Sets the first wait to `FIRST_RETRY`, in this process and in those it forks."""
    for pull in PULL_FUNCTIONS:
        pull.__kwdefaults__["initial_backoff"] = FIRST_RETRY
