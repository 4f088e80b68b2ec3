"""The parameters of a dataclass as users meet them: key, type, valid range, default and meaning.

The meaning is the comment behind a field, its only home; it is read from the source when somebody asks:

    mu: NonNegativeFloat = 0.01  # weight of the proximal term
"""

import ast
import dataclasses
import inspect
import textwrap
import tokenize
import types
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from io import StringIO
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from fedsim.config import constraint, key_of


@dataclass(frozen=True)
class Parameter:
    key: str
    type: str  # of a value: int, float, text, bool; "texts" and the like: several, separated by commas
    valid: str  # "above 0 and at most 1", "softmax | identity"; empty: everything of its type
    default: Any
    meaning: str

    @property
    def allowed(self) -> str:
        """Type and valid range: "int, at least 1"; of a choice and a boolean the values."""
        return self.valid if " | " in self.valid else ", ".join(filter(None, (self.type, self.valid)))

    @property
    def shown_default(self) -> str:
        """As a configuration sets it."""
        return shown(self.default)


@cache
def parameters(kind: type | None) -> tuple[Parameter, ...]:
    """The parameters that a dataclass declares, in the order of its fields; none for None."""
    return tuple(_parameters(kind)) if kind is not None else ()


def shown(value: Any) -> str:
    """A value as a configuration sets it: `none`, `true`, `0.5,0.3`, `""`."""
    if value is None or isinstance(value, bool):
        return str(value).lower()
    return (",".join(map(str, value)) if isinstance(value, tuple) else str(value)) or '""'


def _parameters(kind: type) -> Iterator[Parameter]:
    hints, meanings = get_type_hints(kind, include_extras=True), field_comments(kind)
    for field in dataclasses.fields(kind):
        if field.init and field.default_factory is dataclasses.MISSING:
            default = None if field.default is dataclasses.MISSING else field.default
            hint = hints[field.name]
            yield Parameter(key_of(field.name), _type(hint), constraint(hint), default, meanings.get(field.name, ""))


def _type(hint: Any) -> str:
    """The type of a value in words."""
    origin, args = get_origin(hint), get_args(hint)
    if origin is tuple:
        return f"{_type(args[0])}s"
    if origin is Literal:
        return _type(type(args[0]))
    if origin in (Union, types.UnionType):
        return next(_type(arg) for arg in args if arg is not type(None))
    if origin is Annotated:
        return _type(args[0])
    return {str: "text"}.get(hint, getattr(hint, "__name__", str(hint)))


def field_comments(kind: type) -> dict[str, str]:
    """The comment behind each field of a class and its bases; without the source, none."""
    found: dict[str, str] = {}
    for owner in reversed(kind.__mro__):
        found |= _own_comments(owner) if dataclasses.is_dataclass(owner) else {}
    return found


def _own_comments(owner: type) -> dict[str, str]:
    try:
        source = textwrap.dedent(inspect.getsource(owner))
    except (OSError, TypeError):  # defined in an interpreter without a file
        return {}
    by_line = {
        token.start[0]: token.string.lstrip("# ")
        for token in tokenize.generate_tokens(StringIO(source).readline)
        if token.type == tokenize.COMMENT
    }
    body = ast.parse(source).body[0]
    return {
        field.target.id: " ".join(text for line, text in by_line.items() if field.lineno <= line <= _end(field))
        for field in getattr(body, "body", [])
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
    }


def _end(field: ast.AnnAssign) -> int:
    return field.end_lineno or field.lineno
