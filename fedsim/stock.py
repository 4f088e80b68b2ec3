"""Flower's own Strategy hooks on top of instruct/update, so that every algorithm also runs under `Strategy.start`."""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy
from numpy.typing import NDArray

from fedsim import session, wire
from fedsim.config import RunConfig
from fedsim.curves import Curve
from fedsim.errors import FedsimError
from fedsim.fleet import Fleet, roll_call
from fedsim.pace import Situation
from fedsim.payload import Answer, Arrival, Downlink, Failure, Job, Run
from fedsim.record import Record
from fedsim.vector import Vec


class FlowerHooks(Strategy):
    """`start` runs fedsim's loop; the five hooks serve Flower's stock synchronous loop with the same equations."""

    def __init__(self, config: RunConfig) -> None:
        self.config = config
        self.state: Any = None
        self._fleet: Fleet | None = None
        self._run = Run.new()
        self._out: list[tuple[Message, Job]] = []  # messages of the current exchange

    @property
    def fleet(self) -> Fleet:
        """Who takes part, and the model's layout; known from the roll call on."""
        if self._fleet is None:
            raise RuntimeError("the roll call has not been held yet")
        return self._fleet

    def enlist(self, fleet: Fleet) -> None:
        self._fleet = fleet

    # What an algorithm provides (documented in fedsim.algorithm.ServerStrategy)

    @abstractmethod
    def init(self, theta: Vec, fleet: Fleet) -> Any: ...

    @abstractmethod
    def instruct(self, state: Any, client: int) -> Downlink: ...

    @abstractmethod
    def update(self, state: Any, arrivals: Sequence[Arrival]) -> Any: ...

    @abstractmethod
    def expects(self) -> Mapping[str, int]: ...

    @abstractmethod
    def global_model(self, state: Any) -> Vec | None: ...

    @abstractmethod
    def matrices(self, state: Any) -> Mapping[str, NDArray[Any]]: ...

    # fedsim's loop

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord | None = None,
        num_rounds: int | None = None,
        timeout: float | None = None,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None = None,
        *,
        record: Record | None = None,
    ) -> Result:
        """Runs the federation with fedsim's loop; the clients choose the initial model unless one is given."""
        config = self.config.replace(rounds=num_rounds or self.config.rounds, timeout=timeout or self.config.timeout)
        record = record or Record(None, config, "flower")
        theta = None if initial_arrays is None else wire.decode(initial_arrays["model"])
        self.state = session.run(self, grid, config, record, theta)
        result = Result()
        result.arrays = self._global_record() or ArrayRecord()
        for number, value in record.curves["personal"].points:
            result.evaluate_metrics_clientapp[number] = MetricRecord({"personal": value})
        return result

    # Flower's loop

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        if self._fleet is None:
            self.enlist(roll_call(grid, self.config))
            self.state = self.init(wire.decode(arrays["model"]), self.fleet)
        step = server_round - 1
        moment = Situation(step, step, step, self.fleet.idle(), 0, 0, 0, 0, None, due=False)
        cohort = session.rhythm(self.config)[0].admit(moment)
        return self._orders([Job(c, step, self.instruct(self.state, c), test_local=True) for c in cohort])

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        answers = self._answers(replies)
        arrivals = [
            Arrival(a.job.client, a.job.step, a.uplink, sent=server_round - 1, arrived=server_round)
            for a in answers
            if a.uplink is not None
        ]
        if not arrivals:
            raise FedsimError(f"round {server_round} got no result from any client")
        self.state = self.update(self.state, arrivals)
        local = Curve().add(server_round, _column(answers, "local"))
        return self._global_record(), None if local is None else MetricRecord({"local": local})

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        state, everyone = self.state, self.fleet.idle()
        return self._orders(
            [
                Job(c, server_round, self.instruct(state, c), train=False, test_received=True, test_personal=True)
                for c in everyone
            ]
        )

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        answers = self._answers(replies)
        tests = {c.id: float(c.test) for c in self.fleet.clients}
        means = {
            "global": Curve().add(server_round, _column(answers, "received"), tests),
            "personal": Curve().add(server_round, _column(answers, "personal")),
        }
        return MetricRecord({k: v for k, v in means.items() if v is not None})

    def summary(self) -> None:
        """Flower prints what this logs; the configuration says it all."""
        print("\n".join(f"  {key} = {value}" for key, value in self.config.flat().items()))

    def _orders(self, jobs: Sequence[Job]) -> list[Message]:
        encoder, fleet, ttl = wire.Encoder(), self.fleet, self.config.timeout
        messages = [wire.pack_job(job, fleet[job.client].node, self._run, fleet.classes, ttl, encoder) for job in jobs]
        self._out = list(zip(messages, jobs, strict=True))
        return messages

    def _answers(self, replies: Iterable[Message]) -> list[Answer]:
        """Valid answers in client order; a failure is told and left out, as Flower's own strategies do."""
        jobs = {message.metadata.message_id: job for message, job in self._out}
        found: list[Answer] = []
        for reply in replies:
            result = wire.unpack_answer(reply, jobs[reply.metadata.reply_to_message_id], self.expects())
            if isinstance(result, Failure):
                print(f"client {result.job.client} failed: {result.reason}", flush=True)
            else:
                found.append(result)
        return sorted(found, key=lambda answer: answer.job.client)

    def _global_record(self) -> ArrayRecord | None:
        model = self.global_model(self.state)
        return None if model is None else wire.Encoder().record({"model": model})


def _column(answers: Sequence[Answer], name: str) -> dict[int, float]:
    return {a.job.client: value for a in answers if (value := getattr(a.report, name)) is not None}
