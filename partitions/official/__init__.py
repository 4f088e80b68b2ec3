"""Datasets from the files that their authors publish, below the data root.

Every reader is called with the dataset's description, the published file or folder, the parameters of the data and a
scratch folder; it returns a `Raw`, and raises ConfigError with the file that cannot be used.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedsim.errors import ConfigError


@contextmanager
def reading(file: Path) -> Iterator[None]:
    """Errors of what is read inside name the file."""
    try:
        yield
    except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
        told = f"it lacks {error}" if isinstance(error, KeyError) else str(error).splitlines()[0]
        raise ConfigError(f"{file} cannot be read as published: {told}") from error
