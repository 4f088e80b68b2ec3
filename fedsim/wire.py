"""Downlinks, uplinks and memories <-> Flower records. The only file that knows record keys; it checks what arrives.

A vector travels as one Flower `Array` in the usual .npy encoding, so one model is one content-addressed object. It is
encoded once per broadcast and decoded without a copy.
"""

import re
from collections.abc import Mapping, Sequence
from io import BytesIO
from math import prod
from typing import Any, cast

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from numpy.typing import NDArray

from fedsim.config import Scalar
from fedsim.errors import WireError
from fedsim.payload import Answer, Downlink, Failure, Job, Memory, Report, Run, Uplink
from fedsim.vector import Layout, Vec

TRAIN, EVALUATE = "train", "evaluate"
ROLL_CALL, ALIVE, INITIAL = "query", "query.alive", "query.initial"
VECTORS, NUMBERS, METRICS, JOB = "vectors", "numbers", "metrics", "job"
MEMORY_VECTORS, MEMORY_NUMBERS = "memory-vectors", "memory-numbers"
NPY = "numpy.ndarray"  # Flower's name of the .npy encoding
HEXADECIMAL = re.compile("[0-9a-f]+")
OFFLINE = (3, 5)  # Flower error codes: message expired or unavailable, node offline


class Encoder:
    """Encodes vectors for one batch of messages; a vector that several messages share becomes one shared Array."""

    def __init__(self) -> None:
        self._done: dict[int, tuple[Vec, Array]] = {}  # by identity; holding the vector keeps its id from being reused

    def record(self, vectors: Mapping[str, Vec]) -> ArrayRecord:
        record = ArrayRecord()
        for name, vector in vectors.items():
            record[name] = self._array(vector)  # the same object, so that Flower hashes it once, too
        return record

    def _array(self, vector: Vec) -> Array:
        if id(vector) not in self._done:
            self._done[id(vector)] = vector, encode(vector)
        return self._done[id(vector)][1]


def encode(vector: NDArray[Any]) -> Array:
    flat = np.ascontiguousarray(vector)
    header = BytesIO()
    np.lib.format.write_array_header_1_0(header, np.lib.format.header_data_from_array_1_0(flat))
    data = b"".join((header.getvalue(), flat.reshape(-1).view(np.uint8).data))
    return Array(dtype=str(flat.dtype), shape=flat.shape, stype=NPY, data=data)


def decode(array: Array) -> NDArray[Any]:
    """The values of an Array, as a read-only view of its bytes."""
    dtype, data = np.dtype(array.dtype), memoryview(array.data)
    offset = data.nbytes - prod(array.shape) * dtype.itemsize
    if array.stype != NPY or offset < 10:
        raise WireError(f"an array of shape {array.shape} in encoding {array.stype!r} cannot be decoded")
    return np.frombuffer(data, dtype, offset=offset).reshape(array.shape)


# Server to client


def pack_job(
    job: Job, node: int, run: Run, classes: int, ttl: float, encoder: Encoder, injects: bool = False
) -> Message:
    """`injects`: the client sleeps the job's delay."""
    about: dict[str, Scalar | list[int]] = {
        "run": run.id,
        "resumed": list(run.resumed),
        "saved": run.saved,
        "client": job.client,
        "classes": classes,
        "step": job.step,
        "turn": job.turn,
        "shared": job.down.shared,
        "test-received": job.test_received,
        "test-personal": job.test_personal,
        "test-local": job.test_local,
        "keep": job.keep,
        "delay": job.fate.delay if injects else 0.0,
        "vanish": injects and job.fate.away is not None,
    }
    content = RecordDict({JOB: ConfigRecord(cast(dict[str, Any], about))})
    if job.down.vectors:  # Flower fetches each record by itself: what is empty stays here
        content[VECTORS] = encoder.record(job.down.vectors)
    if job.down.numbers:
        content[NUMBERS] = ConfigRecord(dict(job.down.numbers))
    kind = TRAIN if job.train else EVALUATE
    return Message(content, dst_node_id=node, message_type=kind, ttl=ttl, group_id=str(job.step))


def unpack_job(message: Message) -> Job:
    about = message.content.config_records[JOB]
    return Job(
        client=int(cast(int, about["client"])),
        step=int(cast(int, about["step"])),
        down=Downlink(_vectors(message.content, VECTORS), _numbers(message.content, NUMBERS), bool(about["shared"])),
        train=message.metadata.message_type == TRAIN,
        test_received=bool(about["test-received"]),
        test_personal=bool(about["test-personal"]),
        test_local=bool(about["test-local"]),
        turn=int(cast(int, about["turn"])),
        keep=bool(about["keep"]),
    )


def run_of(message: Message) -> Run:
    about = message.content.config_records[JOB]
    name = str(about["run"])
    if not HEXADECIMAL.fullmatch(name):  # it becomes the name of a folder
        raise WireError(f"{name!r} is not the identity of a run")
    return Run(name, tuple(cast(list[int], about["resumed"])), int(cast(int, about["saved"])))


def injected(message: Message) -> tuple[float, bool]:
    """How long the client has to sleep before it works on this, and whether it vanishes then."""
    about = message.content.config_records.get(JOB)
    return (float(cast(float, about["delay"])), bool(about["vanish"])) if about else (0.0, False)


# Client to server


def pack_answer(answer: Answer, order: Message) -> Message:
    report = {k: v for k, v in vars(answer.report).items() if v is not None}
    content = RecordDict()
    uplink = answer.uplink
    if uplink is not None:
        content[VECTORS] = Encoder().record(uplink.vectors)
        content[NUMBERS] = ConfigRecord({**uplink.numbers, "examples": uplink.examples})
        report |= {f"train.{k}": float(v) for k, v in uplink.metrics.items()}
    report |= {f"cost.{k}": float(v) for k, v in answer.cost.items()}
    content[METRICS] = MetricRecord(report)
    return Message(content, reply_to=order)


def is_offline(message: Message) -> bool:
    """Whether the message says that its node is gone."""
    return message.has_error() and message.error.code in OFFLINE


def unpack_answer(message: Message, job: Job, expects: Mapping[str, int]) -> Answer | Failure:
    """The reply to `job`, checked: an error, a missing or misshapen vector and NaN all become that client's failure."""
    if message.has_error():
        return Failure(job, reason_of(message), offline=is_offline(message))
    try:
        return _checked_answer(message.content, job, expects)
    except (WireError, KeyError, ValueError, TypeError) as problem:
        return Failure(job, f"its reply was refused: {problem}")


def reason_of(message: Message) -> str:
    """Why a message is an error, in one line: the last one of a traceback says it, and Flower wraps it in marks."""
    last = (message.error.reason or "no reason given").strip().split("\n")[-1]
    if wrapped := re.fullmatch(r"<class '(?:.*\.)?(\w+)'>:<'(.*)'>", last):
        last = ": ".join(wrapped.groups())
    return f"{last} (Flower error {message.error.code})"


def _checked_answer(content: RecordDict, job: Job, expects: Mapping[str, int]) -> Answer:
    metrics = {k: float(cast(float, v)) for k, v in content.metric_records[METRICS].items()}
    report = Report(**{k: metrics.get(k) for k in ("received", "personal", "local")})
    cost = _under("cost.", metrics)
    if not job.train:
        return Answer(job, None, report, cost)
    vectors, numbers = _vectors(content, VECTORS), _numbers(content, NUMBERS)
    for name, size in expects.items():
        if name not in vectors:
            raise WireError(f"vector {name!r} is missing (it holds: {', '.join(vectors) or 'none'})")
        if vectors[name].size != size:
            raise WireError(f"vector {name!r} has {vectors[name].size} values where {size} were expected")
    for name, vector in vectors.items():
        if not np.isfinite(vector).all():
            raise WireError(f"vector {name!r} holds NaN or infinite values")
    examples = int(numbers.pop("examples"))
    if examples < 1:
        raise WireError(f"it claims {examples} examples")
    return Answer(job, Uplink(vectors, examples, numbers, _under("train.", metrics)), report, cost)


def _under(prefix: str, metrics: Mapping[str, float]) -> dict[str, float]:
    return {k.removeprefix(prefix): v for k, v in metrics.items() if k.startswith(prefix)}


# The roll call


def pack_query(node: int, kind: str, ttl: float, classes: int = 0) -> Message:
    return Message(RecordDict({NUMBERS: ConfigRecord({"classes": classes})}), node, kind, ttl=ttl)


def classes_of(message: Message) -> int:
    """How many classes the model must tell apart: the most that any client of the federation has."""
    records = message.content.config_records
    return int(cast(int, records[JOB if JOB in records else NUMBERS]["classes"]))


def pack_presence(
    client: int, train: int, test: int, labels: list[int], shape: Sequence[int], lasting: bool, order: Message
) -> Message:
    """`lasting`: the node keeps its client's memory on disk."""
    about = {"client": client, "train": train, "test": test, "labels": labels, "shape": list(shape), "lasting": lasting}
    numbers = ConfigRecord(cast(dict[str, Any], about))
    return Message(RecordDict({NUMBERS: numbers}), reply_to=order)


def unpack_presence(message: Message) -> dict[str, Any]:
    return _numbers(message.content, NUMBERS)


def pack_initial(layout: Layout, theta: Vec, buffers: Vec, order: Message) -> Message:
    vectors = Encoder().record({"model": theta, "buffers": buffers})
    return Message(RecordDict({VECTORS: vectors, NUMBERS: ConfigRecord({"layout": layout.to_json()})}), reply_to=order)


def unpack_initial(message: Message) -> tuple[Layout, Vec, Vec]:
    vectors = _vectors(message.content, VECTORS)
    return Layout.from_json(str(_numbers(message.content, NUMBERS)["layout"])), vectors["model"], vectors["buffers"]


# A client's memory, kept in Flower's per-node state


def read_memory(state: RecordDict) -> Memory:
    if MEMORY_VECTORS not in state:
        return Memory()
    return Memory(dict(_vectors(state, MEMORY_VECTORS)), dict(_numbers(state, MEMORY_NUMBERS)))


def write_memory(state: RecordDict, memory: Memory) -> None:
    state[MEMORY_VECTORS] = Encoder().record(memory.vectors)
    state[MEMORY_NUMBERS] = ConfigRecord(dict(memory.numbers))


def _vectors(content: RecordDict, key: str) -> dict[str, Vec]:
    found = {name: decode(array) for name, array in content.array_records.get(key, {}).items()}
    for name, vector in found.items():
        if vector.dtype != np.float32 or vector.ndim != 1:
            raise WireError(f"vector {name!r} is {vector.dtype} of shape {vector.shape}; flat float32 is expected")
    return found


def _numbers(content: RecordDict, key: str) -> dict[str, Any]:
    return dict(content.config_records.get(key, {}))
