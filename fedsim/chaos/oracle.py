"""What must hold after a fault: the result of the undisturbed twin or an error that names the culprit, and no leftovers."""

import json
from math import isfinite
from pathlib import Path
from typing import Any

from fedsim.chaos.fault import Trial
from fedsim.errors import FedsimError
from fedsim.results.folder_lock import LOCK
from fedsim.results.record import read_events, read_manifest, read_summary

MEASURED = ("seconds", "cost", "engine")  # of events and summaries: they depend on where a run was made
SAME, REFUSED, LOST, WRONG, HUNG = "same", "refused", "loss", "wrong", "hung"


def judge(trial: Trial) -> tuple[str, list[str]]:
    """The outcome of a trial that has ended, and what is wrong with it."""
    problems = [*trial.problems, *(f"left a process: {command}" for ended in trial.ended for command in ended.left)]
    problems += [f"a traceback: {_last_line(e.output)}" for e in trial.ended if "Traceback (most recent" in e.output]
    problems += [f"left behind: {what}" for what in trial.level.leftovers()]
    if any(ended.code is None for ended in trial.ended):
        return HUNG, [*problems, f"took longer than {trial.level.patience:.0f} s"]
    last = trial.ended[-1]
    if last.code == 0:
        outcome, found = _compare(trial)
        return (WRONG, problems + found) if problems + found else (outcome, [])
    told = _last_line(last.output)
    if not trial.fault.refusal:
        problems.append(f"ended with {last.code}: {told}")
    elif not any(culprit in told for culprit in trial.culprits):
        problems.append(f"the error does not name {' or '.join(trial.culprits)}: {told}")
    return (WRONG, problems) if problems else (REFUSED, [])


def _compare(trial: Trial) -> tuple[str, list[str]]:
    """The outcome of a run that ended, by comparing it with its twin and with those that have the loss of the fault."""
    twin, run = trial.level.twin(trial.scenario), trial.run
    try:
        summary, events, manifest = read_summary(run), read_events(run), read_manifest(run)
    except (FedsimError, ValueError) as error:
        return WRONG, [f"the run folder cannot be read: {error}"]
    expected, found = read_summary(twin), list[str]()
    if manifest["status"] != "finished":
        found.append(f"its status is {manifest['status']}")
    steps = [event["round"] for event in events if event["kind"] == "step"]
    if steps != list(range(1, expected["rounds"] + 1)):
        found.append(f"its steps are {steps}")
    if not _finite([summary, events]):
        found.append("not every number is finite")
    accuracies = [value for kind in summary["accuracy"].values() for value in kind["per_client"] if value is not None]
    if not all(0 <= value <= 1 for value in accuracies):
        found.append(f"its accuracies are {accuracies}")
    if manifest["resumed"] and trial.earned > manifest["resumed"][-1]:
        found.append(f"{trial.earned} rounds were done, but it went on after round {manifest['resumed'][-1]}")
    found += _leftovers(trial, twin)
    if not trial.level.same_weights(run, twin):
        same = any(trial.level.same_model(run, each) for each in trial.twins)
        return LOST, [*found, *([] if same else ["its weights differ"])]
    if not trial.fault.loss or trial.fault.refusal:
        if without_measurements(events) != without_measurements(read_events(twin)):
            found.append("its events differ")
        if _plain(without_measurements(summary)) != _plain(without_measurements(expected)):
            found.append("its summary differs")
    return SAME, found


def _leftovers(trial: Trial, twin: Path) -> list[str]:
    """Files that are there and should not, and the other way round. What a file that was damaged held can be lost with
    it, and the checkpoint before a removed one is still there."""
    damaged = set(trial.culprits) if trial.fault.refusal else set()
    left, missing = files(trial.run) - files(twin), files(twin) - files(trial.run)
    if any(name.startswith("step-") for name in damaged):
        left = {name for name in left if not name.startswith("checkpoint/step-")}
    found = [f"left behind: {name}" for name in sorted(left)]
    found += [f"missing: {name}" for name in sorted(missing) if Path(name).name not in damaged]
    if trial.cache.exists():
        found += [f"left in the cache: {name}" for name in sorted(files(trial.cache) - files(trial.level.cache))]
    return found


def _finite(value: Any) -> bool:
    if isinstance(value, dict | list):
        return all(map(_finite, value.values() if isinstance(value, dict) else value))
    return not isinstance(value, float) or isfinite(value)


def without_measurements(value: Any) -> Any:
    """Events or a summary without what depends on the machine."""
    if isinstance(value, dict):
        return {key: without_measurements(inner) for key, inner in value.items() if key not in MEASURED}
    return [without_measurements(inner) for inner in value] if isinstance(value, list) else value


def files(folder: Path) -> set[str]:
    """The files below a folder, without locks."""
    found = (path for path in folder.rglob("*") if path.is_file() and not path.name.endswith(LOCK))
    return {str(path.relative_to(folder)) for path in found}


def _plain(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _last_line(output: str) -> str:
    return (output.strip().splitlines() or ["no output"])[-1][:300]
