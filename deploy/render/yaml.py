"""YAML of dicts, lists and scalars. Text is always quoted, so that nothing in it can be taken for something else."""

import json
import re
from collections.abc import Iterator
from typing import Any

PLAIN = re.compile(r"[A-Za-z][\w./-]*")
WORDS = {"y", "n", "yes", "no", "on", "off", "true", "false", "null"}  # to YAML these are no text


def dump(*documents: Any) -> str:
    return "---\n".join("\n".join(_lines(document)) + "\n" for document in documents)


def _lines(value: Any) -> Iterator[str]:
    if not _nested(value):
        yield _scalar(value)
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from _entry(f"{_key(key)}:", inner)
    else:
        for inner in value:
            first, *rest = _lines(inner) if _nested(inner) else _entry("", inner)
            yield f"- {first.lstrip()}"
            yield from (f"  {line}" for line in rest)


def _entry(head: str, value: Any) -> Iterator[str]:
    if _nested(value):
        yield head
        yield from (f"  {line}" for line in _lines(value))
    elif _long(value):
        yield f"{head} |{'' if value.endswith(chr(10)) else '-'}"
        yield from (f"  {line}" for line in value.removesuffix("\n").split("\n"))
    else:
        yield f"{head} {_scalar(value)}"


def _nested(value: Any) -> bool:
    return isinstance(value, dict | list) and bool(value)


def _long(value: Any) -> bool:
    """Text of several lines that can stand as it is."""
    if not isinstance(value, str) or "\n" not in value or value[0].isspace() or value.endswith("\n\n"):
        return False
    return all(line.isprintable() for line in value.split("\n"))


def _key(key: str) -> str:
    return key if PLAIN.fullmatch(key) and key.lower() not in WORDS else _scalar(key)


def _scalar(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
