"""Whether a client's answer can be: compared with what it was asked for and with what it said in the roll call.

Messages are checked when they arrive, and the results of fedsim's own engines as well. Vectors are read, not copied.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from fedsim.config import Scalar
from fedsim.errors import WireError
from fedsim.payload import LARGEST_METRIC, LARGEST_NUMBER, ROW_COLUMNS, Answer, Spec, Uplink
from fedsim.weights import Weights

NAMES, LETTERS = 100, 200  # the most metrics or numbers in an answer, and the longest name or text
ANY_METRIC = -LARGEST_METRIC, LARGEST_METRIC
LONGEST_COST = 1e12  # seconds of an activity, MB of memory


@dataclass(frozen=True)
class AnswerCheck:
    """What answers may hold; `AnswerCheck()` accepts no vector, and any metric."""

    expects: Mapping[str, Spec] = field(default_factory=dict)  # of uplinks, as the strategy says
    examples: Mapping[int, int] = field(default_factory=dict)  # training samples, as every client said in the roll call
    metrics: Mapping[str, tuple[float, float]] = field(
        default_factory=dict
    )  # possible values by name; empty: any names

    def check(self, answer: Answer) -> None:
        """Raises WireError for the first thing that cannot be."""
        job, report = answer.job, answer.report
        if report.received is not None:
            self._check_report("received", report.received, job.test_received)
        if report.personal is not None:
            self._check_report("personal", report.personal, job.test_personal or job.newcomer)
        if report.local is not None:
            self._check_report("local", report.local, job.test_local or job.newcomer)
        for name, value in answer.cost.items():
            if not 0 <= value <= LONGEST_COST:
                _refuse_number(f"cost {name!r}", value, 0, LONGEST_COST)
        if answer.uplink is not None:
            self.check_uplink(answer.uplink, job.client)

    def check_uplink(self, uplink: Uplink, client: int = -1) -> None:
        """Raises WireError if an uplink is not what the strategy expects, or if its client cannot have made it."""
        if uplink.averaged != 0:  # else its vectors are in a mean that another one holds
            self._check_payload(uplink.weights, uplink.arrays)
        self._check_examples(uplink.examples, client)
        for name, value in uplink.numbers.items():
            _check_scalar(name, value)
        for name, number in uplink.metrics.items():
            if name in ROW_COLUMNS:
                raise WireError(f"a metric cannot be called {name!r}, which is a column of every result")
            if not -LARGEST_METRIC <= number <= LARGEST_METRIC:
                _refuse_number(f"metric {name!r}", number, -LARGEST_METRIC, LARGEST_METRIC)

    def _check_report(self, kind: str, found: Mapping[str, float], asked: bool) -> None:
        if not asked:
            raise WireError(f"it tells metrics of a {kind} model, which were not asked for")
        for name, value in found.items():
            low, high = self.metrics.get(name, ANY_METRIC)
            if not low <= value <= high:  # NaN is in no range
                _refuse_number(f"{kind} {name}", value, low, high)
            if self.metrics and name not in self.metrics:
                raise WireError(f"metric {name!r} was not asked for (known: {', '.join(self.metrics)})")

    def _check_examples(self, examples: Any, client: int) -> None:
        if not isinstance(examples, int | np.integer) or isinstance(examples, bool) or examples < 1:
            raise WireError(f"it claims {examples!r} examples")
        if examples > (most := self.examples.get(client, examples)):
            raise WireError(f"it claims {examples} examples, and has {most} by the roll call")

    def _check_payload(self, weights: Mapping[str, Weights], arrays: Mapping[str, NDArray[Any]]) -> None:
        expects = self.expects
        found: dict[str, Weights | NDArray[Any]] = {**weights, **arrays}
        if unexpected := sorted(set(found) - set(expects)):
            raise WireError(f"{unexpected[0]!r} was not expected (expected: {', '.join(expects) or 'nothing'})")
        for name, spec in expects.items():
            if name not in found:
                if spec.optional:
                    continue
                raise WireError(f"{name!r} is missing (it holds: {', '.join(found) or 'nothing'})")
            value = found[name]
            if isinstance(value, Weights) != (spec.buffers is not None):
                raise WireError(f"{name!r} must be {'weights' if spec.buffers is not None else 'a plain array'}")
            if isinstance(value, Weights):
                check_array(name, value.parameters, spec)
                check_array(f"{name} buffers", value.buffers, Spec((spec.buffers or 0,)))
            else:
                check_array(name, value, spec)


def check_array(name: str, array: NDArray[Any], spec: Spec) -> None:
    """Raises WireError if an array has another shape or type, or numbers that are not finite or out of its range."""
    if not spec.fits(array.shape):
        raise WireError(f"{name!r} has shape {array.shape} where {spec.shape} was expected")
    if array.dtype != np.dtype(spec.dtype):
        raise WireError(f"{name!r} is {array.dtype} where {spec.dtype} was expected")
    if not array.size or array.dtype.kind not in "fciu":
        return
    values = np.abs(array) if array.dtype.kind == "c" else array
    least, most = values.min(), values.max()  # NaN is the result of both if there is one
    low, high = max(spec.low, -LARGEST_NUMBER), min(spec.high, LARGEST_NUMBER)
    if low <= least and most <= high:
        return
    if not (np.isfinite(least) and np.isfinite(most)):
        raise WireError(f"{name!r} holds NaN or infinite values")
    raise WireError(f"{name!r} holds {least if least < low else most:g}, but its values are from {low:g} to {high:g}")


def check_names(entries: Mapping[str, Any]) -> None:
    """Raises WireError if a message holds too many metrics or numbers, or one with a long name."""
    if len(entries) > NAMES:
        raise WireError(f"it holds {len(entries)} metrics or numbers: {NAMES} are the most")
    if long := next((name for name in entries if len(name) > LETTERS), None):
        raise WireError(f"a name of {len(long)} letters is too long: {LETTERS} are the most")


def _refuse_number(what: str, value: float, low: float, high: float) -> NoReturn:
    limits = f"at least {low:g}" if high >= LARGEST_METRIC else f"from {low:g} to {high:g}"
    raise WireError(f"{what} is {value:g}, which must be {limits}")


def _check_scalar(name: str, value: Any) -> None:
    if not isinstance(value, Scalar):
        raise WireError(f"{name!r} is a {type(value).__name__} where a number or a text was expected")
    if isinstance(value, str):
        if len(value) > LETTERS:
            raise WireError(f"{name!r} is a text of {len(value)} letters: {LETTERS} are the most")
    elif not -inf < value < inf or abs(value) > LARGEST_NUMBER:
        raise WireError(f"{name!r} is {value}")
