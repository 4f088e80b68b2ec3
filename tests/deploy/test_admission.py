"""What a node admits: real messages to the real ClientApp, behind the bundle's hash and the site's policy."""

import inspect
import json
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Context, Message, RecordDict

from fedsim import config as configs
from fedsim import registry
from fedsim.config import RunConfig
from fedsim.deploy import admission, audit, machine_config, policy
from fedsim.deploy.admission import Admission
from fedsim.deploy.machine_config import NodeConfig
from fedsim.deploy.policy import Refused
from fedsim.engine.inline import InlineGrid
from fedsim.flower.app_bundle import app_bundle, bundle_hash, run_settings
from fedsim.payload import Downlink, Job, RunIdentity
from fedsim.transport import wire
from fedsim.weights import Weights

SETTINGS = ("clients=2", "rounds=2", "model=mlr")
PARAMETERS = 650  # of mlr on digits


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A node's home folder without a policy."""
    about = NodeConfig("ward-1", "127.0.0.1:1", Path("ca.crt"), Path("node.key"), 1, {}, {})
    (tmp_path / machine_config.NODE).write_text(machine_config.to_json(about))
    return tmp_path


def config(*settings: str) -> RunConfig:
    found = configs.read(None, [*SETTINGS, *settings])
    InlineGrid(found)  # Flower makes messages on behalf of a task
    return found


def query(kind: str = wire.ROLL_CALL) -> Message:
    return wire.pack_query(1, kind, 60.0)


def job(step: int = 0) -> Message:
    down = Downlink({"model": Weights(np.zeros(PARAMETERS, np.float32))})
    return wire.pack_job(Job(0, step, down), 1, RunIdentity("ab"), 10, 60.0, wire.Encoder())


def ask(home: Path, message: Message, run: RunConfig, bundle: bytes | None = None, **node: str | bool) -> Message:
    context = Context(1, 1, {"partition-id": 0, **node}, RecordDict(), {**run_settings(run)})
    return Admission(home, bundle or app_bundle())(message, context)


def log(home: Path) -> list[dict[str, Any]]:
    audit.verify(home / audit.FILE)
    return [json.loads(line) for line in (home / audit.FILE).read_text().splitlines()]


def test_a_run_is_answered_and_noted(home: Path) -> None:
    run = config()
    assert wire.unpack_presence(ask(home, query(), run))[0]["train"] > 0
    assert not ask(home, job(), run).has_error()
    ask(home, query(wire.ALIVE), run)
    accepted, roll_call, trained = log(home)
    assert (accepted["what"], accepted["bundle"]) == ("run", bundle_hash(app_bundle()))
    assert accepted["settings"] == run.flat()
    assert (roll_call["message"], roll_call["sent"]) == ("query", 0)
    assert (trained["message"], trained["step"]) == ("train", 0)
    assert trained["sent"] > 4 * PARAMETERS


def test_a_job_may_take_as_long_as_the_run_and_the_site_allow(home: Path) -> None:
    seen = list[float]()

    def limited(seconds: float) -> AbstractContextManager[None]:
        seen.append(seconds)
        return nullcontext()

    run = config("timeout=90")
    context = Context(1, 1, {"partition-id": 0}, RecordDict(), {**run_settings(run)})
    for rule in ("", "max-seconds-per-job = 2.5", "max-seconds-per-job = 600"):
        (home / policy.FILE).write_text(rule)
        Admission(home, app_bundle(), limited)(query(), context)
    assert seen == [90, 2.5, 90]


def test_a_job_that_fails_is_noted_with_its_reason(home: Path) -> None:
    with pytest.raises(KeyError):
        ask(home, job(), config("algorithm=fedprox"))  # which needs a number that is not in the message
    assert [line.get("error") for line in log(home)] == [None, "KeyError: 'proximal'"]


def test_any_other_bundle_is_refused_before_its_configuration_is_looked_at(home: Path) -> None:
    for _ in range(2):
        with pytest.raises(Refused, match="node ward-1 refuses this: the bundle cannot be read"):
            ask(home, query(), config(), b"import os")
    (line,) = log(home)  # told once
    assert (line["what"], line["message"]) == ("refused", "query")
    assert "the bundle cannot be read" in str(line["reason"])


def test_the_policy_holds_for_every_message_from_the_moment_it_is_written(home: Path) -> None:
    run = config("algorithm=fedadam")
    ask(home, job(), run)
    (home / policy.FILE).write_text('algorithms = ["fedavg"]')
    for message in (query(), job(), query(wire.ALIVE), query(wire.INITIAL)):
        with pytest.raises(Refused, match="node ward-1 refuses this: algorithm 'fedadam' is not allowed"):
            ask(home, message, run)
    (home / policy.FILE).write_text('algorithms = ["fedadam"]')
    ask(home, job(1), run)


def test_a_policy_that_cannot_be_used_allows_nothing(home: Path) -> None:
    (home / policy.FILE).write_text("max-round = 3")
    with pytest.raises(Refused, match=r"policy\.toml: unknown key 'max-round'. Did you mean 'max-rounds'"):
        ask(home, query(), config())
    (home / policy.FILE).write_text("[forbid]\natack = 'noise'")
    with pytest.raises(Refused, match="unknown setting 'atack'"):
        ask(home, query(), config())


def test_a_server_cannot_go_on_after_the_rounds_it_announced(home: Path) -> None:
    ask(home, job(1), config())
    with pytest.raises(Refused, match="round 3 of a run of 2 rounds"):
        ask(home, job(2), config())


def test_jobs_are_counted_by_day(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / policy.FILE).write_text("max-jobs-per-day = 2")
    run, today = config(), datetime(2030, 1, 1, 23, 59)

    class Clock(datetime):
        @classmethod
        def now(cls, tz: object = None) -> datetime:
            return today

    monkeypatch.setattr(admission, "datetime", Clock)
    ask(home, job(), run)
    ask(home, query(), run)  # no job
    ask(home, job(), run)
    with pytest.raises(Refused, match="2 training jobs were done today, and the site allows 2 a day"):
        ask(home, job(), run)
    today = today.replace(day=2)
    ask(home, job(), run)
    (home / admission.JOBS_TODAY).write_text("")  # a crash while it was written
    ask(home, job(), run)


def test_a_plugin_that_is_not_listed_is_refused_before_it_is_loaded(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    about = tmp_path / "packages" / "my_model-3.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: my-model\nVersion: 3\n")
    (about / "entry_points.txt").write_text("[fedsim.algorithms]\nmine = no_such_module:MINE\n")
    monkeypatch.syspath_prepend(str(about.parent))
    settings = json.dumps({**config().flat(), "algorithm": "mine"})
    context = Context(1, 1, {"partition-id": 0}, RecordDict(), {"set": settings})
    with pytest.raises(Refused, match="algorithm 'mine' is a plug-in of the package my-model 3"):
        Admission(home, app_bundle())(query(), context)


@pytest.fixture
def silo(tmp_path: Path) -> str:
    """A node's own data: 8 samples of 2 classes."""
    x, y = np.zeros((8, 8, 8), np.uint8), np.arange(8) % 2
    np.savez(tmp_path / "silo.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    return str(tmp_path / "silo.npz")


def test_label_counts_of_own_data_leave_the_silo_only_if_its_policy_says_so(home: Path, silo: str) -> None:
    run = config("partition=own")
    told = wire.unpack_presence(ask(home, query(), run, data=silo))[0]
    assert (told["labels"], told["classes"], told["train"]) == ([], 2, 8)
    (home / policy.FILE).write_text("label-counts = true")
    assert wire.unpack_presence(ask(home, query(), run, data=silo))[0]["labels"] == [4, 4]
    (home / policy.FILE).write_text("label-counts = false")
    assert wire.unpack_presence(ask(home, query(), config()))[0]["labels"] == []


@pytest.mark.parametrize("algorithm", ["fedgc", "fedproto", "pacfl"])
def test_an_algorithm_that_tells_label_counts_in_another_way_is_refused_too(
    algorithm: str, home: Path, silo: str
) -> None:
    run = replace(config("partition=own"), algorithm=algorithm)
    for message in (query(), job()):
        with pytest.raises(Exception, match=f"{algorithm} needs to know how many samples of each class") as refused:
            ask(home, message, run, data=silo)
        assert "Algorithms that do not: " in str(refused.value)
        assert "fedavg" in str(refused.value)
    (home / policy.FILE).write_text("label-counts = true")
    assert wire.unpack_presence(ask(home, query(), run, data=silo))[0]["labels"] == [4, 4]


def test_every_algorithm_that_reads_label_counts_says_so() -> None:
    algorithms = [registry.find("algorithm", name) for name in registry.names("algorithm")]
    reads = {a.name for a in algorithms if ".labels" in inspect.getsource(inspect.getmodule(a.server))}
    assert reads
    assert reads <= {a.name for a in algorithms if a.label_counts}
