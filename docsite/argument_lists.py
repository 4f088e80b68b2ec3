"""Lists of arguments in docstrings, `name  meaning` line by line, as lists of Markdown for the Python reference."""

import re
from typing import Any

import griffe

ARGUMENT = re.compile(r"^(\w+) {2,}(\S.*)$")


class ArgumentLists(griffe.Extension):
    """An extension of griffe, which reads the sources for mkdocstrings."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring:
            obj.docstring.value = "\n\n".join(map(as_list, obj.docstring.value.split("\n\n")))


def as_list(block: str) -> str:
    lines = block.splitlines()
    if not all(ARGUMENT.match(line) for line in lines):
        return block
    return "\n".join(ARGUMENT.sub(r"- `\1`: \2", line) for line in lines)
