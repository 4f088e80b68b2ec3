"""What a campaign calls wrong: every kind of deviation from the undisturbed run is found."""

import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from fedsim.chaos import oracle
from fedsim.chaos.fault import Fault, Level, Prepare, Process, Scenario, Trial
from fedsim.chaos.process import Ended
from fedsim.config import RunConfig
from fedsim.engine.launch import launch
from fedsim.files import read_json, sealed, unsealed, write_json


class Nothing(Fault):
    name = "nothing"

    def inject(self, trial: Trial) -> None:
        shutil.copytree(trial.level.twin(trial.scenario), trial.run)


class Refusing(Nothing):
    loss, refusal = "the run may refuse to go on", True


class Finished(Level):
    """One run that was made before."""

    name, share, patience = "finished", 1, 60.0
    scenarios, faults = (Scenario("any", ()),), (Nothing,)

    def start(self, trial: Trial, prepare: Prepare) -> Process:
        raise NotImplementedError

    def twin(self, scenario: Scenario) -> Path:
        return self.folder / "twin"


@pytest.fixture(scope="module")
def level(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    made = Finished(tmp_path_factory.mktemp("chaos"))
    keys = {"clients": 2, "rounds": 2, "model": "mlr", "checkpoint_every": 1, "out": str(made.folder / "twin")}
    launch(RunConfig(**keys), "inline")  # type: ignore[arg-type]
    return made


@pytest.fixture
def trial(level: Finished, tmp_path: Path) -> Trial:
    made = Trial(0, level, Nothing(), level.scenarios[0], Random(0), tmp_path / "trial")
    made.fault.inject(made)
    made.ended.append(Ended(0, "", 1.0, 1.0))
    return made


def edit(path: Path, change: Callable[[Any], Any]) -> None:
    content = read_json(path)
    change(content)
    write_json(path, content)


def edit_steps(path: Path, change: Callable[[list[str]], list[str]]) -> None:
    path.write_text("".join(change(path.read_text().splitlines(keepends=True))))


def steps(lines: list[str]) -> list[int]:
    return [number for number, line in enumerate(lines) if '"kind": "step"' in line]


def test_an_exact_copy_is_the_same(trial: Trial) -> None:
    assert oracle.judge(trial) == (oracle.SAME, [])


def _later(line: str) -> str:
    """An event whose results are older than they were."""
    event = unsealed(line)
    for row in event.get("clients", ()):
        row["staleness"] = 7
    return sealed(event) + "\n"


DAMAGES: dict[str, Callable[[Path], object]] = {
    "its weights differ": lambda run: edit(run / "summary.json", lambda s: s.update(weights_sha256="0")),
    "its status is failed": lambda run: edit(run / "manifest.json", lambda m: m.update(status="failed")),
    "its steps are [2]": lambda run: edit_steps(
        run / "events.jsonl", lambda lines: [x for i, x in enumerate(lines) if i != steps(lines)[0]]
    ),
    "its steps are [1, 2, 2]": lambda run: edit_steps(
        run / "events.jsonl", lambda lines: [*lines, lines[steps(lines)[1]]]
    ),
    "not every number is finite": lambda run: edit(run / "summary.json", lambda s: s.update(bytes_up=np.nan)),
    "its accuracies are": lambda run: edit(
        run / "summary.json", lambda s: s["accuracy"]["global"].update(per_client=[1e6])
    ),
    "left behind: .summary.json.77": lambda run: (run / ".summary.json.77").write_text(""),
    "missing: model.npz": lambda run: (run / "model.npz").unlink(),
    "cannot be read": lambda run: (run / "summary.json").write_text("{"),
    "its summary differs": lambda run: edit(run / "summary.json", lambda s: s.update(bytes_up=1)),
    "its events differ": lambda run: edit_steps(run / "events.jsonl", lambda lines: [_later(line) for line in lines]),
}


@pytest.mark.parametrize("problem", DAMAGES)
def test_a_run_that_differs_is_wrong(problem: str, trial: Trial) -> None:
    DAMAGES[problem](trial.run)
    outcome, problems = oracle.judge(trial)
    assert outcome == oracle.WRONG
    assert any(problem in told for told in problems), problems


@pytest.mark.parametrize(
    ("ended", "outcome", "problem"),
    [
        (Ended(None, "", 60.0, 1.0), oracle.HUNG, "took longer than 60 s"),
        (Ended(0, "Traceback (most recent call last):\nKeyError: 3", 1.0, 1.0), oracle.WRONG, "KeyError: 3"),
        (Ended(0, "", 1.0, 1.0, ("sleep 61",)), oracle.WRONG, "left a process: sleep 61"),
        (Ended(1, "fedsim: no", 1.0, 1.0), oracle.WRONG, "ended with 1: fedsim: no"),
    ],
)
def test_a_process_that_ends_badly_is_wrong(ended: Ended, outcome: str, problem: str, trial: Trial) -> None:
    trial.ended.append(ended)
    found, problems = oracle.judge(trial)
    assert found == outcome
    assert any(problem in told for told in problems), problems


def test_a_refusal_must_name_the_culprit(trial: Trial) -> None:
    trial.fault, trial.culprits = Refusing(), ["events.jsonl"]
    trial.ended.append(Ended(1, "fedsim: cannot read events.jsonl", 1.0, 1.0))
    assert oracle.judge(trial) == (oracle.REFUSED, [])
    trial.ended.append(Ended(1, "fedsim: something is wrong", 1.0, 1.0))
    assert oracle.judge(trial)[0] == oracle.WRONG


def test_a_loss_is_accepted_only_if_it_is_exactly_that_one(trial: Trial, tmp_path: Path) -> None:
    shutil.copytree(trial.run, tmp_path / "loss")
    for run in (trial.run, tmp_path / "loss"):
        edit(run / "summary.json", lambda s: s.update(weights_sha256="0"))
    assert oracle.judge(trial)[0] == oracle.WRONG
    trial.twins.append(tmp_path / "loss")
    assert oracle.judge(trial) == (oracle.LOST, [])


def test_rounds_that_were_done_may_not_be_done_again(trial: Trial) -> None:
    edit(trial.run / "manifest.json", lambda m: m.update(resumed=[1]))
    trial.earned = 1
    assert oracle.judge(trial)[0] == oracle.SAME
    trial.earned = 2
    assert oracle.judge(trial)[1] == ["2 rounds were done, but it went on after round 1"]
