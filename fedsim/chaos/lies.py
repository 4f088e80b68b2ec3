"""Answers that cannot be: with numbers out of any range, or changed at random."""

from collections.abc import Callable, Sequence
from random import Random
from typing import Any, cast

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict

from fedsim.transport import wire

NUMBERS: Sequence[Any] = (0, -1, -5, 10**12, 10**30, 1e30, 1e300, float("inf"), float("-inf"), float("nan"))
WORDS: Sequence[Any] = ("", "many", "\x00", "../../etc", b"\xff\x00", [], [1, 2], ["a"], True, 1.5)
DTYPES = ("float64", "float16", "int8", "object", "O", "|V8", "<U4", "nonsense", "float32x", "")
METRICS = ("received.accuracy", "personal.accuracy", "local.accuracy", "train.id", "train.loss", "cost.train", "id")


def lie(content: RecordDict, rng: Random) -> tuple[RecordDict, str]:
    """An answer of a training job with a number that cannot be, and what it is."""
    return rng.choice((_lie_about_examples, _lie_about_update, _lie_about_metrics))(_copy(content), rng)


def _lie_about_examples(content: RecordDict, rng: Random) -> tuple[RecordDict, str]:
    value = rng.choice(NUMBERS)
    content[wire.NUMBERS] = ConfigRecord({**content.config_records[wire.NUMBERS], "examples": value})
    return content, f"examples={value}"


def _lie_about_update(content: RecordDict, rng: Random) -> tuple[RecordDict, str]:
    records = [name for name in (wire.WEIGHTS, wire.ARRAYS, wire.BUFFERS) if name in content]
    if not records:
        return _lie_about_examples(content, rng)
    record = content.array_records[rng.choice(records)]
    name = rng.choice(list(record))
    values, wrong = wire.decode(record[name]).copy(), rng.choice((3e38, -3e38, np.nan, np.inf, 1e20))
    where: Any = slice(None) if rng.random() < 0.5 else rng.randrange(max(1, values.size))
    values.reshape(-1)[where] = wrong
    record[name] = wire.encode(values)
    return content, f"{name}={wrong} {'everywhere' if where == slice(None) else 'in one place'}"


def _lie_about_metrics(content: RecordDict, rng: Random) -> tuple[RecordDict, str]:
    name, value = rng.choice(METRICS), float(rng.choice((1e6, -1.0, float("nan"), float("inf"), 1e300)))
    content[wire.METRICS] = MetricRecord({**content.metric_records[wire.METRICS], name: value})
    return content, f"{name}={value}"


def fuzz(content: RecordDict, rng: Random) -> tuple[RecordDict, str]:
    """A content with one to three random changes, and what they are."""
    changed, told = _copy(content), list[str]()
    for _ in range(rng.choice((1, 1, 2, 3))):
        told.append(rng.choice(CHANGES)(changed, rng))
    return changed, "; ".join(told)


def _remove_record(content: RecordDict, rng: Random) -> str:
    if not content:
        return _add_record(content, rng)
    name = rng.choice(list(content))
    del content[name]
    return f"without record {name}"


def _add_record(content: RecordDict, rng: Random) -> str:
    name = rng.choice(("junk", wire.WEIGHTS, wire.NUMBERS, wire.METRICS, wire.ARRAYS, wire.BUFFERS, wire.JOB, ""))
    made: Sequence[Callable[[], Any]] = (
        lambda: ConfigRecord({"junk": "junk"}),
        lambda: MetricRecord({"junk": 1.0}),
        lambda: ArrayRecord({"junk": Array(np.zeros(100_000, np.float32))}),
        ConfigRecord,
    )
    content[name] = rng.choice(made)()
    return f"record {name!r} is {type(content[name]).__name__}"


def _change_value(content: RecordDict, rng: Random) -> str:
    records: dict[str, Any] = {**content.config_records, **content.metric_records}
    filled = [name for name, record in records.items() if record]
    if not filled:
        return _add_record(content, rng)
    name = rng.choice(filled)
    record: dict[str, Any] = dict(records[name])
    key = rng.choice([*record, "another"])
    record[key] = rng.choice((*NUMBERS, *WORDS)) if name in content.config_records else float(rng.choice(NUMBERS))
    if rng.random() < 0.2:
        record.pop(rng.choice(list(record)))
    content[name] = ConfigRecord(cast(Any, record)) if name in content.config_records else MetricRecord(record)
    return f"{name}.{key}={record.get(key)!r}"


def _change_array(content: RecordDict, rng: Random) -> str:
    filled = [name for name, record in content.array_records.items() if record]
    if not filled:
        return _change_value(content, rng)
    name = rng.choice(filled)
    record = content.array_records[name]
    key = rng.choice(list(record))
    old = record[key]
    shapes = ((), (0,), (-1,), (10**9,), (3, 3), (*old.shape, 2), tuple(n + 1 for n in old.shape))
    part = rng.choice(("dtype", "shape", "stype", "data", "rename"))
    dtype, shape, stype, data = old.dtype, old.shape, old.stype, old.data
    if part == "dtype":
        dtype = rng.choice(DTYPES)
    elif part == "shape":
        shape = rng.choice(shapes)
    elif part == "stype":
        stype = rng.choice(("", "torch", "pickle"))
    elif part == "data":
        data = rng.choice((b"", data[: len(data) // 2], rng.randbytes(len(data)), data + b"\0" * 3, data[:-1]))
    del record[key]
    record["other" if part == "rename" else key] = Array(dtype=dtype, shape=shape, stype=stype, data=data)
    return f"{part} of {name}.{key} is another"


CHANGES = (_remove_record, _add_record, _change_value, _change_value, _change_array, _change_array)


def _copy(content: RecordDict) -> RecordDict:
    """A copy whose records can be changed."""
    copy = RecordDict()
    for name, record in content.items():
        copy[name] = type(record)(dict(record))  # type: ignore[arg-type]
    return copy
