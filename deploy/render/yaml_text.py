"""Python dicts, lists and scalars as YAML text, by PyYAML.

Keys keep their order, text of several lines becomes a literal block, and every other string that is not a plain word is
quoted: YAML 1.1 and 1.2 disagree about what `1e3` or `0o17` are, and readers of both exist.
"""

import re
from typing import Any

import yaml

WORD = re.compile(r"(?![YyNn]$)[A-Za-z][\w./-]*")  # y and n are booleans to some readers


class Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        """Always true: a value that occurs twice is written twice, without anchors."""
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        """Lists are indented below their key."""
        super().increase_indent(flow, False)


def _string(dumper: Dumper, text: str) -> yaml.ScalarNode:
    style = None if WORD.fullmatch(text) else "|" if "\n" in text else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style)


Dumper.add_representer(str, _string)


def to_yaml(*documents: Any) -> str:
    """One YAML document each."""
    return str(
        yaml.dump_all(
            documents, Dumper=Dumper, default_flow_style=False, sort_keys=False, allow_unicode=True, width=float("inf")
        )
    )
