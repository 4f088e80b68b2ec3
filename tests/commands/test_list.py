"""`fedsim list`: defaults and constraints of parameters."""

import json
from dataclasses import dataclass
from typing import Annotated, Literal

import pytest
from annotated_types import Interval

from fedsim import registry
from fedsim.cli import main
from fedsim.config import NonNegativeInt, PositiveFloat, PositiveFraction, constraint


@dataclass(frozen=True)
class Params:
    """Parameters of every kind."""

    rate: PositiveFloat = 0.5
    share: PositiveFraction = 1.0
    mode: Literal["softmax", "identity"] = "softmax"
    fast: bool = False
    name: str = "x"
    parts: tuple[str, ...] = ("base", "head")
    radius: PositiveFloat | None = None
    other: str = ""


@dataclass(frozen=True)
class Something:
    """Has parameters."""

    params: type = Params


EXAMPLE = Something()


def test_constraints_in_words() -> None:
    assert constraint(PositiveFloat) == "above 0"
    assert constraint(Annotated[float, Interval(gt=0, lt=1)]) == "above 0 and below 1"
    assert constraint(Literal["softmax", "identity"]) == "softmax | identity"
    assert constraint(NonNegativeInt | None) == "at least 0, or none"
    assert constraint(bool) == "true | false"
    assert constraint(int) == constraint(str) == ""


def test_the_list_shows_constraints_beside_defaults(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(registry, "names", lambda kind: ["example"])
    monkeypatch.setattr(registry, "find", lambda kind, name: EXAMPLE)
    assert main(["list", "algorithms"]) == 0
    shown = "rate=0.5 (above 0), share=1.0 (above 0 and at most 1), mode=softmax (softmax | identity)"
    further = 'name=x, parts=base,head, radius=none (above 0, or none), other=""'
    assert f"[{shown}, fast=false (true | false), {further}]" in capsys.readouterr().out
    assert main(["list", "algorithms", "--json"]) == 0
    (entry,) = json.loads(capsys.readouterr().out)["algorithms"]
    first = {"rate": 0.5, "share": 1.0, "mode": "softmax", "fast": False, "name": "x"}
    assert entry["params"] == {**first, "parts": ["base", "head"], "radius": None, "other": ""}
    assert entry["constraints"] == {
        "rate": "above 0",
        "share": "above 0 and at most 1",
        "mode": "softmax | identity",
        "fast": "true | false",
        "radius": "above 0, or none",
    }


def test_every_entry_has_both(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "--json"]) == 0
    for entries in json.loads(capsys.readouterr().out).values():
        for entry in entries:
            assert entry["constraints"].keys() <= entry["params"].keys()
