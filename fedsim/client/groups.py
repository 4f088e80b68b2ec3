"""Groups of training jobs: how many clients one worker gets together, and what becomes of their results.

Groups depend on the configuration and the cohort alone, never on the engine or the number of workers, so that every
engine makes the same sums in the same order.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fedsim import registry
from fedsim.config import RunConfig
from fedsim.layout import Layout
from fedsim.payload import Answer, ClientState, Failure, Uplink
from fedsim.weights import Weights, weighted_mean

AT_ONCE, SMALL = 32, 1_000_000  # clients trained at once, and the most parameters for which that pays
AT_ONCE_FROM = 64  # jobs that are sent together; the models of fewer are trained one by one
MEANS, LARGEST_MEAN = 12, 64  # updates are averaged in about so many groups, of at most so many clients

Result = tuple[Answer | Failure, ClientState | None]  # of a job, and the client's new state


def at_once(config: RunConfig, layout: Layout) -> int:
    """How many clients are trained at once: `vectorize`, or with `auto` 32 for algorithms that allow it and dense models."""
    if config.vectorize == "off" or not registry.find("algorithm", config.algorithm).vectorizes:
        return 1
    if config.vectorize != "auto":
        return int(config.vectorize)
    dense = not layout.buffers and all(len(tensor.shape) <= 2 for tensor in layout.parameters)
    return AT_ONCE if dense and config.optimizer == "sgd" and layout.size <= SMALL else 1


def group_size(jobs: int, trained_at_once: int, averages: bool) -> int:
    """How many of so many training jobs one worker gets together: a multiple of those that it trains at once."""
    together = trained_at_once if jobs >= AT_ONCE_FROM else 1
    averaged = max(1, min(jobs // MEANS, LARGEST_MEAN)) if averages else 1
    return -(-averaged // together) * together


def averaged(results: Sequence[Result]) -> list[Result]:
    """The first answer gets the mean of all updates, by samples; the others keep none (see `payload.with_updates`).

    Updates that have no finite mean, or not the shape of the model that was sent, stay as they are: the server then
    names the clients whose updates it refuses.
    """
    trained = [(place, r, r.uplink) for place, (r, _) in enumerate(results) if isinstance(r, Answer) and r.uplink]
    mean = _mean([uplink for _, _, uplink in trained])
    if mean is None or any(_shape(r.job.down.model) != _shape(mean) for _, r, _ in trained):
        return list(results)
    samples, after = sum(uplink.examples for _, _, uplink in trained), list(results)
    for number, (place, answer, uplink) in enumerate(trained):
        if number == 0:
            own = replace(uplink, weights={"delta": mean}, averaged=samples)
        else:  # spelled out, because `replace` takes long for so many clients
            held, rest = uplink.weights["delta"].nbytes, (uplink.arrays, uplink.numbers, uplink.metrics, uplink.local)
            own = Uplink(uplink.examples, {}, *rest, averaged=0, averaged_bytes=held)
        after[place] = Answer(answer.job, own, answer.report, answer.cost), results[place][1]
    return after


def _mean(uplinks: Sequence[Uplink]) -> Weights | None:
    """The mean of the updates, by samples; None if there is no finite one."""
    if len(uplinks) < 2 or any(uplink.weights.keys() != {"delta"} or uplink.examples < 1 for uplink in uplinks):
        return None
    updates, samples = [uplink.weights["delta"] for uplink in uplinks], [uplink.examples for uplink in uplinks]
    if len({_shape(update) for update in updates}) > 1:
        return None
    mean = Weights(
        *(weighted_mean(v, samples) for v in ([u.parameters for u in updates], [u.buffers for u in updates]))
    )
    finite = np.isfinite(mean.parameters).all() and np.isfinite(mean.buffers).all()
    return mean if finite else None


def _shape(weights: Weights) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return weights.parameters.shape, weights.buffers.shape
