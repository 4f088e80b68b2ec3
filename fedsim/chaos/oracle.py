"""What must hold after a fault: the result of the undisturbed twin or an error that names the culprit, and no leftovers."""

import json
from pathlib import Path
from typing import Any

from fedsim.chaos.fault import Trial
from fedsim.errors import FedsimError
from fedsim.results.folder_lock import LOCK
from fedsim.results.record import read_events, read_manifest, read_summary

MEASURED = ("seconds", "cost")  # of events and summaries: they depend on the machine
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
        problems += _compare(trial)
        return (WRONG, problems) if problems else (SAME if trial.twin is None else LOST, [])
    told = _last_line(last.output)
    if not trial.fault.refusal:
        problems.append(f"ended with {last.code}: {told}")
    elif not any(culprit in told for culprit in trial.culprits):
        problems.append(f"the error does not name {' or '.join(trial.culprits)}: {told}")
    return (WRONG, problems) if problems else (REFUSED, [])


def _compare(trial: Trial) -> list[str]:
    twin = trial.twin or trial.level.twin(trial.scenario)
    try:
        summary, expected, manifest = read_summary(trial.run), read_summary(twin), read_manifest(trial.run)
        events = read_events(trial.run)
    except (FedsimError, ValueError) as error:
        return [f"the run folder cannot be read: {error}"]
    found = []
    if manifest["status"] != "finished":
        found.append(f"its status is {manifest['status']}")
    steps = [event["round"] for event in events if event["kind"] == "step"]
    if steps != list(range(1, expected["rounds"] + 1)):
        found.append(f"its steps are {steps}")
    if summary["weights_sha256"] != expected["weights_sha256"]:
        found.append("its weights differ")
    if (trial.run / "model.npz").exists() != (twin / "model.npz").exists():
        found.append("it has no model.npz, or one too many")
    if trial.twin is None:
        if without_measurements(events) != without_measurements(read_events(twin)):
            found.append("its events differ")
        if _plain(without_measurements(summary)) != _plain(without_measurements(expected)):
            found.append("its summary differs")
        found += [f"left behind: {name}" for name in sorted(files(trial.run) - files(twin))]
        found += [f"missing: {name}" for name in sorted(files(twin) - files(trial.run))]
    if manifest["resumed"] and trial.earned > manifest["resumed"][-1]:
        found.append(f"{trial.earned} rounds were done, but it went on after round {manifest['resumed'][-1]}")
    if trial.cache.exists():
        new = files(trial.cache) - files(trial.level.cache)
        found += [f"left in the cache: {name}" for name in sorted(new)]
    return found


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
