"""Downlinks, uplinks and client states <-> Flower records. The only file that knows record keys; it checks what arrives.

An array travels as one Flower `Array` in the usual .npy encoding, so the parameters of a model are one content-addressed
object. It is encoded once per broadcast and decoded without a copy. Weights are two arrays: their parameters in one
record, their buffers, if there are any, under the same name in another.
"""

import re
from collections.abc import Collection, Mapping
from io import BytesIO
from math import prod
from typing import Any, cast

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from numpy.typing import NDArray

from fedsim.config import Scalar
from fedsim.errors import WireError
from fedsim.layout import Layout
from fedsim.payload import (
    Answer,
    ClientState,
    Downlink,
    Failure,
    Job,
    Metrics,
    Report,
    Role,
    RunIdentity,
    Uplink,
)
from fedsim.transport.answer_check import LETTERS, AnswerCheck, check_names
from fedsim.weights import Weights, no_buffers

TRAIN, EVALUATE = "train", "evaluate"
ROLL_CALL, ALIVE, INITIAL = "query", "query.alive", "query.initial"
WEIGHTS, BUFFERS, ARRAYS, NUMBERS, METRICS, JOB, ROLES = (
    "weights",
    "buffers",
    "arrays",
    "numbers",
    "metrics",
    "job",
    "roles",
)
STATE = "client-state"  # the prefix of the records of a client's state
NPY = "numpy.ndarray"  # Flower's name of the .npy encoding
HEXADECIMAL = re.compile("[0-9a-f]+")
MALFORMED = (WireError, LookupError, ValueError, TypeError, ArithmeticError, AttributeError)  # raised by nonsense
UNAVAILABLE, NODE_OFFLINE = 3, 5  # Flower error codes: message or reply expired or incomplete; node offline


class Encoder:
    """Encodes arrays for one batch of messages; an array that several messages share becomes one shared Flower Array."""

    def __init__(self) -> None:
        # by identity; holding the array keeps its id from being reused
        self._done: dict[int, tuple[NDArray[Any], Array]] = {}

    def record(self, arrays: Mapping[str, NDArray[Any]]) -> ArrayRecord:
        record = ArrayRecord()
        for name, array in arrays.items():
            record[name] = self._array(array)  # the same object, so that Flower hashes it once, too
        return record

    def content(
        self, weights: Mapping[str, Weights], arrays: Mapping[str, NDArray[Any]], prefix: str = ""
    ) -> dict[str, ArrayRecord]:
        """Records of weights and arrays; Flower fetches each record by itself, so empty ones are left out."""
        records = {
            WEIGHTS: {name: value.parameters for name, value in weights.items()},
            BUFFERS: {name: value.buffers for name, value in weights.items() if value.buffers.size},
            ARRAYS: arrays,
        }
        return {prefix + key: self.record(values) for key, values in records.items() if values}

    def _array(self, array: NDArray[Any]) -> Array:
        if id(array) not in self._done:
            self._done[id(array)] = array, encode(array)
        return self._done[id(array)][1]


def encode(array: NDArray[Any]) -> Array:
    flat = np.ascontiguousarray(array)
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
    job: Job,
    node: int,
    run: RunIdentity,
    classes: int,
    ttl: float,
    encoder: Encoder,
    injects: bool = False,
    roles: Mapping[str, Role] | None = None,
) -> Message:
    """`injects`: the client sleeps the job's delay. `roles`: of what it will send, for its filters."""
    about: dict[str, Scalar | list[int]] = {
        "run": run.id,
        "resumed": list(run.resumed),
        "saved": list(run.saved),
        "client": job.client,
        "classes": classes,
        "step": job.step,
        "job_index": job.job_index,
        "shared": job.down.shared,
        "test-received": job.test_received,
        "test-personal": job.test_personal,
        "test-local": job.test_local,
        "keep": job.keep,
        "newcomer": job.newcomer,
        "delay": job.simulated_delay.delay if injects else 0.0,
        "vanish": injects and job.simulated_delay.absence is not None,
    }
    content = RecordDict({JOB: ConfigRecord(cast(dict[str, Any], about))})
    content.update(encoder.content(job.down.weights, job.down.arrays))
    for key, values in ((NUMBERS, job.down.numbers), (ROLES, roles)):
        if values:
            content[key] = ConfigRecord(dict(values))
    kind = TRAIN if job.train else EVALUATE
    return Message(content, dst_node_id=node, message_type=kind, ttl=ttl, group_id=str(job.step))


def unpack_job(message: Message) -> Job:
    about = message.content.config_records[JOB]
    return Job(
        client=int(cast(int, about["client"])),
        step=int(cast(int, about["step"])),
        down=Downlink(*_payload(message.content), _numbers(message.content, NUMBERS), bool(about["shared"])),
        train=message.metadata.message_type == TRAIN,
        test_received=bool(about["test-received"]),
        test_personal=bool(about["test-personal"]),
        test_local=bool(about["test-local"]),
        job_index=int(cast(int, about["job_index"])),
        keep=bool(about["keep"]),
        newcomer=bool(about["newcomer"]),
    )


def roles_of(message: Message) -> dict[str, Role]:
    """The roles of what the client will send, if the run has filters."""
    return _numbers(message.content, ROLES)


def run_of(message: Message) -> RunIdentity:
    about = message.content.config_records[JOB]
    name = str(about["run"])
    if not HEXADECIMAL.fullmatch(name):  # it becomes the name of a folder
        raise WireError(f"{name!r} is not the identity of a run")
    return RunIdentity(name, *(tuple(cast(list[int], about[key])) for key in ("resumed", "saved")))


def injected(message: Message) -> tuple[float, bool]:
    """How long the client has to sleep before it works on this, and whether it vanishes then."""
    about = message.content.config_records.get(JOB)
    return (float(cast(float, about["delay"])), bool(about["vanish"])) if about else (0.0, False)


# Client to server


def pack_answer(answer: Answer, order: Message) -> Message:
    metrics: dict[str, int | float | list[int] | list[float]] = {
        f"{kind}.{name}": float(value)
        for kind, found in vars(answer.report).items()
        for name, value in (found or {}).items()
    }
    content = RecordDict()
    uplink = answer.uplink
    if uplink is not None:
        content.update(Encoder().content(uplink.weights, uplink.arrays))
        content[NUMBERS] = ConfigRecord({**uplink.numbers, "examples": uplink.examples})
        metrics |= {f"train.{k}": float(v) for k, v in uplink.metrics.items()}
    metrics |= {f"cost.{k}": float(v) for k, v in answer.cost.items()}
    content[METRICS] = MetricRecord(metrics)
    return Message(content, reply_to=order)


def is_offline(message: Message) -> bool:
    """Whether the message says that its node is gone."""
    return message.has_error() and message.error.code in (UNAVAILABLE, NODE_OFFLINE)


def is_unavailable(message: Message) -> bool:
    """Whether the SuperLink lost the message or its reply, or has only a part of the reply: a node that was cut off
    while it sent its reply leaves one."""
    return message.has_error() and message.error.code == UNAVAILABLE


def unpack_answer(message: Message, job: Job, check: AnswerCheck) -> Answer | Failure:
    """The reply to `job`; an error, and anything that cannot be, is a failure."""
    if message.has_error():
        return Failure(job, reason_of(message), offline=is_offline(message))
    try:
        answer = _answer(message.content, job)
        check.check(answer)
    except MALFORMED as problem:
        return refusal(job, problem)
    return answer


def refusal(job: Job, problem: Exception) -> Failure:
    """The failure of a client whose answer cannot be."""
    missing = f"{problem} is missing" if isinstance(problem, KeyError) else str(problem)
    return Failure(job, f"its reply was refused: {missing}", refused=True)


def reason_of(message: Message) -> str:
    """Why a message is an error, in one line: the last one of a traceback says it, and Flower wraps it in marks."""
    last = (message.error.reason or "no reason given").strip().split("\n")[-1]
    if wrapped := re.fullmatch(r"<class '(?:.*\.)?(\w+)'>:<'(.*)'>", last):
        last = ": ".join(wrapped.groups())
    return f"{last} (Flower error {message.error.code})"


def _answer(content: RecordDict, job: Job) -> Answer:
    _check_records(content, (METRICS, *((WEIGHTS, BUFFERS, ARRAYS, NUMBERS) if job.train else ())))
    metrics = {k: float(cast(float, v)) for k, v in content.metric_records[METRICS].items()}
    check_names(metrics)
    measured = {kind: _under(f"{kind}.", metrics) or None for kind in ("received", "personal", "local")}
    report, cost = Report(**cast(dict[str, Metrics | None], measured)), _under("cost.", metrics)
    if not job.train:
        return Answer(job, None, report, cost)
    numbers = _numbers(content, NUMBERS)
    check_names(numbers)
    examples = numbers.pop("examples")
    return Answer(job, Uplink(examples, *_payload(content), numbers, _under("train.", metrics)), report, cost)


def _check_records(content: RecordDict, known: Collection[str]) -> None:
    """Raises WireError for a record that nobody asked for, before it is decoded."""
    if unknown := next((name for name in content if name not in known), None):
        raise WireError(f"record {unknown[:LETTERS]!r} was not expected (expected: {', '.join(known)})")


def _under(prefix: str, metrics: Mapping[str, float]) -> dict[str, float]:
    return {k.removeprefix(prefix): v for k, v in metrics.items() if k.startswith(prefix)}


# The roll call


def pack_query(node: int, kind: str, ttl: float, classes: int = 0, network: str = "model") -> Message:
    """`network`: whose layout and initial weights are asked for (INITIAL)."""
    return Message(RecordDict({NUMBERS: ConfigRecord({"classes": classes, "network": network})}), node, kind, ttl=ttl)


def network_of(message: Message) -> str:
    """The network that a query asks for."""
    return str(message.content.config_records[NUMBERS]["network"])


def classes_of(message: Message) -> int:
    """How many classes the model must tell apart: the most that any client of the federation has."""
    records = message.content.config_records
    return int(cast(int, records[JOB if JOB in records else NUMBERS]["classes"]))


def pack_presence(about: Mapping[str, Any], statistics: Mapping[str, NDArray[Any]], order: Message) -> Message:
    """What a node says of itself in the roll call: the fields of `fedsim.server.fleet.Client`."""
    content = RecordDict({NUMBERS: ConfigRecord(dict(about))})
    content.update(Encoder().content({}, statistics))
    return Message(content, reply_to=order)


def unpack_presence(message: Message) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    _check_records(message.content, (NUMBERS, ARRAYS))
    return _numbers(message.content, NUMBERS), _payload(message.content)[1]


def pack_initial(layout: Layout, initial: Weights, order: Message, note: str = "") -> Message:
    """`note`: what the user should know about the initial weights."""
    content = RecordDict({NUMBERS: ConfigRecord({"layout": layout.to_json(), "note": note})})
    content.update(Encoder().content({"model": initial}, {}))
    return Message(content, reply_to=order)


def unpack_initial(message: Message, longest: int) -> tuple[Layout, Weights, str]:
    """`longest`: letters of a layout."""
    _check_records(message.content, (NUMBERS, WEIGHTS, BUFFERS))
    (weights, _), about = _payload(message.content), _numbers(message.content, NUMBERS)
    layout = str(about["layout"])
    if len(layout) > longest or list(weights) != ["model"]:
        raise WireError(
            f"a layout of {len(layout)} letters, and weights of {', '.join(weights)[:LETTERS] or 'nothing'}"
        )
    return Layout.from_json(layout), weights["model"], str(about.get("note", ""))[: 10 * LETTERS]


# A client's state, kept in Flower's per-node state


def read_state(records: RecordDict) -> ClientState:
    weights, arrays = _payload(records, STATE)
    return ClientState(weights, arrays, _numbers(records, STATE + NUMBERS))


def write_state(records: RecordDict, state: ClientState) -> None:
    for key in [key for key in records if key.startswith(STATE)]:
        del records[key]
    records.update(Encoder().content(state.weights, state.arrays, STATE))
    records[STATE + NUMBERS] = ConfigRecord(dict(state.numbers))


def _payload(content: RecordDict, prefix: str = "") -> tuple[dict[str, Weights], dict[str, NDArray[Any]]]:
    """Weights and arrays of a message. Weights are flat float32 vectors; arrays have any shape and numeric type."""
    parameters, buffers, arrays = (
        {name: decode(array) for name, array in content.array_records.get(prefix + key, {}).items()}
        for key in (WEIGHTS, BUFFERS, ARRAYS)
    )
    for name, vector in (*parameters.items(), *buffers.items()):
        if vector.dtype != np.float32 or vector.ndim != 1:
            raise WireError(f"weights {name!r} are {vector.dtype} of shape {vector.shape}; flat float32 is expected")
    if alone := next((name for name in buffers if name not in parameters), None):
        raise WireError(f"buffers {alone!r} came without parameters")
    return {n: Weights(v, buffers.get(n, no_buffers())) for n, v in parameters.items()}, arrays


def _numbers(content: RecordDict, key: str) -> dict[str, Any]:
    return dict(content.config_records.get(key, {}))
