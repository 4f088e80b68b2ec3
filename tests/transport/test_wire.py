import numpy as np
import pytest
from flwr.app import Array, Error, Message, RecordDict

from fedsim.config import RunConfig
from fedsim.engine.inline import InlineGrid
from fedsim.engine.serialize import deserialize, serialize
from fedsim.errors import WireError
from fedsim.payload import Answer, ClientState, Downlink, Failure, Job, Report, RunIdentity, Spec, Uplink
from fedsim.transport import wire
from fedsim.transport.answer_check import AnswerCheck
from fedsim.weights import Weights

VALUES = np.array([1, 2, 3], np.float32)
MODEL = Weights(VALUES, np.array([9], np.float32))
TABLE = np.arange(6, dtype=np.int64).reshape(2, 3)
JOB = Job(
    client=7,
    step=4,
    down=Downlink({"model": MODEL}, {"table": TABLE}, {"mu": 0.5}, shared=False),
    test_received=True,
    test_local=True,
)
EXPECTS = {
    "delta": Spec((3,), role="update", buffers=1),
    "table": Spec((2, 3), "int64", optional=True),
    "any": Spec(optional=True),
}
METRICS = {"accuracy": (0.0, 1.0), "loss": (0.0, 1e30)}
CHECK = AnswerCheck(EXPECTS, {7: 12}, METRICS)

RUN = RunIdentity("0123456789abcdef", resumed=(3, 3), saved=(2, 4))


@pytest.fixture(autouse=True)
def _identity() -> None:
    InlineGrid(RunConfig())  # Flower makes messages on behalf of a task


def order(job: Job = JOB) -> Message:
    return wire.pack_job(job, 9, RUN, classes=10, ttl=60, encoder=wire.Encoder())


def reply(uplink: Uplink, report: Report | None = None) -> Message:
    return wire.pack_answer(Answer(JOB, uplink, report or Report()), order())


def test_a_job_arrives_as_it_was_sent() -> None:
    message = order()
    got = wire.unpack_job(message)
    assert (got.client, got.step, got.train, got.test_received, got.test_local) == (7, 4, True, True, True)
    assert got.down.model.parameters.tolist() == [1, 2, 3]
    assert got.down.model.buffers.tolist() == [9]
    assert (got.down.arrays["table"].dtype, got.down.arrays["table"].tolist()) == (np.int64, [[0, 1, 2], [3, 4, 5]])
    assert (got.down.numbers, got.down.shared) == ({"mu": 0.5}, False)
    assert wire.classes_of(message) == 10
    assert message.metadata.dst_node_id == 9


def test_a_job_says_which_run_it_belongs_to() -> None:
    assert wire.run_of(order()) == RUN
    assert wire.run_of(wire.pack_job(JOB, 9, RunIdentity("ab"), 10, 60, wire.Encoder())) == RunIdentity("ab")
    with pytest.raises(WireError, match=r"'\.\./etc' is not the identity of a run"):
        wire.run_of(wire.pack_job(JOB, 9, RunIdentity("../etc"), 10, 60, wire.Encoder()))


def test_an_answer_arrives_as_it_was_sent() -> None:
    uplink = Uplink(12, {"delta": MODEL}, {"table": TABLE}, {"tau": 3}, {"loss": 0.25})
    report = Report({"accuracy": 0.1, "loss": 2.0}, None, {"accuracy": 0.3, "loss": 1.0})
    got = wire.unpack_answer(reply(uplink, report), JOB, CHECK)
    assert isinstance(got, Answer)
    assert got.uplink is not None
    assert got.uplink.weights["delta"].parameters.tolist() == [1, 2, 3]
    assert got.uplink.weights["delta"].buffers.tolist() == [9]
    assert got.uplink.arrays["table"].tolist() == TABLE.tolist()
    assert (got.uplink.examples, got.uplink.numbers, got.uplink.metrics) == (12, {"tau": 3}, {"loss": 0.25})
    assert got.report == report


def test_a_broadcast_is_encoded_once() -> None:
    encoder = wire.Encoder()
    first, second = (encoder.content({"model": MODEL}, {})["weights"]["model"] for _ in range(2))
    assert first is second


def test_flower_reads_our_arrays_and_we_read_its() -> None:
    assert wire.encode(VALUES).numpy().tolist() == [1, 2, 3]
    assert wire.decode(Array(VALUES)).tolist() == [1, 2, 3]
    assert wire.decode(wire.encode(np.empty(0, np.float32))).size == 0


@pytest.mark.parametrize(
    ("uplink", "told"),
    [
        (Uplink(1), "'delta' is missing"),
        (Uplink(1, {"delta": Weights(VALUES[:2], MODEL.buffers)}), "has shape (2,) where (3,) was expected"),
        (Uplink(1, {"delta": Weights(VALUES)}), "'delta buffers' has shape (0,) where (1,) was expected"),
        (Uplink(1, {"delta": Weights(np.float32([1, np.nan, 3]), MODEL.buffers)}), "NaN"),
        (Uplink(1, {"delta": Weights(np.float32([1, np.inf, -np.inf]), MODEL.buffers)}), "infinite"),
        (Uplink(1, {"delta": Weights(VALUES, np.float32([np.nan]))}), "'delta buffers' holds NaN"),
        (Uplink(1, {"delta": MODEL}, {"extra": VALUES}), "'extra' was not expected (expected: delta, table, any)"),
        (Uplink(1, {"delta": MODEL}, {"any": np.array([np.nan])}), "'any'"),
        (Uplink(1, {"delta": Weights(VALUES.astype(np.float64), MODEL.buffers)}), "float64"),
        (Uplink(1, {"delta": MODEL}, {"table": TABLE.astype(np.float32)}), "is float32 where int64 was expected"),
        (Uplink(1, arrays={"delta": VALUES}), "'delta' must be weights"),
        (Uplink(1, {"delta": MODEL, "table": MODEL}), "'table' must be a plain array"),
        (Uplink(0, {"delta": MODEL}), "0 examples"),
    ],
)
def test_a_bad_update_is_the_failure_of_its_client(uplink: Uplink, told: str) -> None:
    got = wire.unpack_answer(reply(uplink), JOB, CHECK)
    assert isinstance(got, Failure)
    assert got.job.client == 7
    assert told in got.reason


def test_a_reply_of_another_kind_is_refused() -> None:
    got = wire.unpack_answer(Message(RecordDict(), reply_to=order()), JOB, CHECK)
    assert isinstance(got, Failure)


@pytest.mark.parametrize(("code", "offline"), [(2, False), (3, True), (5, True), (8, False)])
def test_flower_errors_are_failures(code: int, offline: bool) -> None:
    error = Error(code, "Traceback ...\nValueError: too warm")
    got = wire.unpack_answer(Message(error, reply_to=order()), JOB, AnswerCheck())
    assert isinstance(got, Failure)
    assert got.offline is offline
    assert got.reason == f"ValueError: too warm (Flower error {code})"


def test_a_clients_state_is_kept_in_the_node_state() -> None:
    records = RecordDict()
    assert wire.read_state(records) == ClientState()
    wire.write_state(records, ClientState({"model": MODEL}, {"table": TABLE}, {"alpha": 0.5, "rounds": 3}))
    again = wire.read_state(records)
    assert again.weights["model"].parameters.tolist() == [1, 2, 3]
    assert again.weights["model"].buffers.tolist() == [9]
    assert again.arrays["table"].tolist() == TABLE.tolist()
    assert again.numbers == {"alpha": 0.5, "rounds": 3}
    wire.write_state(records, ClientState(numbers={"alpha": 0.1}))  # what is gone from the state is gone from the node
    assert wire.read_state(records) == ClientState(numbers={"alpha": 0.1})


def test_serialized_messages_keep_the_bytes_out_of_band() -> None:
    big = np.arange(50_000, dtype=np.float32)
    head, buffers = serialize(order(Job(1, 0, Downlink({"model": Weights(big)}))))
    assert len(head) < 10_000
    assert sum(b.nbytes for b in buffers) >= big.nbytes
    assert wire.unpack_job(deserialize(head, buffers)).down.model.parameters.tolist() == big.tolist()
