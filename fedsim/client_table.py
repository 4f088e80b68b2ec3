"""Tables with a row per client, such as the models of all clients: in memory, or in a file if memory is too small."""

import mmap
from pathlib import Path
from tempfile import TemporaryFile, gettempdir
from typing import Annotated, Any, get_type_hints

import numpy as np
from numpy.typing import NDArray

from fedsim import available_memory
from fedsim.config import RunConfig
from fedsim.errors import FedsimError
from fedsim.weights import Vec

MB = 1_000_000
ClientTable = Annotated[NDArray[np.float32], "a row per client"]  # the type of such a field in a strategy's state


def client_table(config: RunConfig, row: Vec, clients: int, tables: int = 1) -> ClientTable:
    """A table in which every client has `row`; `tables` is how many of this size the strategy keeps.

    If these need more than `server-memory`, the table is memory-mapped from a file in the run folder. The file has no
    name: the system removes it with the table, however the process ends. Raises FedsimError if it cannot be written.
    """
    allowed = config.server_memory * MB or available_memory.available() // 2
    if tables * clients * row.nbytes > allowed:
        return _in_file(config, row, clients)
    table = np.empty((clients, row.size), np.float32)
    table[:] = row
    return table


def is_in_file(table: ClientTable) -> bool:
    """Whether `client_table` put this table into a file."""
    return isinstance(table.base, mmap.mmap)


def table_fields(state: type[Any]) -> list[str]:
    """The fields of a strategy's state that are tables with a row per client."""
    return [name for name, hint in get_type_hints(state, include_extras=True).items() if hint == ClientTable]


def _in_file(config: RunConfig, row: Vec, clients: int) -> ClientTable:
    folder = Path(config.out) if config.out and Path(config.out).is_dir() else Path(gettempdir())
    size = clients * row.nbytes
    try:
        with TemporaryFile(dir=folder) as file:
            for _ in range(clients):  # written, not sparse: a full disk is an error here instead of a crash later
                file.write(row.data)
            file.flush()
            return np.ndarray((clients, row.size), np.float32, buffer=mmap.mmap(file.fileno(), size))
    except OSError as error:
        raise FedsimError(
            f"the table of {clients} clients x {row.size} parameters exceeds server-memory, and its file of "
            f"{size / MB:,.0f} MB cannot be written in {folder}: {error.strerror}. "
            "Raise server-memory, or choose a run folder (out) on a larger disk"
        ) from error
