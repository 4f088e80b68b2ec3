"""`fedsim list`: defaults and constraints of parameters."""

import json
import re
from dataclasses import dataclass, field, make_dataclass
from typing import Annotated, Literal

import pytest
from annotated_types import Interval

from fedsim import registry
from fedsim.cli import main
from fedsim.config import (
    DataParams,
    FineTuning,
    NonNegativeInt,
    NoParams,
    PartitionParams,
    PositiveFloat,
    PositiveFraction,
    PublicParams,
    RunConfig,
    constraint,
)
from fedsim.parameters import Parameter, parameters


@dataclass(frozen=True)
class Params:
    """Parameters of every kind."""

    rate: PositiveFloat = 0.5  # of learning
    share: PositiveFraction = 1.0
    mode: Literal["softmax", "identity"] = "softmax"
    fast: bool = False
    name: str = "x"
    parts: tuple[str, ...] = ("base", "head")
    radius: PositiveFloat | None = (
        None  # none: the median of all lengths,
        # as the paper has it
    )
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
    monkeypatch.setattr(registry, "providers", lambda kind: {"example": "here:EXAMPLE"})
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


@dataclass(frozen=True)
class Derived(Params):
    """Has parameters of its own and those of its base, one of them with another meaning."""

    name: str = "y"  # of the derived one
    steps: tuple[NonNegativeInt, ...] = ()
    table: dict[str, int] = field(default_factory=dict)  # not a parameter


def test_parameters_say_what_they_are() -> None:
    found = {parameter.key: parameter for parameter in parameters(Derived)}
    assert list(found)[-2:] == ["other", "steps"]
    assert found["rate"] == Parameter("rate", "float", "above 0", 0.5, "of learning")
    assert found["radius"].meaning == "none: the median of all lengths, as the paper has it"
    assert (found["name"].default, found["name"].meaning) == ("y", "of the derived one")
    assert [found[key].allowed for key in ("share", "mode", "steps")] == [
        "float, above 0 and at most 1",
        "softmax | identity",
        "ints",
    ]
    assert parameters(None) == parameters(NoParams) == ()


def test_parameters_without_a_source_have_no_meaning() -> None:
    made = make_dataclass("Made", [("rate", float, 0.5)], frozen=True)
    assert parameters(made) == (Parameter("rate", "float", "", 0.5, ""),)


def test_everything_of_one_name_is_shown_with_meanings(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "periodic"]) == 0
    pace, stragglers = capsys.readouterr().out.split("periodic (")[1:]
    assert re.match(r"pace\): .*pace\.seconds +1\.0 +float, above 0 +from one aggregation", pace, re.DOTALL)
    assert re.match(r"stragglers\): .*stragglers\.count +5 +int, at least 0 ", stragglers, re.DOTALL)
    assert main(["list", "spfl", "--json"]) == 0
    ((entry,),) = json.loads(capsys.readouterr().out).values()
    assert (entry["params"]["gamma"], entry["types"]["gamma"]) == (10, "int")
    assert entry["meanings"]["gamma"] == "Gamma, rounds between two resets"


def test_an_unknown_name_is_answered_with_the_nearest_one_and_the_kinds(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "fedpox"]) == 2
    assert "Did you mean 'fedprox'? Choices: aggregators, algorithms" in capsys.readouterr().err


def test_everything_that_can_be_set_says_what_it_means(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "--json"]) == 0
    for entries in json.loads(capsys.readouterr().out).values():
        for entry in entries:
            assert entry["constraints"].keys() <= entry["params"].keys()
            assert [key for key, meaning in entry.get("meanings", {}).items() if not meaning] == [], entry["name"]
    for kind in (RunConfig, FineTuning, PartitionParams, PublicParams, DataParams):
        assert [parameter.key for parameter in parameters(kind) if not parameter.meaning] == []
