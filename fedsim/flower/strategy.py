"""A server half as a Flower Strategy: `start` runs fedsim's loop, and Flower's own hooks use the same equations."""

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from fedsim.algorithm import ServerStrategy
from fedsim.attacks import attack_of
from fedsim.errors import FedsimError
from fedsim.filters import check_filters, filtered_on_server, filters_of, roles_of, sent_roles
from fedsim.payload import Answer, Arrival, Failure, Job, Metrics, RunIdentity
from fedsim.results.curves import Curve
from fedsim.results.record import Record
from fedsim.server import run as runs
from fedsim.server.pace import Situation
from fedsim.server.roll_call import roll_call
from fedsim.transport import wire
from fedsim.transport.grid import known_replies
from fedsim.weights import Weights, no_buffers

log = logging.getLogger(__name__)


class FlowerStrategy(Strategy):
    """Adapts a `ServerStrategy`. `start` runs fedsim's loop; the five hooks serve Flower's stock synchronous loop."""

    def __init__(self, server: ServerStrategy[Any, Any]) -> None:
        self.server, self.config = server, server.config
        self.state: Any = None  # of the server half, after the last round
        self._filters = filters_of(self.config)
        self._run = RunIdentity.new()
        self._sent: list[tuple[Message, Job]] = []

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
        initial = None if initial_arrays is None else from_record(initial_arrays)
        self.state = runs.run(self.server, grid, config, record, initial)
        result = Result()
        result.arrays = self._global_record() or ArrayRecord()
        for number, value in record.curves["personal"].points:
            result.evaluate_metrics_clientapp[number] = MetricRecord({"personal": value})
        return result

    # Flower's loop

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        if self.state is None:
            fleet = roll_call(grid, self.config)
            self.server.attach(fleet)
            check_filters(self.config, self.server.expects())
            attack_of(self.config).check(fleet, self.server.expects())
            self.state = self.server.init(from_record(arrays), fleet)
        step, fleet = server_round - 1, self.server.fleet
        moment = Situation(step, step, step, fleet.idle(), 0, 0, 0, 0, None, due=False)
        cohort = runs.pace_and_stragglers(self.config)[0].admit(moment)
        return self._orders(
            [Job(c, step, self.server.instruct(self.state, c, train=True), test_local=True) for c in cohort]
        )

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
        attacked = attack_of(self.config).on_server(arrivals, roles_of(self.server.expects()))
        self.state = self.server.update(self.state, attacked)
        local = Curve().add(server_round, _column(answers, "local"))
        return self._global_record(), None if local is None else MetricRecord({"local": local})

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        def job(client: int) -> Job:
            down = self.server.instruct(self.state, client, train=False)
            return Job(client, server_round, down, train=False, test_received=True, test_personal=True)

        return self._orders([job(client) for client in self.server.fleet.idle()])

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        answers = self._answers(replies)
        tests = {c.id: float(c.test) for c in self.server.fleet.clients}
        means = {
            "global": Curve().add(server_round, _column(answers, "received"), tests),
            "personal": Curve().add(server_round, _column(answers, "personal")),
        }
        return MetricRecord({k: v for k, v in means.items() if v is not None})

    def summary(self) -> None:
        """Logs the configuration, at the beginning of Flower's `Strategy.start`."""
        log.info("%s", "\n".join(f"  {key} = {value}" for key, value in self.config.flat().items()))

    def _orders(self, jobs: Sequence[Job]) -> list[Message]:
        encoder, fleet, ttl = wire.Encoder(), self.server.fleet, self.config.timeout
        roles = sent_roles(self.config, self.server.expects())
        messages = [
            wire.pack_job(job, fleet[job.client].node, self._run, fleet.classes, ttl, encoder, roles=roles)
            for job in jobs
        ]
        self._sent = list(zip(messages, jobs, strict=True))
        return messages

    def _answers(self, replies: Iterable[Message]) -> list[Answer]:
        """Valid answers in client order; a failure is logged and left out, as Flower's own strategies do."""
        jobs = {message.metadata.message_id: job for message, job in self._sent}
        check = runs.answer_check(self.server, self.server.fleet)
        found: list[Answer] = []
        for reply in known_replies(replies, jobs):
            answer = wire.unpack_answer(reply, jobs[reply.metadata.reply_to_message_id], check)
            result = filtered_on_server(self._filters, answer, check.expects)
            if isinstance(result, Failure):
                about = {"client": result.job.client}
                log.warning("client %d failed: %s", result.job.client, result.reason, extra=about)
            else:
                found.append(result)
        return sorted(found, key=lambda answer: answer.job.client)

    def _global_record(self) -> ArrayRecord | None:
        model = self.server.global_model(self.state)
        return None if model is None else to_record(model)


def to_record(weights: Weights) -> ArrayRecord:
    """Weights as Flower's ArrayRecord: `model`, and `buffers` if there are any."""
    buffers = {"buffers": weights.buffers} if weights.buffers.size else {}
    return wire.Encoder().record({"model": weights.parameters, **buffers})


def from_record(record: ArrayRecord) -> Weights:
    buffers = wire.decode(record["buffers"]) if "buffers" in record else no_buffers()
    return Weights(wire.decode(record["model"]), buffers)


def _column(answers: Sequence[Answer], name: str) -> dict[int, float]:
    """The main metric of one kind of model, by client."""
    found: dict[int, Metrics | None] = {a.job.client: getattr(a.report, name) for a in answers}
    return {client: next(iter(metrics.values())) for client, metrics in found.items() if metrics}
