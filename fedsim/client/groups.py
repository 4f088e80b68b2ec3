"""Groups of jobs: how many clients one worker gets together, and what becomes of their updates.

Groups depend on the configuration and the cohort alone, never on the engine or the number of workers, so that every
engine makes the same sums in the same order.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from fedsim import registry
from fedsim.config import RunConfig
from fedsim.layout import Layout
from fedsim.payload import Answer, ClientState, Failure, Job, Role, Uplink
from fedsim.weights import Weights

AT_ONCE, SMALL = 32, 1_000_000  # clients trained at once, and the most parameters for which that pays
AT_ONCE_FROM = 64  # jobs that are sent together; the models of fewer are trained one by one
AVERAGED_FROM = 24  # jobs that are sent together; the server averages the updates of fewer
MEANS, LARGEST_MEAN = 12, 16  # one by one, updates are averaged in about so many groups of at most so many clients

Result = tuple[Answer | Failure, ClientState | None]  # of a job, and the client's new state


@dataclass(frozen=True)
class JobGroup:
    """Jobs that one worker gets together, with what their clients must know besides: the classes of the model, and the
    roles of what they send (for filters)."""

    jobs: Sequence[Job]
    classes: int
    roles: Mapping[str, Role] = field(default_factory=dict)
    sleeps: bool = False  # clients sleep the delays of their jobs
    at_once: bool = False  # the clients are trained at once, if possible
    averages: bool = False  # the last answer holds the mean of all updates

    @property
    def clients(self) -> list[int]:
        return [job.client for job in self.jobs]


def at_once(config: RunConfig, layout: Layout) -> int:
    """How many clients are trained at once: `vectorize`, or with `auto` 32 for algorithms that allow it and dense models."""
    if config.vectorize == "off" or not registry.find("algorithm", config.algorithm).vectorizes:
        return 1
    if config.vectorize != "auto":
        return int(config.vectorize)
    dense = not layout.buffers and all(len(tensor.shape) <= 2 for tensor in layout.parameters)
    return AT_ONCE if dense and config.optimizer == "sgd" and layout.size <= SMALL else 1


def groups_of(jobs: Sequence[Job], template: JobGroup, trained_at_once: int) -> list[JobGroup]:
    """Training jobs in groups like the template; `trained_at_once`: so many clients may be trained at once."""
    together = trained_at_once > 1 and len(jobs) >= AT_ONCE_FROM
    averaged = min(len(jobs) // MEANS, LARGEST_MEAN) if template.averages else 1
    size = trained_at_once if together else averaged
    parts = [jobs[start : start + size] for start in range(0, len(jobs), size)]
    return [replace(template, jobs=part, at_once=together) for part in parts]


class RunningMean:
    """The mean of updates by samples, of answers that are taken one after the other. Only the sum so far is kept; it is made
    element by element, so that its bits are the same on every machine."""

    def __init__(self) -> None:
        self._samples, self._parameters, self._buffers = 0, np.zeros(0, np.float32), np.zeros(0, np.float32)

    def take(self, answer: Answer) -> Answer:
        """The answer without its update, which is now in the mean; ValueError: there is no mean with this one. An answer
        whose update is in another mean stays as it is."""
        uplink = answer.uplink
        if uplink is None or uplink.averaged == 0:
            return answer
        update, samples = uplink.weights.get("delta"), uplink.examples if uplink.averaged is None else uplink.averaged
        sent = answer.job.down.weights.values()
        if update is None or len(uplink.weights) > 1 or samples < 1 or _shape(update) not in map(_shape, sent):
            raise ValueError("an update does not fit the weights that were sent")
        if not self._samples:
            self._parameters, self._buffers = np.zeros_like(update.parameters), np.zeros_like(update.buffers)
        if update.parameters.shape != self._parameters.shape or update.buffers.shape != self._buffers.shape:
            raise ValueError("an update does not fit those before it")
        self._parameters += update.parameters * np.float32(samples)
        self._buffers += update.buffers * np.float32(samples)
        self._samples += samples
        return Answer(answer.job, without_update(uplink, update.nbytes), answer.report, answer.cost)

    @property
    def is_finite(self) -> bool:
        return bool(np.isfinite(self._parameters).all() and np.isfinite(self._buffers).all())

    def given_to(self, answer: Answer) -> Answer:
        """An answer that was taken, with the mean as its update."""
        assert answer.uplink is not None
        scale = np.float32(self._samples)
        mean = Weights(self._parameters / scale, self._buffers / scale)
        uplink = replace(answer.uplink, weights={"delta": mean}, averaged=self._samples, averaged_bytes=0)
        return Answer(answer.job, uplink, answer.report, answer.cost)


def averaged(results: Iterable[Result]) -> list[Result]:
    """The results without their updates; the last answer holds the mean. Raises ValueError if there is no mean."""
    mean, found, last = RunningMean(), list[Result](), -1
    for result, state in results:
        if isinstance(result, Answer) and result.uplink is not None:
            result, last = mean.take(result), len(found)
        found.append((result, state))
    if not mean.is_finite:
        raise ValueError("the mean of the updates is not finite")
    if last >= 0:
        answer, state = found[last]
        assert isinstance(answer, Answer)
        found[last] = mean.given_to(answer), state
    return found


def without_update(uplink: Uplink, nbytes: int) -> Uplink:
    """An uplink whose update of so many bytes is in the mean that another one holds."""
    rest = (uplink.arrays, uplink.numbers, uplink.metrics, uplink.local)  # `replace` takes long for so many clients
    return Uplink(uplink.examples, {}, *rest, averaged=0, averaged_bytes=nbytes)


def _shape(weights: Weights) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return weights.parameters.shape, weights.buffers.shape
