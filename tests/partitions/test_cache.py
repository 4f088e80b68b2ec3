"""The cache of datasets and splits: what was damaged since it was written is found, named and made again."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedsim import config as configs
from fedsim import registry
from fedsim.config import RunConfig
from fedsim.errors import ConfigError
from fedsim.partitions import cache, client_data, datasets, iid
from fedsim.partitions.split import Share
from tests.system_tools import program


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FEDSIM_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def config() -> RunConfig:
    return configs.read(None, ["clients=4", "partition=dirichlet"])


def read() -> list[bytes]:
    """Everything that the clients hold."""
    source = client_data.ClientDataSource(config())
    held = [source.client(client) for client in range(4)]
    return [array.tobytes() for data in held for array in (data.x_train, data.y_train, data.x_test, data.y_test)]


def folder(home: Path, kind: str) -> Path:
    (found,) = [path for path in (home / kind).iterdir() if path.is_dir()]
    return found


def replaced(path: Path, content: bytes) -> None:
    """Writes another content; the time of the file differs however coarse the clock of the file system is."""
    path.write_bytes(content)
    os.utime(path, ns=(0, time.time_ns()))


def flipped(content: bytes) -> bytes:
    changed = bytearray(content)
    changed[len(changed) // 2] ^= 1
    return bytes(changed)


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "a flipped bit": flipped,
    "zeros": lambda content: bytes(len(content)),
    "a cut": lambda content: content[:-1],
    "nothing": lambda content: b"",
}
DAMAGED = [
    *(("datasets", "x_train.npy", damage) for damage in DAMAGES),
    *(("datasets", name, "a flipped bit") for name in ("y_train.npy", "about.json", "contents.json")),
    *(("splits", name, "a flipped bit") for name in ("train_ends.npy", "transform.npy", "contents.json")),
    ("splits", "train.npy", "zeros"),
]


@pytest.mark.parametrize(("kind", "name", "damage"), DAMAGED)
def test_a_damaged_file_is_named_and_made_again(
    kind: str, name: str, damage: str, home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    expected = read()
    path = folder(home, kind) / name
    before = path.read_bytes()
    replaced(path, DAMAGES[damage](before))
    assert read() == expected
    assert f"{path} is damaged" in caplog.text or f"{path.parent} is damaged" in caplog.text
    assert "it is made again" in caplog.text
    assert path.read_bytes() == before


def test_indices_of_another_split_are_found(home: Path) -> None:
    expected = read()
    path = folder(home, "splits") / "train.npy"
    indices = np.load(path)
    np.save(path, indices[::-1])
    os.utime(path, ns=(0, 0))
    assert read() == expected


def test_the_folder_of_another_split_in_its_place_is_found(home: Path, caplog: pytest.LogCaptureFixture) -> None:
    expected, wanted = read(), folder(home, "splits")
    wanted.rename(home / "aside")
    client_data.shares(config().replace(seed=1))
    other = folder(home, "splits")
    other.rename(wanted)
    assert read() == expected
    assert f"{wanted} is damaged: it holds {other.name}" in caplog.text


def test_a_file_that_does_not_belong_there_is_not_read(home: Path) -> None:
    expected = read()
    np.save(folder(home, "datasets") / "users.npy", np.array(["someone"] * 1797))
    assert read() == expected
    assert not (folder(home, "datasets") / "users.npy").exists()


def test_a_missing_file_is_made_again(home: Path) -> None:
    expected = read()
    (folder(home, "datasets") / "y_test.npy").unlink()
    assert read() == expected


def test_a_folder_of_an_older_version_is_made_again(home: Path, caplog: pytest.LogCaptureFixture) -> None:
    expected = read()
    (folder(home, "datasets") / "contents.json").unlink()
    assert read() == expected
    assert "has no contents.json: it is made again" in caplog.text


def test_files_are_hashed_only_when_they_changed_and_once_a_day(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hashed: list[str] = []
    file_digest = cache._file_digest

    def observed(path: Path) -> str:
        hashed.append(path.name)
        return file_digest(path)

    monkeypatch.setattr(cache, "_file_digest", observed)

    def in_a_new_process() -> list[str]:
        hashed.clear()
        cache._verified.clear()
        datasets.load("digits")
        return sorted(hashed)

    everything = ["about.json", "x_test.npy", "x_train.npy", "y_test.npy", "y_train.npy"]
    assert in_a_new_process() == everything  # as it is made
    assert in_a_new_process() == []
    os.utime(folder(home, "datasets") / "y_test.npy", ns=(0, 0))
    assert in_a_new_process() == everything
    assert in_a_new_process() == []
    verified = folder(home, "datasets") / "verified.json"
    known = json.loads(verified.read_text())
    for moment in (time.time() - 90_000, time.time() + 90_000):  # a day ago; a clock that was set back since
        verified.write_text(json.dumps({"time": moment, "files": known["files"]}))
        assert in_a_new_process() == everything


def test_a_cache_that_belongs_to_somebody_else_is_verified_by_every_process(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = read()
    for kind in ("datasets", "splits"):
        (folder(home, kind) / "verified.json").unlink()
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may write everywhere
    cache._verified.clear()
    assert read() == expected
    assert not list(home.rglob("verified.json"))


def test_a_split_of_samples_that_are_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    dealt, find = [0, 0], registry.find
    wrong = replace(iid.IID, split=lambda *_: [Share(np.array(dealt), np.array([1]))] * 4)
    monkeypatch.setattr(registry, "find", lambda kind, name: wrong if name == "iid" else find(kind, name))
    for dealt[1] in (-1, 1797):
        told = f"partition=iid deals the sample {dealt[1]}; samples run from 0 to 1796"
        with pytest.raises(ConfigError, match=told):
            client_data.shares(configs.read(None, ["clients=4"]))


ON_A_FULL_DISK = """
mount -t tmpfs -o size=1m none "$1" && exec "$0" -c '
import os, sys
from fedsim import cli
os.environ["FEDSIM_CACHE"] = sys.argv[1]
sys.exit(cli.main(["data", "large", "--root", sys.argv[2]]))
' "$@"
"""


@pytest.mark.needs("mounts")
def test_a_dataset_that_does_not_fit_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    """A mapped file would be a bus error: the system cannot tell a program in any other way that there is no room."""
    pixels = np.random.default_rng(0).integers(0, 256, (100, 128, 128), np.uint8)
    labels = np.arange(100) % 10
    np.savez(tmp_path / "large.npz", x_train=pixels, y_train=labels, x_test=pixels[:20], y_test=labels[:20])
    (tmp_path / "full").mkdir()
    script = ["sh", "-c", ON_A_FULL_DISK, sys.executable, str(tmp_path / "full"), str(tmp_path)]
    done = subprocess.run([str(program("unshare")), "--mount", *script], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "x_train.npy: No space left on device. It belongs to the cache" in done.stderr
    assert "Traceback" not in done.stderr
