"""Malicious clients: who they are, what each attack does by hand, and what a run records of it."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsim import registry
from fedsim.attacks import SUCCESS, attack_of, malicious_clients
from fedsim.attacks.omniscient import supporters_quantile
from fedsim.cli import main
from fedsim.config import RunConfig, read
from fedsim.engine.launch import launch
from fedsim.errors import ConfigError
from fedsim.partitions.client_data import client_data
from fedsim.payload import Answer, Downlink, Uplink
from fedsim.report.runs import RunResult
from fedsim.report.settings import group_by_setting
from fedsim.results.record import read_events, read_summary
from fedsim.server.app import build
from fedsim.transport.direct import DirectMessenger
from fedsim.weights import Weights
from tests.equations.halves import arrival, vec
from tests.resuming import check_resuming

Small, Finished = Callable[..., RunConfig], Callable[..., dict[str, Any]]
DOWN = Downlink({"model": Weights(vec(1, 2))})
ROLES: Any = {"delta": "update", "model": "model", "means": "statistic", "counts": "statistic"}


def attack(name: str, *keys: str) -> Any:
    return attack_of(read(None, [f"attack={name}", *(f"attack.{key}" for key in keys)]))


def sent(name: str, *keys: str) -> Uplink:
    """What a malicious client sends whose honest update is (1, -1) and whose other entries are 3 and 4."""
    arrays = {"means": vec(3), "counts": np.array([4])}
    honest = Uplink(5, {"delta": Weights(vec(1, -1), vec(7)), "model": Weights(vec(2, 1))}, arrays)
    found: Uplink = attack(name, *keys).on_client(honest, ROLES, DOWN, np.random.default_rng(0))
    assert found.weights["delta"].parameters.dtype == np.float32
    assert found.weights["delta"].buffers.tolist() == [7]
    assert found.arrays["counts"].tolist() == [4]
    return found


@pytest.mark.parametrize(
    ("keys", "delta", "model", "means"),
    [
        (("scale",), [-1.2, -2.1], [-0.2, -0.1], [-0.3]),  # -0.1 * (received + delta) - received
        (("scale", "factor=-10", "of=update"), [-10, 10], [-9, 12], [-30]),
        (("sign-flip",), [-1, 1], [0, 3], [-3]),
        (("backdoor", "boost=10"), [10, -10], [11, -8], [3]),
    ],
)
def test_what_is_sent_by_hand(
    keys: tuple[str, ...], delta: list[float], model: list[float], means: list[float]
) -> None:
    found = sent(*keys)
    assert found.weights["delta"].parameters == pytest.approx(delta)
    assert found.weights["model"].parameters == pytest.approx(model)
    assert found.arrays["means"] == pytest.approx(means)


def test_noise_has_the_deviation_it_is_given() -> None:
    zeros = Uplink(1, {"delta": Weights(np.zeros(4000, np.float32))})
    made = attack("noise", "deviation=3").on_client(zeros, ROLES, Downlink(), np.random.default_rng(0))
    assert made.weights["delta"].parameters.std() == pytest.approx(3, rel=0.05)


def test_label_flips_and_backdoors_by_hand() -> None:
    config = read(None, ["clients=4"])
    data = client_data(config, 0)
    flipped = attack("label-flip").poisoned(data, 0)
    assert (flipped.y_train == (data.y_train + 1) % 10).all()
    assert flipped.y_test is data.y_test
    backdoor = attack("backdoor", "share=0.25", "target=3", "height=2", "width=5", "value=9")
    poisoned = backdoor.poisoned(data, 0)
    marked = (poisoned.x_train[:, :, :2, :5] == 9).all(axis=(1, 2, 3))
    assert marked.sum() == round(0.25 * len(data.y_train))
    assert (poisoned.y_train[marked] == 3).all()
    assert (poisoned.y_train[~marked] == data.y_train[~marked]).all()
    assert (poisoned.x_train[:, :, 2:] == data.x_train[:, :, 2:]).all()
    x, y = backdoor.goal(data)
    assert len(x) == (data.y_test != 3).sum()
    assert (y == 3).all()
    assert (x[:, :, :2, :5] == 9).all()
    assert attack("backdoor").poisoned(data, 0).x_train[:, :, :3, :4].max() == data.x_train.max()


def test_omniscient_attackers_by_hand() -> None:
    arrivals = [arrival(0, 1, delta=vec(1, 0)), arrival(1, 1, delta=vec(9, 9)), arrival(2, 5, delta=vec(3, 0))]
    replaced = attack("ipm", "clients=1", "eps=2").on_server(arrivals, {"delta": "update"})
    assert [a.uplink.weights["delta"].parameters.tolist() for a in replaced] == [[1, 0], [-4, 0], [3, 0]]
    replaced = attack("alie", "clients=1", "z=0.5").on_server(arrivals, {"delta": "update"})
    assert replaced[1].uplink.weights["delta"].parameters.tolist() == [1.5, 0]  # mean 2, deviation 1
    assert attack("ipm", "clients=0,1,2").on_server(arrivals, {"delta": "update"}) is arrivals  # nobody to know


def test_the_quantile_of_alie() -> None:
    assert supporters_quantile(50, 24) == pytest.approx(1.4261, abs=1e-4)  # s = 2, (26 - 2) / 26
    assert supporters_quantile(10, 2) == 0.0


def test_who_is_malicious() -> None:
    fixed = attack("scale", "ratio=0.3", "from-round=3")
    assert fixed.malicious(1) == frozenset()
    assert len(fixed.malicious(2)) == 3
    assert fixed.malicious(2) == fixed.malicious(9)
    assert attack("scale", "clients=0,7").malicious(0) == {0, 7}
    redrawn = attack("scale", "ratio=0.3", "redraw=true")
    assert len({redrawn.malicious(step) for step in range(5)}) > 1
    config = read(None, ["attack=scale", "attack.redraw=true", "rounds=4"])
    assert malicious_clients(config) == sorted(set().union(*(attack_of(config).malicious(s) for s in range(4))))


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (["attack=krum"], "unknown attack 'krum'.*Choices: alie, backdoor"),
        (["attack=scale", "attack.clients=4"], "attack.clients names client 4, but clients=4 allows 0 to 3"),
        (["attack=scale", "attack.clients=1", "attack.redraw=true"], "leave attack.clients empty"),
        (["attack=scale", "attack.ratio=2"], r"attack\.ratio must be .* at most 1"),
        (["attack=none", "attack.ratio=0.1"], r"unknown config key 'attack\.ratio'"),
        (
            ["attack=ipm", "algorithm=fedamp"],
            r"attack=ipm changes values of the kind update, but clients of fedamp send 'model' \(a model",
        ),
        (["attack=nan", "algorithm=local"], "kind model, statistic, update, but clients of local send nothing"),
        (["attack=backdoor", "attack.target=10"], "attack.target=10, but there are only the classes 0 to 9"),
        (["attack=backdoor", "attack.width=9"], "needs images of at least 3 x 9 pixels"),
    ],
)
def test_what_cannot_work_is_refused(keys: list[str], message: str, small: Small, finished: Finished) -> None:
    with pytest.raises(ConfigError, match=message):
        finished(small(*keys))


EVERYONE = [
    "pace=synchronous",
    "model=mlp",
]  # every client answers in every round, and every part of the model has parameters
SENDING = [name for name in registry.names("algorithm") if name not in ("local", "solo")]  # these send nothing


@pytest.mark.parametrize("name", SENDING)
def test_nan_reaches_no_model_and_the_round_goes_on(name: str, small: Small, tmp_path: Path) -> None:
    launch(small(*EVERYONE, f"algorithm={name}", "attack=nan", "attack.clients=1", f"out={tmp_path / 'run'}"), "inline")
    summary = read_summary(tmp_path / "run")
    refused = [f for f in summary["failures"] if f["client"] == 1]
    assert refused
    assert summary["failures"] == refused
    assert all("refused" in f["reason"] and "NaN or infinite" in f["reason"] for f in refused)
    for array in np.load(tmp_path / "run" / "model.npz").values() if (tmp_path / "run" / "model.npz").exists() else ():
        assert np.isfinite(array).all()
    assert all(np.isfinite(v) for v in summary["metrics"]["loss"]["personal"]["per_client"])


def _cut(uplink: Uplink) -> Uplink:
    weights = {name: Weights(w.parameters[:-1], w.buffers) for name, w in uplink.weights.items()}
    return replace(uplink, weights=weights, arrays={n: a[..., :-1] for n, a in uplink.arrays.items()})


@pytest.mark.parametrize("name", SENDING)
def test_a_wrong_shape_is_refused(name: str, small: Small, finished: Finished, monkeypatch: pytest.MonkeyPatch) -> None:
    checked = DirectMessenger._checked

    def tampered(self: Any, result: Any) -> Any:
        if isinstance(result, Answer) and result.uplink is not None and result.job.client == 2:
            result = replace(result, uplink=_cut(result.uplink))
        return checked(self, result)

    monkeypatch.setattr(DirectMessenger, "_checked", tampered)
    failures = finished(small(*EVERYONE, f"algorithm={name}", "rounds=1"))["failures"]
    assert {f["client"] for f in failures} == {2}
    assert all("refused" in f["reason"] and "shape" in f["reason"] for f in failures)


def test_a_number_that_is_not_finite_is_refused() -> None:
    from fedsim.errors import WireError
    from fedsim.transport.answer_check import AnswerCheck

    with pytest.raises(WireError, match="'steps' is nan"):
        AnswerCheck().check_uplink(Uplink(1, numbers={"steps": float("nan")}))


def test_a_backdoor_is_measured_and_groups_are_reported_apart(small: Small, tmp_path: Path) -> None:
    keys = [
        "clients=8",
        "partition=iid",
        "rounds=4",
        "attack.clients=0,5",
        "attack=backdoor",
        f"out={tmp_path / 'run'}",
    ]
    launch(small(*keys, "attack.from-round=3"), "inline")
    summary = read_summary(tmp_path / "run")
    rates = [
        np.mean([row["metrics"]["global"][SUCCESS] for row in event["clients"]])
        for event in read_events(tmp_path / "run")
        if event["kind"] == "evaluation"
    ]
    assert max(rates[:3]) < 0.5 < rates[3]
    assert summary["metrics"][SUCCESS]["global"]["final"] > 0.5
    steps = [event for event in read_events(tmp_path / "run") if event["kind"] == "step"]
    assert [{row["id"] for row in event["clients"] if row["malicious"]} for event in steps] == [
        set(),
        set(),
        {0, 5},
        {0, 5},
    ]
    groups = summary["groups"]
    assert groups["malicious"]["clients"] == [0, 5]
    assert groups["honest"]["clients"] == [1, 2, 3, 4, 6, 7]
    personal = summary["accuracy"]["personal"]["per_client"]
    assert groups["honest"]["metrics"]["accuracy"]["personal"] == pytest.approx(
        np.mean([personal[c] for c in groups["honest"]["clients"]])
    )
    [setting] = group_by_setting([RunResult.load(tmp_path / "run")])
    assert setting.final_of(malicious=True).mean == pytest.approx((personal[0] + personal[5]) / 2)
    assert setting.attack_success().mean == pytest.approx(summary["metrics"][SUCCESS]["global"]["final"])


def test_reports_show_the_success_rate(small: Small, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, figures = tmp_path / "run", tmp_path / "figures"
    launch(small("attack=label-flip", "attack.clients=1", "rounds=1", f"out={run}"), "inline")
    assert main(["report", str(run), "--plot", str(figures), "--csv", str(tmp_path / "table.csv")]) == 0
    assert (figures / "attack-success.png").exists()
    head, row = (tmp_path / "table.csv").read_text().splitlines()[:2]
    cells = dict(zip(head.split(","), row.split(","), strict=True))
    summary = read_summary(run)
    assert float(cells["attack success"]) == pytest.approx(summary["metrics"][SUCCESS]["global"]["final"])
    assert float(cells["malicious"]) == pytest.approx(summary["accuracy"]["personal"]["per_client"][1])
    assert "honest" in capsys.readouterr().out
    assert main(["report", str(run), "--metric", SUCCESS]) == 0


def test_robust_aggregators_withstand_what_the_mean_does_not(small: Small, finished: Finished) -> None:
    keys = ["clients=8", "partition=iid", "rounds=4", "attack=scale", "attack.factor=-10", "attack.clients=0,5"]
    accuracy = {
        name: finished(small(*keys, f"aggregator={name}", *more), name=name)["accuracy"]["global"]["final"]
        for name, *more in (
            ["mean"],
            ["multi-krum", "aggregator.malicious=2"],
            ["median"],
            ["rfa", "aggregator.iterations=50"],
        )
    }
    plain = finished(small("clients=8", "partition=iid", "rounds=4"), name="plain")["accuracy"]["global"]["final"]
    assert accuracy["mean"] < 0.5 * plain
    assert min(accuracy[name] for name in ("multi-krum", "median", "rfa")) > 0.9 * plain


def test_an_attack_that_never_begins_changes_nothing(small: Small, finished: Finished) -> None:
    never = finished(small("attack=backdoor", "attack.from-round=3"), name="never")
    assert never["weights_sha256"] == finished(small(), name="plain")["weights_sha256"]
    assert never["groups"]["malicious"]["clients"] == []


@pytest.mark.parametrize(
    "keys",
    [
        ["attack=scale", "aggregator=rfa", "attack.from-round=3"],
        ["attack=backdoor", "aggregator=zeno", "aggregator.every=2", "public=60"],
        ["attack=alie", "algorithm=sageflow", "sageflow.emptied=drop"],
    ],
    ids=lambda keys: keys[0],
)
def test_attacked_runs_with_stragglers_resume_as_if_they_had_never_stopped(
    keys: list[str], small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = ["stragglers=uniform-rounds", "pace=periodic", "attack.ratio=0.5", "attack.redraw=true", "rounds=6"]
    check_resuming(small(*keys, *late), tmp_path, monkeypatch)


@pytest.mark.parametrize("name", ["label-flip", "alie", "noise"])
def test_messages_and_jobs_are_attacked_alike(name: str, small: Small, finished: Finished) -> None:
    """Clients that get Flower messages, as in a federation, and clients that get jobs as they are."""
    from flwr.serverapp.strategy import Strategy

    from fedsim.engine.inline import InlineGrid
    from fedsim.flower.strategy import to_record
    from fedsim.results import checkpoint as checkpoints
    from fedsim.server.roll_call import roll_call
    from fedsim.weights import fingerprint

    config = small(f"attack={name}", "attack.ratio=0.5")
    grid, strategy = InlineGrid(config), build(config)
    Strategy.start(strategy, grid, to_record(roll_call(grid, config).initial), num_rounds=2)
    sha256 = fingerprint(checkpoints.arrays_of([strategy.state, grid.client_states()]))
    assert sha256 == finished(config)["weights_sha256"]


def test_clients_that_are_trained_at_once_are_attacked_alike(small: Small, finished: Finished) -> None:
    keys = ["clients=64", "partition=iid", "attack=label-flip", "attack.ratio=0.5", "rounds=1"]
    at_once, alone = (finished(small(*keys, f"vectorize={v}"), name=v)["metrics"] for v in ("auto", "off"))
    for metric in ("loss", SUCCESS):
        assert at_once[metric]["local"]["final"] == pytest.approx(alone[metric]["local"]["final"], abs=1e-5)
    honest = finished(small(*keys[:2], "rounds=1"), name="honest")["metrics"]["loss"]["local"]["final"]
    assert at_once["loss"]["local"]["final"] != pytest.approx(honest, abs=1e-2)
