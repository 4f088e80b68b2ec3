"""The passphrase of the CA's key: from a file, from the environment, or asked for at the terminal."""

import os
import sys
from getpass import getpass
from pathlib import Path

from fedsim.deploy.pki import Passphrase, no_passphrase
from fedsim.errors import ConfigError

VARIABLE = "FEDSIM_CA_PASSPHRASE"
SHORTEST = 12  # characters


def source(file: Path | None) -> Passphrase:
    """Where the passphrase comes from when a key needs it."""

    def ask() -> bytes:
        if file is not None:
            return _from_file(file)
        if VARIABLE in os.environ:
            return os.environ[VARIABLE].encode()
        if not sys.stdin.isatty():
            return no_passphrase()
        return getpass("passphrase of the CA's key: ").encode()

    return ask


def new(file: Path | None) -> bytes:
    """A passphrase for new keys; at the terminal it is asked for twice. Raises ConfigError if it is too short."""
    if file is not None or VARIABLE in os.environ:
        chosen = source(file)()
    elif sys.stdin.isatty():
        chosen = getpass("new passphrase of the CA's key: ").encode()
        if getpass("again: ").encode() != chosen:
            raise ConfigError("the two passphrases are not the same")
    else:
        raise ConfigError(f"there is no terminal to ask for a passphrase: use --passphrase-file FILE or {VARIABLE}")
    if len(chosen) < SHORTEST:
        raise ConfigError(f"a passphrase of the CA's key has at least {SHORTEST} characters")
    return chosen


def _from_file(path: Path) -> bytes:
    try:
        return path.read_bytes().rstrip(b"\r\n")
    except OSError as error:
        raise ConfigError(f"the passphrase cannot be read from {path}: {error.strerror}") from error
