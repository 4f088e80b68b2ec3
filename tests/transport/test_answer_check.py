"""What clients cannot say: every lie is refused by name, and what honest clients say passes."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict

from fedsim import registry
from fedsim.config import RunConfig
from fedsim.engine.inline import InlineGrid
from fedsim.errors import ConfigError, FedsimError, WireError
from fedsim.layout import Layout, Tensor
from fedsim.payload import Answer, Downlink, Failure, Job, Report, RunIdentity, Spec, Uplink
from fedsim.results.metric import possible_values
from fedsim.server.fleet import Client
from fedsim.server.roll_call import check_clients, client_of, initial_of
from fedsim.transport import wire
from fedsim.transport.answer_check import AnswerCheck
from fedsim.weights import Weights

JOB = Job(3, 0, Downlink(), test_received=True)
EXPECTS = {"delta": Spec((2,), role="update", buffers=0), "counts": Spec((2,), "int64", low=0, high=40, optional=True)}
METRICS = possible_values("classification", ["accuracy", "loss", "training-accuracy", "attack-success"])
CHECK = AnswerCheck(EXPECTS, {3: 40}, METRICS)
HONEST = Uplink(40, {"delta": Weights(np.float32([1, -2]))}, {"counts": np.array([39, 1])}, {"tau": 2.5}, {"loss": 0.1})
TOLD = Report(received={"accuracy": 1.0, "loss": 2.0})


@pytest.fixture(autouse=True)
def _identity() -> None:
    InlineGrid(RunConfig())  # Flower makes messages on behalf of a task


def order(kind: str = "") -> Message:
    if kind:
        return wire.pack_query(9, kind, 60)
    return wire.pack_job(JOB, 9, RunIdentity("ab"), 10, 60, wire.Encoder())


def arrives(content: RecordDict) -> Answer | Failure:
    return wire.unpack_answer(Message(content, reply_to=order()), JOB, CHECK)


def honest() -> RecordDict:
    return wire.pack_answer(Answer(JOB, HONEST, TOLD, {"train": 0.5, "memory": 300.0}), order()).content


def test_an_honest_answer_passes() -> None:
    assert isinstance(arrives(honest()), Answer)


@pytest.mark.parametrize("value", [0, -5, 41, 10**12, 1e30, 40.0, float("inf"), float("nan"), True, "many", [40]])
def test_samples_that_the_client_does_not_have(value: Any) -> None:
    content = honest()
    content[wire.NUMBERS] = ConfigRecord({"examples": value})
    got = arrives(content)
    assert isinstance(got, Failure)
    assert got.refused
    assert "it claims" in got.reason


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("received.accuracy", 1e6, "received accuracy is 1e+06, which must be from 0 to 1"),
        ("received.accuracy", -0.1, "received accuracy is -0.1"),
        ("received.accuracy", float("nan"), "received accuracy is nan"),
        ("received.attack-success", 2.0, "received attack-success is 2"),
        ("received.training-accuracy", 2.0, "received training-accuracy is 2"),
        ("received.loss", float("inf"), "received loss is inf, which must be at least 0"),
        ("received.loss", -1.0, "received loss is -1"),
        ("received.fame", 1.0, "metric 'fame' was not asked for"),
        ("personal.accuracy", 0.5, "a personal model, which were not asked for"),
        ("train.id", 0.0, "a metric cannot be called 'id'"),
        ("train.examples", 1e9, "a metric cannot be called 'examples'"),
        ("train.loss", float("nan"), "metric 'loss' is nan"),
        ("cost.train", float("nan"), "cost 'train' is nan"),
        ("cost.train", -1.0, "cost 'train' is -1"),
        ("cost." + "x" * 300, 1.0, "a name of 305 letters is too long"),
    ],
)
def test_metrics_that_cannot_be(name: str, value: float, told: str) -> None:
    content = honest()
    content[wire.METRICS] = MetricRecord({**content.metric_records[wire.METRICS], name: value})
    got = arrives(content)
    assert isinstance(got, Failure)
    assert told in got.reason


def test_too_many_metrics() -> None:
    content = honest()
    content[wire.METRICS] = MetricRecord({f"train.{number}": 1.0 for number in range(101)})
    got = arrives(content)
    assert isinstance(got, Failure)
    assert "it holds 101 metrics or numbers" in got.reason


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"weights": {"delta": Weights(np.float32([1, 3e38]))}}, "'delta' holds 3e+38, but its values are from"),
        ({"weights": {"delta": Weights(np.float32([-1e20, 0]))}}, "'delta' holds -1e+20"),
        ({"arrays": {"counts": np.array([-1, 5])}}, "'counts' holds -1, but its values are from 0 to 40"),
        ({"arrays": {"counts": np.array([1, 10**9])}}, "'counts' holds 1e+09"),
        ({"arrays": {"unknown": np.zeros(5_000_000, np.float32)}}, "'unknown' was not expected"),
        ({"numbers": {"tau": float("inf")}}, "'tau' is inf"),
        ({"numbers": {"tau": 1e300}}, "'tau' is 1e+300"),
        ({"numbers": {"tau": "x" * 300}}, "'tau' is a text of 300 letters"),
        ({"numbers": {"tau": [1, 2]}}, "'tau' is a list"),
    ],
)
def test_vectors_and_numbers_that_cannot_be(changes: dict[str, Any], told: str) -> None:
    answer = Answer(JOB, replace(HONEST, **changes), TOLD)
    with pytest.raises(WireError, match=told.replace("+", r"\+")):
        CHECK.check(answer)  # as on fedsim's own engines
    got = arrives(wire.pack_answer(answer, order()).content)
    assert isinstance(got, Failure)
    assert told in got.reason


def test_records_that_nobody_asked_for() -> None:
    content = honest()
    content["junk"] = ArrayRecord({"junk": Array(np.zeros(100, np.float32))})
    got = arrives(content)
    assert isinstance(got, Failure)
    assert "record 'junk' was not expected" in got.reason
    content = honest()
    content[wire.BUFFERS] = ArrayRecord({"other": Array(np.zeros(100, np.float32))})
    got = arrives(content)
    assert isinstance(got, Failure)
    assert "buffers 'other' came without parameters" in got.reason


def test_every_objective_says_what_its_metrics_can_be() -> None:
    for name in registry.names("objective"):
        metrics = registry.find("objective", name).metrics
        assert all(low == 0 for low, _ in possible_values(name, metrics).values())


# The roll call

VALUE = np.zeros(1, np.float32)
ABOUT = {
    "client": 1,
    "train": 50,
    "test": 10,
    "labels": [30, 20],
    "classes": 2,
    "shape": [1, 8, 8],
    "lasting": True,
    "objective": "classification",
    "model": "mlp",
    "public": "",
}


def presence(statistics: dict[str, Any] | None = None, **changes: Any) -> Message:
    return wire.pack_presence({**ABOUT, **changes}, statistics or {}, order(wire.ROLL_CALL))


def test_an_honest_client_is_known() -> None:
    found = client_of(9, presence(), RunConfig())
    assert (found.id, found.node, found.train, found.labels, found.shape) == (1, 9, 50, (30, 20), (1, 8, 8))


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"client": -1}, "client is -1"),
        ({"client": 77}, "node 9 says it is client 77, but clients=10 allows 0 to 9"),
        ({"client": "one"}, "client is one"),
        ({"client": True}, "client is True"),
        ({"train": 10**12}, "train is 1000000000000"),
        ({"train": 1e30}, "train is 1e\\+30"),
        ({"labels": [5, -1]}, "labels is -1"),
        ({"labels": "many"}, "labels must be a list"),
        ({"classes": 200_000}, "classes is 200000"),
        ({"objective": "gold"}, "unknown objective 'gold'"),
        ({"model": "x" * 500}, "model must be a text"),
        ({"statistics": {"junk": np.zeros(5_000_000, np.float32)}}, "'junk' was not asked for"),
    ],
)
def test_a_node_that_talks_nonsense_is_named(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(WireError, match=rf"node 9 .*{told}|{told}"):
        client_of(9, presence(**changes), RunConfig())


def test_what_clients_tell_of_their_data_is_limited_and_alike() -> None:
    pacfl = RunConfig(algorithm="pacfl", clients=2)
    told = {"signature": np.eye(3, dtype=np.float32)}
    with pytest.raises(WireError, match="'signature' holds NaN"):
        client_of(9, presence({"signature": told["signature"] * np.nan}), pacfl)
    with pytest.raises(WireError, match="signature, junk: 80000036 bytes, and 64000000 are the most"):
        client_of(9, presence({**told, "junk": np.zeros(20_000_000, np.float32)}), pacfl)
    first, second = (
        client_of(9, presence(found, client=i), pacfl) for i, found in enumerate([told, {**told, "junk": VALUE}])
    )
    with pytest.raises(ConfigError, match="client 0 tells signature but client 1 tells signature, junk of its data"):
        check_clients([first, second], 2)


def test_a_roll_call_without_a_field_or_record_is_refused() -> None:
    for content in (RecordDict(), RecordDict({wire.NUMBERS: ConfigRecord({"client": 1})})):
        with pytest.raises(WireError, match=r"the answer of node 9 to the roll call was refused: '\w+' is missing"):
            client_of(9, Message(content, reply_to=order(wire.ROLL_CALL)), RunConfig())


def test_names_bind_clients_to_nodes() -> None:
    config = RunConfig(clients=2, nodes="a, b")
    assert client_of(9, presence(), config, "b").name == "b"
    with pytest.raises(WireError, match=r"node 9 \(a\) says it is client 1, which is b"):
        client_of(9, presence(), config, "a")
    with pytest.raises(WireError, match="without a registered key"):
        client_of(9, presence(), config)


LAYOUT = Layout((Tensor("w", (2, 3), "head"),))
CLIENT = Client(0, 9, 1, 1, ())


def initial(layout: Layout, parameters: Any) -> Message:
    return wire.pack_initial(layout, Weights(np.asarray(parameters, np.float32)), order(wire.INITIAL))


def test_the_initial_model_is_checked() -> None:
    assert initial_of(CLIENT, initial(LAYOUT, range(6)))[0] == LAYOUT
    for wrong, told in [
        (initial(LAYOUT, range(5)), "its initial model has 5 parameters and 0 buffers; the model has 6 and 0"),
        (initial(LAYOUT, [np.nan] * 6), "'model' holds NaN"),
        (initial(LAYOUT, [3e38] * 6), r"'model' holds 3e\+38"),
        (initial(Layout((Tensor("w", (-2, -3), "head"),)), range(6)), "tensor w of shape"),
        (Message(RecordDict(), reply_to=order(wire.INITIAL)), "is missing"),
    ]:
        with pytest.raises(FedsimError, match=rf"the initial model of client 0 \(node 9\) was refused: .*{told}"):
            initial_of(CLIENT, wrong)
