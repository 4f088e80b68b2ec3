"""Growth with the number of clients: clients of W2's kind on two Ray workers, time per client and peak memory."""

from benchmarks.comparison import Comparison, Row
from benchmarks.contenders import Measured, fedsim
from benchmarks.process import fresh
from benchmarks.workloads import of_size

SIZES = (10, 100, 1_000, 10_000)
PER_CLIENT_LIMIT = 1.05  # a round of 10,000 clients costs at most 10.5 times one of 1,000
MEMORY_LIMIT = 50.0  # MB by which the driver may grow from 100 to 10,000 clients
PART_LIMIT = 1.1  # of 100 of 10,000 clients to 100 of 1,000, in time and memory


def run() -> list[Row]:
    found = {size: _measure(size) for size in SIZES}
    time = {size: 1000 * _mean(found[size]) / size for size in SIZES}
    part, whole = _measure(10_000, cohort=100), _measure(1_000, cohort=100)
    limits = {10_000: PER_CLIENT_LIMIT}
    rows = [
        Comparison(f"per client, {size:,} clients, vs 1,000", time[size], time[1_000], "ms", limits.get(size))
        for size in SIZES
    ]
    memory = [
        Comparison(f"worker memory, {size:,} clients, vs 100", found[size].worker, found[100].worker, "MB")
        for size in SIZES
        if size > 100
    ]
    allowed = found[100].driver + MEMORY_LIMIT
    return [
        *rows,
        Comparison("per client, 100 of 10,000, vs 100 of 1,000", 10 * _mean(part), 10 * _mean(whole), "ms", PART_LIMIT),
        Comparison("driver memory, 10,000 clients, vs 100 clients + 50 MB", found[10_000].driver, allowed, "MB", 1.0),
        Comparison("driver memory, 100 of 10,000, vs 100 of 1,000", part.driver, whole.driver, "MB", PART_LIMIT),
        Comparison("worker memory, 100 of 10,000, vs 100 of 1,000", part.worker, whole.worker, "MB", PART_LIMIT),
        *memory,
    ]


def _measure(clients: int, cohort: int | None = None) -> Measured:
    return fresh(fedsim, "ray", of_size(clients, cohort), {"workers": 2})


def _mean(measured: Measured) -> float:
    return sum(measured.seconds) / len(measured.seconds)
