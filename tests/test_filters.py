"""What filters do to uplinks, on the client and on the server."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedsim import registry
from fedsim.config import RunConfig
from fedsim.errors import ConfigError, WireError
from fedsim.filters import Clip, ClipParams, Filter, Roles
from fedsim.payload import Arrival, Uplink
from fedsim.strategies.fedavg import FedAvg
from fedsim.weights import Weights
from tests.equations.halves import vec

Small, Finished = Callable[..., RunConfig], Callable[..., dict[str, Any]]
ROLES: Roles = {"delta": "update"}


@pytest.fixture
def arrived(monkeypatch: pytest.MonkeyPatch) -> list[Arrival]:
    """Everything that FedAvg's server half receives."""
    found: list[Arrival] = []
    update = FedAvg.update

    def watched(self: Any, state: Any, arrivals: Any) -> Any:
        found.extend(arrivals)
        return update(self, state, arrivals)

    monkeypatch.setattr(FedAvg, "update", watched)
    return found


def lengths(arrivals: list[Arrival]) -> list[float]:
    return [float(np.linalg.norm(a.uplink.weights["delta"].parameters)) for a in arrivals]


def test_clipping_by_hand() -> None:
    clip, rng = Clip(ClipParams(norm=1.0)), np.random.default_rng(0)
    long, short = Uplink(3, {"delta": Weights(vec(3, 4), vec(7))}), Uplink(3, {"delta": Weights(vec(0.3, 0.4))})
    for clipped in (clip.on_client(long, ROLES, rng), clip.on_server(long, ROLES)):
        assert clipped.weights["delta"].parameters == pytest.approx([0.6, 0.8])
        assert clipped.weights["delta"].buffers.tolist() == [7]  # statistics, not an update
        assert clipped.examples == 3
    assert clip.on_client(short, ROLES, rng).weights["delta"].parameters is short.weights["delta"].parameters


@pytest.mark.parametrize("half", ["both", "on_client", "on_server"])
def test_each_half_of_clip_bounds_the_updates_of_a_run(
    half: str, small: Small, finished: Finished, arrived: list[Arrival], monkeypatch: pytest.MonkeyPatch
) -> None:
    finished(small(), name="plain")
    assert min(lengths(arrived)) > 0.2
    arrived.clear()
    for name in ("on_client", "on_server"):
        if half not in ("both", name):
            monkeypatch.setattr(Clip, name, getattr(Filter, name))
    summary = finished(small("filters=clip", "clip.norm=0.1"), name="clipped")
    assert summary["failures"] == []
    assert lengths(arrived) == pytest.approx([0.1] * 8, rel=1e-5)


@pytest.mark.parametrize(
    ("name", "sent"),
    [
        ("fedamp", "'model', a model"),
        ("heurfedamp", "'model', a model"),
        ("twafl", "'shallow', a model"),
        ("scaffold", "'control', a statistic"),
    ],
)
def test_an_algorithm_that_sends_something_else_is_refused(
    name: str, sent: str, small: Small, finished: Finished
) -> None:
    with pytest.raises(ConfigError, match=f"filter 'clip' treats update, but {name} sends {sent}: run it without"):
        finished(small(f"algorithm={name}", "filters=clip"))


@pytest.mark.parametrize("name", ["spfl", "plga", "pfedme", "fedbuff", "local"])
def test_algorithms_that_send_updates_alone_may_be_clipped(name: str, small: Small, finished: Finished) -> None:
    assert finished(small(f"algorithm={name}", "filters=clip", "clip.norm=0.1"))["failures"] == []


class Traced(Filter):
    """Notes in the uplink where it has been, with the roles it was given and a draw of its random stream."""

    name = ""

    def on_client(self, uplink: Uplink, roles: Roles, rng: np.random.Generator) -> Uplink:
        noted = self._noted(uplink, f"{self.name} leaves as {','.join(f'{k}:{v}' for k, v in roles.items())}")
        return replace(noted, numbers={**noted.numbers, f"draw-{self.name}": float(rng.random())})

    def on_server(self, uplink: Uplink, roles: Roles) -> Uplink:
        return self._noted(uplink, f"{self.name} arrives as {','.join(f'{k}:{v}' for k, v in roles.items())}")

    def _noted(self, uplink: Uplink, what: str) -> Uplink:
        return replace(uplink, numbers={**uplink.numbers, "trace": f"{uplink.numbers.get('trace', '')}{what};"})


class Inner(Traced):
    name = "inner"


class Outer(Traced):
    name = "outer"


class Suspicious(Filter):
    """Refuses what every client but one sends."""

    def on_server(self, uplink: Uplink, roles: Roles) -> Uplink:
        if uplink.examples != self.accepted:
            raise WireError("it looks suspicious")
        return uplink

    accepted = 0


@pytest.fixture
def third_party(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("Inner", "Outer", "Suspicious"):
        monkeypatch.setitem(registry.providers("filter"), name.lower(), f"{__name__}:{name}")


@pytest.mark.usefixtures("third_party")
def test_the_server_undoes_filters_in_the_opposite_order(
    small: Small, finished: Finished, arrived: list[Arrival]
) -> None:
    plain = finished(small(), name="plain")
    arrived.clear()
    treated = finished(small("filters=inner, outer"), name="treated")
    traces = {a.uplink.numbers["trace"] for a in arrived}
    assert traces == {
        "inner leaves as delta:update;outer leaves as delta:update;"
        "outer arrives as delta:update;inner arrives as delta:update;"
    }
    draws = [a.uplink.numbers[f"draw-{name}"] for a in arrived for name in ("inner", "outer")]
    assert len(set(draws)) == 2 * 4 * 2  # every job and every filter has a random stream of its own
    assert treated["weights_sha256"] == plain["weights_sha256"]  # and training keeps its own
    arrived.clear()
    finished(small("filters=outer,inner"), name="turned")
    assert all(str(a.uplink.numbers["trace"]).startswith("outer leaves") for a in arrived)


@pytest.mark.usefixtures("third_party")
def test_a_result_that_a_filter_refuses_is_that_clients_failure(
    small: Small, finished: Finished, arrived: list[Arrival], monkeypatch: pytest.MonkeyPatch
) -> None:
    finished(small(), name="plain")
    monkeypatch.setattr(Suspicious, "accepted", arrived[0].uplink.examples)
    client = arrived[0].client
    arrived.clear()
    summary = finished(small("filters=suspicious"), name="refused")
    assert {a.client for a in arrived} == {client}
    assert len(summary["failures"]) == 3 * 2
    assert all("its reply was refused: it looks suspicious" in str(failure) for failure in summary["failures"])


def test_unknown_filters_and_parameters_are_refused(small: Small) -> None:
    with pytest.raises(ConfigError, match=r"unknown filter 'noise'.*Choices: .*clip"):
        small("filters=clip,noise")
    with pytest.raises(ConfigError, match=r"clip\.norm must be above 0, not 0"):
        small("filters=clip", "clip.norm=0")
