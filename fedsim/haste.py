"""Asking sooner. A message is announced before all its parts have arrived, and Flower waits a second, then two, before it
asks again for a part that is still on its way. That second would be most of a round: here it begins with a fiftieth."""

from typing import Any

from flwr.supercore.inflatable import inflatable_utils

FIRST = 0.02  # seconds; doubled with every attempt, as in Flower


def ask_sooner() -> None:
    """For this process, and those it forks."""
    pulls: tuple[Any, ...] = (inflatable_utils.pull_objects, inflatable_utils.pull_and_inflate_object_from_tree)
    for pull in pulls:
        if "initial_backoff" in (pull.__kwdefaults__ or {}):  # else another Flower, which may not wait
            pull.__kwdefaults__["initial_backoff"] = FIRST
