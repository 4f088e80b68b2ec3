import numpy as np
import pytest
from flwr.app import Array, Error, Message, RecordDict

from fedsim import wire
from fedsim.config import RunConfig
from fedsim.engine.freeze import freeze, thaw
from fedsim.engine.inline import InlineGrid
from fedsim.errors import WireError
from fedsim.payload import Answer, Downlink, Failure, Job, Memory, Report, Run, Uplink

MODEL = np.array([1, 2, 3], np.float32)
JOB = Job(client=7, step=4, down=Downlink({"model": MODEL}, {"mu": 0.5}, shared=False), test_local=True)

RUN = Run("0123456789abcdef", resumed=(3, 3), saved=4)


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
    assert (got.client, got.step, got.train, got.test_received, got.test_local) == (7, 4, True, False, True)
    assert got.down.vectors["model"].tolist() == [1, 2, 3]
    assert (got.down.numbers, got.down.shared) == ({"mu": 0.5}, False)
    assert wire.classes_of(message) == 10
    assert message.metadata.dst_node_id == 9


def test_a_job_says_which_run_it_belongs_to() -> None:
    assert wire.run_of(order()) == RUN
    assert wire.run_of(wire.pack_job(JOB, 9, Run("ab"), 10, 60, wire.Encoder())) == Run("ab")
    with pytest.raises(WireError, match=r"'\.\./etc' is not the identity of a run"):
        wire.run_of(wire.pack_job(JOB, 9, Run("../etc"), 10, 60, wire.Encoder()))


def test_an_answer_arrives_as_it_was_sent() -> None:
    uplink = Uplink({"delta": MODEL}, 12, {"tau": 3}, {"loss": 0.25})
    got = wire.unpack_answer(reply(uplink, Report(0.1, None, 0.3)), JOB, {"delta": 3})
    assert isinstance(got, Answer)
    assert got.uplink is not None
    assert got.uplink.vectors["delta"].tolist() == [1, 2, 3]
    assert (got.uplink.examples, got.uplink.numbers, got.uplink.metrics) == (12, {"tau": 3}, {"loss": 0.25})
    assert got.report == Report(0.1, None, 0.3)


def test_a_broadcast_is_encoded_once() -> None:
    encoder = wire.Encoder()
    first, second = (encoder.record({"model": MODEL})["model"] for _ in range(2))
    assert first is second


def test_flower_reads_our_arrays_and_we_read_its() -> None:
    assert wire.encode(MODEL).numpy().tolist() == [1, 2, 3]
    assert wire.decode(Array(MODEL)).tolist() == [1, 2, 3]
    assert wire.decode(wire.encode(np.empty(0, np.float32))).size == 0


@pytest.mark.parametrize(
    ("uplink", "told"),
    [
        (Uplink({}, 1), "'delta' is missing"),
        (Uplink({"delta": MODEL[:2]}, 1), "has 2 values where 3 were expected"),
        (Uplink({"delta": np.array([1, np.nan, 3], np.float32)}, 1), "NaN"),
        (Uplink({"delta": np.array([1, np.inf, -np.inf], np.float32)}, 1), "infinite"),
        (Uplink({"delta": MODEL, "extra": np.array([np.nan], np.float32)}, 1), "'extra'"),
        (Uplink({"delta": MODEL.astype(np.float64)}, 1), "float64"),
        (Uplink({"delta": MODEL}, 0), "0 examples"),
    ],
)
def test_a_bad_update_is_the_failure_of_its_client(uplink: Uplink, told: str) -> None:
    got = wire.unpack_answer(reply(uplink), JOB, {"delta": 3})
    assert isinstance(got, Failure)
    assert got.job.client == 7
    assert told in got.reason


def test_a_reply_of_another_kind_is_refused() -> None:
    got = wire.unpack_answer(Message(RecordDict(), reply_to=order()), JOB, {"delta": 3})
    assert isinstance(got, Failure)


@pytest.mark.parametrize(("code", "offline"), [(2, False), (3, True), (5, True), (8, False)])
def test_flower_errors_are_failures(code: int, offline: bool) -> None:
    error = Error(code, "Traceback ...\nValueError: too warm")
    got = wire.unpack_answer(Message(error, reply_to=order()), JOB, {})
    assert isinstance(got, Failure)
    assert got.offline is offline
    assert got.reason == f"ValueError: too warm (Flower error {code})"


def test_memory_survives_the_node_state() -> None:
    state = RecordDict()
    assert wire.read_memory(state) == Memory()
    wire.write_memory(state, Memory({"model": MODEL}, {"alpha": 0.5, "rounds": 3}))
    again = wire.read_memory(state)
    assert again.vectors["model"].tolist() == [1, 2, 3]
    assert again.numbers == {"alpha": 0.5, "rounds": 3}


def test_freezing_keeps_the_bytes_out_of_band() -> None:
    big = np.arange(50_000, dtype=np.float32)
    head, buffers = freeze(order(Job(1, 0, Downlink({"model": big}))))
    assert len(head) < 10_000
    assert sum(b.nbytes for b in buffers) >= big.nbytes
    assert wire.unpack_job(thaw(head, buffers)).down.vectors["model"].tolist() == big.tolist()
