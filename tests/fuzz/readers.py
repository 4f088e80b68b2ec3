"""Everything that reads a file or a text of a user, with valid inputs to start from."""

import io
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from fedsim import config as configs
from fedsim.client.state_store import StateStore
from fedsim.config import DataParams
from fedsim.deploy import inventory
from fedsim.files import EMPTY, SEAL, write_json, write_npz
from fedsim.partitions import cache, readers, table_files
from fedsim.partitions.catalogue import Single
from fedsim.partitions.large_arrays import Scratch
from fedsim.payload import Answer, ClientState, Downlink, Job, Report, RunIdentity, Uplink
from fedsim.results import checkpoint as checkpoints
from fedsim.results.checkpoint import Checkpoint
from fedsim.results.events import EVENTS, EventLog, read_events
from fedsim.results.record import MANIFEST, read_manifest
from fedsim.server.clock import PendingJob
from fedsim.server.stragglers import Trace
from fedsim.sweeps.sweep_file import preset_texts, read_sweep
from fedsim.weights import Weights


@dataclass(frozen=True)
class Reader:
    """`valid` makes inputs in an empty folder; `read` reads one there and raises FedsimError if it cannot be used."""

    valid: Callable[[Path], Sequence[bytes]]
    read: Callable[[bytes, Path], object]


def _written(write: Callable[[Path], object]) -> bytes:
    """What a writer puts into a file."""
    from tempfile import TemporaryDirectory

    with TemporaryDirectory() as folder:
        write(Path(folder) / "file")
        return (Path(folder) / "file").read_bytes()


# Checkpoints and the states of nodes


@dataclass
class State:
    theta: Weights
    table: Any
    history: dict[int, list[tuple[int, float]]]
    note: str | None = None


def _checkpoint() -> Checkpoint:
    weights = Weights(np.arange(6, dtype=np.float32), np.ones(2, np.float32))
    job = Job(3, 2, Downlink({"model": weights}))
    answer = Answer(job, Uplink(8, {"delta": weights}, {"a": np.eye(2)}, {"n": 1}), Report(None, {"accuracy": 0.5}))
    pending = PendingJob(4.5, True, 3, 1.0, job, answer).without_model()
    state = State(weights, np.eye(3, dtype=np.float32), {1: [(1, 0.5)]})
    return Checkpoint(7, 1.5, 10, 20, state, {0: ClientState({"m": weights}, {}, {"n": 1})}, {5: 2.0}, [pending], 3)


def _checkpoints(folder: Path) -> list[bytes]:
    return [_written(lambda path: write_npz(path, checkpoints.dump(_checkpoint())))]


def _trees(folder: Path) -> list[bytes]:
    return [checkpoints.dump(_checkpoint())["tree"].tobytes()]


def _sealed_again(content: bytes) -> bytes:
    """A damaged file whose checksum is right."""
    body = content[: -len(SEAL) - len(EMPTY)] + SEAL
    return body + sha256(body + EMPTY).hexdigest().encode()


def _read_checkpoint(content: bytes, folder: Path) -> object:
    (folder / checkpoints.FOLDER).mkdir(exist_ok=True)
    (folder / checkpoints.FOLDER / "step-000007.npz").write_bytes(content)
    return checkpoints.newest(folder, State)


def _read_tree(content: bytes, folder: Path) -> object:
    """A checkpoint whose structure is another one."""
    arrays = {**checkpoints.dump(_checkpoint()), "tree": np.frombuffer(content, np.uint8)}
    return _read_checkpoint(_written(lambda path: write_npz(path, arrays, durable=False)), folder)


def _states(folder: Path) -> list[bytes]:
    state = _checkpoint().client_states[0]
    return [_written(lambda path: write_npz(path, checkpoints.dump(state)))]


def _read_state(content: bytes, folder: Path) -> object:
    place = folder / "ab" / "client-0000"
    place.mkdir(parents=True, exist_ok=True)
    (place / "step-000001-0-0.npz").write_bytes(content)
    return StateStore(folder, RunIdentity("ab"), 0).read()


# The run folder


def _events(folder: Path) -> list[bytes]:
    log = EventLog(folder)
    for number in range(1, 4):
        log.append({"kind": "evaluation", "round": number - 1, "seconds": 0.1, "clients": [{"id": 0, "global": 0.5}]})
        log.append({"kind": "step", "round": number, "time": 1.5, "seconds": 0.2, "clients": []})
    return [(folder / EVENTS).read_bytes()]


def _read_events(content: bytes, folder: Path) -> object:
    (folder / EVENTS).write_bytes(content)
    read_events(folder)
    return EventLog(folder).rewind(2, 4)


def _manifests(folder: Path) -> list[bytes]:
    manifest = {"status": "running", "config": configs.RunConfig().flat(), "clients": [{"id": 0, "labels": [1, 2]}]}
    return [_written(lambda path: write_json(path, manifest)), json.dumps(manifest).encode()]


def _read_manifest(content: bytes, folder: Path) -> object:
    (folder / MANIFEST).write_bytes(content)
    return read_manifest(folder)


def _listed(folder: Path) -> list[bytes]:
    built = folder / "built"
    cache.build_once(built, lambda empty: np.save(empty / "x.npy", np.arange(5)))
    return [(built / name).read_bytes() for name in (cache.CONTENTS, cache.VERIFIED)]


def _read_listed(content: bytes, folder: Path) -> object:
    for name in (cache.CONTENTS, cache.VERIFIED):
        before = (folder / "built" / name).read_bytes()
        (folder / "built" / name).write_bytes(content)
        cache._verified.clear()
        cache.damage(folder / "built")
        (folder / "built" / name).write_bytes(before)
    return None


# Configuration

TOML = """
algorithm = "fedprox"
rounds = 7
lr = 0.1
filters = ["clip"]
partition = "dirichlet"
seed = 3
[fedprox]
mu = 0.5
[data]
classes = ["a", "b"]
[stragglers]
dropout = 0.1
[model]
3 = "cnn"
"""
SET = (
    "algorithm=scaffold",
    "rounds=3",
    "partition=dirichlet",
    "partition.alpha=0.1",
    "stragglers=speed",
    "stragglers.spread=0.5",
    "lr-schedule=0.5:10",
    "device=cuda:1",
    "model=mlp,cnn",
    "model.3=cnn",
    "finetune=2",
    "finetune.part=head",
    "vectorize=32",
    "attack=scale",
    "aggregator=krum",
    "filters=clip",
    "clip.norm=1",
    "public=10",
    "resume=true",
    "target=0.5",
    "spfl.gamma=1",
)


def _read_toml(content: bytes, folder: Path) -> object:
    (folder / "run.toml").write_bytes(content)
    return configs.read(folder / "run.toml").flat()


def _read_set(content: bytes, folder: Path) -> object:
    return configs.read(None, content.decode(errors="surrogateescape").split("\n")).flat()


def _read_run_config(content: bytes, folder: Path) -> object:
    text = content.decode(errors="replace")
    return configs.parse(dict(configs.from_run_config({"set": text, "rounds": 3}).flat())).flat()


def _sweeps(folder: Path) -> list[bytes]:
    grid = '[base]\nrounds = 2\n[grid]\nalgorithm = ["fedavg", "local"]\nseed = [1, 2]\n[report]\nclients = [0]\n'
    texts = preset_texts()
    return [
        grid.encode(),
        *(texts[name].encode() for name in ("sageflow-stragglers-digits", "fedavg-table1-2nn-small")),
    ]


def _read_sweep(content: bytes, folder: Path) -> object:
    (folder / "sweep.toml").write_bytes(content)
    return read_sweep(str(folder / "sweep.toml"))


def _read_inventory(content: bytes, folder: Path) -> object:
    (folder / inventory.FILE).write_bytes(content)
    return inventory.read(folder / inventory.FILE)


def _traces(folder: Path) -> list[bytes]:
    return [b"client,time,duration\n0,0,1.5\n0,10,inf\n0,20,2\n1,0,3\n"]


def _read_trace(content: bytes, folder: Path) -> object:
    (folder / "trace.csv").write_bytes(content)
    config = configs.read(None, ["stragglers=trace", f"stragglers.file={folder / 'trace.csv'}", "clients=2"])
    return Trace(config.params("stragglers"), config)


# Data

OWN = Single("own", "a file of the user's")


def _npz(compressed: bool, **arrays: Any) -> bytes:
    file = io.BytesIO()
    (np.savez_compressed if compressed else np.savez)(file, **arrays)
    return file.getvalue()


def _data(folder: Path) -> list[bytes]:
    rng = np.random.default_rng(0)
    images = {f"x_{part}": rng.integers(0, 256, (6, 4, 4), np.uint8) for part in ("train", "test")}
    labels = {f"y_{part}": np.arange(6) % 2 for part in ("train", "test")}
    more = {
        "user_train": np.array(["a"] * 6),
        "user_test": np.array(["b"] * 6),
        "classes": 3,
        "mean": [0.5],
        "std": [0.2],
    }
    texts = {
        "x_train": np.array(["one two", "three"]),
        "x_test": np.array([b"one", b"two"]),
        "y_train": [0, 1],
        "y_test": [1, 0],
    }
    tokens = {f"x_{part}": rng.integers(0, 9, (6, 5)) for part in ("train", "test")}
    real = {f"x_{part}": rng.normal(size=(6, 3)) for part in ("train", "test")}
    return [
        _npz(False, **images, **labels, **more),
        _npz(True, **images, **labels),
        _npz(False, **texts),
        _npz(False, **tokens, **labels, vocabulary=9),
        _npz(False, **tokens, **labels, alphabet="abcdefghi"),
        _npz(False, **real, y_train=np.ones(6), y_test=np.ones(6), objective="regression"),
    ]


def _read_data(content: bytes, folder: Path) -> object:
    (folder / "own.npz").write_bytes(content)
    with Scratch(folder) as scratch:
        return readers.from_npz(folder / "own.npz", OWN, DataParams(), scratch)


def _sound_zip(content: bytes, folder: Path) -> object:
    """An archive that is whole, with a damaged array in it."""
    import zipfile

    file = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(_data(folder)[0])) as source, zipfile.ZipFile(file, "w") as target:
        for name in source.namelist():
            target.writestr(name, content if name == "x_train.npy" else source.read(name))
    return _read_data(file.getvalue(), folder)


def _arrays(folder: Path) -> list[bytes]:
    files, images = [io.BytesIO(), io.BytesIO()], np.arange(96, dtype=np.uint8).reshape(6, 4, 4)
    np.save(files[0], images)
    np.save(files[1], np.asfortranarray(images))
    return [file.getvalue() for file in files]


def _csv(folder: Path) -> list[bytes]:
    numbers = "a,b,label\n" + "".join(f"{n},{n / 3},{'yes' if n % 2 else 'no'}\n" for n in range(12))
    texts = 'text,label\n"one, two",0\n' + "".join(f"word {n},{n % 2}\n" for n in range(12))
    return [numbers.encode(), texts.encode()]


def _read_table(suffix: str) -> Callable[[bytes, Path], object]:
    def read(content: bytes, folder: Path) -> object:
        (folder / f"own{suffix}").write_bytes(content)
        with Scratch(folder) as scratch:
            raw = table_files.from_files(folder / f"own{suffix}", OWN, DataParams(), scratch)
            return np.array(raw.x_train)

    return read


def _parquet(folder: Path) -> list[bytes]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table({"a": [n / 3 for n in range(12)], "b": list(range(12)), "label": [n % 2 for n in range(12)]})
    plain, packed = io.BytesIO(), io.BytesIO()
    pq.write_table(table, plain, compression="none", use_dictionary=False)
    pq.write_table(table, packed)
    return [plain.getvalue(), packed.getvalue()]


READERS = {
    "checkpoint": Reader(_checkpoints, _read_checkpoint),
    "checkpoint with a right checksum": Reader(
        _checkpoints, lambda content, folder: _read_checkpoint(_sealed_again(content), folder)
    ),
    "structure of a checkpoint": Reader(_trees, _read_tree),
    "state of a node": Reader(_states, _read_state),
    "state of a node with a right checksum": Reader(
        _states, lambda content, folder: _read_state(_sealed_again(content), folder)
    ),
    "events": Reader(_events, _read_events),
    "manifest": Reader(_manifests, _read_manifest),
    "lists of the cache": Reader(_listed, _read_listed),
    "TOML": Reader(lambda folder: [TOML.encode()], _read_toml),
    "--set": Reader(lambda folder: ["\n".join(SET[i : i + 4]).encode() for i in range(0, len(SET), 2)], _read_set),
    "run config": Reader(
        lambda folder: [" ".join(SET[:8]).encode(), b"lr=0.1 'seed=3' \"rounds=2\""], _read_run_config
    ),
    "sweep file": Reader(_sweeps, _read_sweep),
    "inventory": Reader(lambda folder: [inventory.template("wards", "10.0.0.1", 2).encode()], _read_inventory),
    "trace": Reader(_traces, _read_trace),
    "npz": Reader(_data, _read_data),
    "array in an npz": Reader(_arrays, _sound_zip),
    "csv": Reader(_csv, _read_table(".csv")),
    "parquet": Reader(_parquet, _read_table(".parquet")),
}


def slug(name: str) -> str:
    return re.sub(r"\W+", "-", name).strip("-")
