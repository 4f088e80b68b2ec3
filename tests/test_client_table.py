"""Tables with a row per client: the same results from memory and from files, and nothing left of the files."""

import gc
import resource
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsim import available_memory, registry
from fedsim import client_table as client_tables
from fedsim.client_table import client_table, is_in_file, table_fields
from fedsim.config import RunConfig
from fedsim.engine.launch import launch
from fedsim.errors import FedsimError
from fedsim.results import checkpoint as checkpoints
from fedsim.results import working
from fedsim.results.record import read_summary

TABLES = {
    "apple": ["cores"],
    "cfl": ["deltas"],
    "fedfomo": ["models"],
    "fedma-growth": ["models"],
    "fedma-layerwise": ["models"],
    "fedmtl": ["models"],
    "spfl": ["models"],
    "spfl-w": ["models"],
    "fedamp": ["models", "clouds"],
    "heurfedamp": ["models", "clouds"],
    "plga": ["personal"],
    "twafl": ["models"],
    "fedgc": ["rows"],
    "fedpac": ["heads"],
    "fedpcl": ["prototypes"],
    "fedproto": ["prototypes"],
    "feddistill": ["predictions"],
    "kt-pfl": ["predictions"],
}
ROW = np.arange(300_000, dtype=np.float32)  # 1.2 MB
Small = Callable[..., RunConfig]


@pytest.fixture
def config(small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., RunConfig]:
    """A run with tables of 6 models (1.3 MB) or of less (2.4 kB and more); `server-memory` counts in units of 2 kB."""
    monkeypatch.setattr(client_tables, "MB", 2_000)

    def make(name: str, folder: str, *keys: str) -> RunConfig:
        settings = [f"algorithm={name}", "clients=6", "model=mlp", "rounds=4", "twafl.loop=2", "twafl.deep-rounds=1"]
        return small(*settings, "fedma-growth.sweeps=0", f"out={tmp_path / folder}", *keys)

    return make


@pytest.fixture
def saved_states(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """The states of the server that were saved, in order."""
    states: list[Any] = []
    save = checkpoints.save

    def save_and_keep(folder: Path, checkpoint: Any) -> None:
        states.append(checkpoint.state)
        save(folder, checkpoint)

    monkeypatch.setattr(checkpoints, "save", save_and_keep)
    yield states
    states.clear()


def in_files(state: Any) -> dict[str, bool]:
    return {name: is_in_file(getattr(state, name)) for name in table_fields(type(state))}


def mapped_files(folder: Path) -> list[str]:
    """The files of a folder that this process has mapped, also those without a name; not the one for `fedsim watch`."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return [line for line in lines if str(folder.resolve()) in line and not line.endswith(f"/{working.FILE}")]


def test_a_table_holds_the_row_of_every_client(tmp_path: Path) -> None:
    for memory, expected in ((1, True), (3, False)):
        table = client_table(RunConfig(server_memory=memory, out=str(tmp_path)), ROW, 2)
        assert is_in_file(table) is expected
        assert (table.shape, table.dtype, type(table)) == ((2, ROW.size), np.float32, np.ndarray)
        assert (table == ROW).all()
        table[1] += 1
        assert (table[0] == ROW).all()
        assert (table[1] == ROW + 1).all()


def test_several_tables_share_the_memory(tmp_path: Path) -> None:
    assert is_in_file(client_table(RunConfig(server_memory=3, out=str(tmp_path)), ROW, 2, tables=2))


def test_by_default_half_of_the_available_memory_is_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    config = RunConfig(out=str(tmp_path))
    assert not is_in_file(client_table(config, ROW, 2))
    monkeypatch.setattr(available_memory, "available", lambda: 4 * ROW.nbytes)
    assert not is_in_file(client_table(config, ROW, 2))
    assert is_in_file(client_table(config, ROW, 3))


def test_the_limit_of_a_container_counts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert available_memory.available() > 0
    limit, used = tmp_path / "memory.max", tmp_path / "memory.current"
    monkeypatch.setattr(available_memory, "LIMITS", ((limit, used),))
    used.write_text("1000\n")
    limit.write_text("1500\n")
    assert available_memory.available() == 500
    limit.write_text("max\n")
    assert available_memory.available() > 500


def test_a_file_that_cannot_be_written_is_an_error_that_names_the_settings(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (ROW.nbytes, before[1]))
    try:
        with pytest.raises(FedsimError, match=r"2 clients x 300000 .* file of 2 MB cannot be written in .*: File too"):
            client_table(RunConfig(server_memory=1, out=str(tmp_path)), ROW, 2)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", TABLES)
def test_files_give_the_same_weights_as_memory(name: str, config: Any, saved_states: list[Any]) -> None:
    memory, file = config(name, "memory"), config(name, "file", "server-memory=1")
    launch(memory, "inline")
    assert in_files(saved_states[-1]) == dict.fromkeys(TABLES[name], False)
    launch(file, "inline")
    assert in_files(saved_states[-1]) == dict.fromkeys(TABLES[name], True)
    summaries = [read_summary(Path(each.out)) for each in (memory, file)]
    assert summaries[0]["weights_sha256"] == summaries[1]["weights_sha256"]
    assert summaries[0]["accuracy"] == summaries[1]["accuracy"]


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize(("first", "second"), [(1, 1), (0, 1), (1, 0)])
def test_a_run_is_resumed_with_its_tables_in_files_or_in_memory(
    name: str, first: int, second: int, config: Any, saved_states: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = config(name, "whole", f"server-memory={first}")
    copy = config(name, "copy", f"server-memory={second}").replace(resume=True)
    save = checkpoints.save

    def save_and_copy(folder: Path, checkpoint: Any) -> None:
        save(folder, checkpoint)
        if checkpoint.step == 2:
            shutil.copytree(whole.out, copy.out)

    monkeypatch.setattr(checkpoints, "save", save_and_copy)
    launch(whole, "inline")
    monkeypatch.setattr(checkpoints, "save", save)
    launch(copy, "inline")
    assert in_files(saved_states[-1]) == dict.fromkeys(TABLES[name], bool(second))
    sha256 = [read_summary(Path(each.out))["weights_sha256"] for each in (whole, copy)]
    assert sha256[0] == sha256[1]


def test_no_file_is_left_after_the_run(config: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    during: list[list[str]] = []
    save = checkpoints.save

    def save_and_look(folder: Path, checkpoint: Any) -> None:
        save(folder, checkpoint)
        during.append(mapped_files(folder))

    monkeypatch.setattr(checkpoints, "save", save_and_look)
    run = config("fedamp", "run", "server-memory=1")
    launch(run, "inline")
    gc.collect()
    assert [len(each) for each in during] == [2] * 4
    assert all("(deleted)" in line for each in during for line in each)  # without a name from the beginning
    assert mapped_files(Path(run.out)) == []
    reference = config("fedamp", "reference")
    launch(reference, "inline")
    assert {p.name for p in Path(run.out).iterdir()} == {p.name for p in Path(reference.out).iterdir()}


def test_every_strategy_keeps_its_models_in_such_tables() -> None:
    """What `TABLES` lists is what the states of all algorithms declare."""
    found = {}
    for name in registry.names("algorithm"):
        init = registry.find("algorithm", name).server.init
        state = init.__globals__[init.__annotations__["return"].__name__]
        if fields := table_fields(state):
            found[name] = fields
    assert found == TABLES
