"""Callbacks of `fedsim.run`: a function that is called after every step, and stopping when a metric no longer improves."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from fedsim.errors import ConfigError, unknown
from fedsim.results.observers import Observer

if TYPE_CHECKING:
    from fedsim.results.record import Record


@dataclass(frozen=True)
class Step:
    """A server step that has just been made."""

    number: int
    rounds: int  # of the whole run
    seconds: float  # virtual, or real with clock=wall
    metrics: dict[str, dict[str, float]]  # latest mean over clients, by kind of model and name of the metric
    event: Mapping[str, Any]  # as in events.jsonl: a row per client


class StepCallback(Observer):
    """Calls a function after every step; a true return value ends the run."""

    def __init__(self, function: Callable[[Step], object]) -> None:
        self._function = function

    def begin(self, record: "Record") -> None:
        self._record = record

    def event(self, event: Mapping[str, Any]) -> bool:
        if event["kind"] != "step":
            return False
        metrics: dict[str, dict[str, float]] = {}
        for metric, curves in self._record.all_curves.items():
            for kind, curve in curves.items():
                if curve.points:
                    metrics.setdefault(kind, {})[metric] = curve.points[-1][1]
        step = Step(event["round"], self._record.config.rounds, event["time"], metrics, event)
        return bool(self._function(step))


class EarlyStopping(Observer):
    """Ends a run when a metric has not improved by more than `min_delta` in the last `patience` evaluations. A round is
    evaluated while clients train in the next one, which is then the last.

    `metric`: a metric of the run; the main one unless given. `kind`: of which models. Raises ConfigError when the run
    begins if it has no such metric.
    """

    def __init__(
        self,
        metric: str | None = None,
        patience: int = 10,
        kind: Literal["personal", "global", "local"] = "personal",
        min_delta: float = 0.0,
    ) -> None:
        if patience < 1:
            raise ConfigError(f"patience must be at least 1, not {patience}")
        self.metric, self.patience, self.kind, self.min_delta = metric, patience, kind, min_delta

    def begin(self, record: "Record") -> None:
        self._name = self.metric or next(iter(record.metrics))
        if self._name not in record.metrics:
            unknown("metric", self._name, record.metrics)
        self._curve = record.all_curves[self._name][self.kind]
        self._sign = 1.0 if record.metrics[self._name] == "max" else -1.0

    def event(self, event: Mapping[str, Any]) -> bool:
        values = [self._sign * value for _, value in self._curve.points]
        before, last = values[: -self.patience], values[-self.patience :]
        return bool(before) and max(last) <= max(before) + self.min_delta
