"""What can go wrong, said to the user in one line that names the culprit and the valid choices."""

from collections.abc import Iterable
from difflib import get_close_matches
from typing import NoReturn


class FedsimError(Exception):
    """A problem the user can act on; the command line prints it without a traceback and exits with `exit_code`."""

    exit_code = 1


class ConfigError(FedsimError):
    """The request itself is wrong: an unknown key, a value out of range, a dataset that is not there."""

    exit_code = 2


class WireError(FedsimError):
    """A message holds something it must not: a missing vector, a wrong length, NaN."""


class StorageError(FedsimError):
    """A file cannot be written: the disk is full, the folder belongs to somebody else, ..."""


class DamagedError(FedsimError):
    """A file does not hold what was written into it: bits have changed, or its end is missing."""


def unknown(what: str, name: str, choices: Iterable[str], further: Iterable[str] = ()) -> NoReturn:
    """Refuse `name`, listing the choices and the one that was probably meant, which may also be one of `further`."""
    raise ConfigError(unknown_text(what, name, choices, further))


def unknown_text(what: str, name: str, choices: Iterable[str], further: Iterable[str] = ()) -> str:
    known = sorted(choices)
    near = get_close_matches(name, [*known, *further], n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return f"unknown {what} {name!r}.{hint} Choices: {', '.join(known) or '(none)'}"
