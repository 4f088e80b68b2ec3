"""The events of a run as the page reads them: one short object per event, with the keys

r, s      round, and real seconds since the run began; m: memory of the server in MB
of a step also
t         virtual seconds; u, d: bytes sent up and down until then
n, w, a   results that were used, and wasted; mean and maximum of the used ones' staleness
j         jobs that ended: client, sent, arrived, staleness (null: not used)
f         failures: client, reason
g, p, l   the main metric of the global, personal and local models: ids of the clients (0: of all, in order), and values
"""

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any

import numpy as np

from fedsim.report.accumulate import value
from fedsim.report.matrix_figure import evenly_spaced
from fedsim.report.runs import RunResult

Entry = dict[str, Any]
LETTERS = {"global": "g", "personal": "p", "local": "l"}


def entry(event: Mapping[str, Any], clients: Sequence[int], metric: str) -> Entry | None:
    """Of an event; None if the page does not show such events. `clients`: the ids of all; `metric`: the main one."""
    kind, cost = event["kind"], event.get("cost", {})
    found: Entry = {"r": event["round"], "s": event.get("seconds", 0.0)}
    if "memory" in cost:
        found["m"] = round(cost["memory"])
    rows, wasted = event.get("clients", []), event.get("wasted", [])
    if kind == "evaluation":
        return found | {LETTERS[k]: v for k in ("global", "personal") if (v := _values(rows, k, metric, clients))}
    if kind not in ("step", "end"):
        return None
    if kind == "step":
        ages = [row["staleness"] for row in rows]
        found |= {"t": round(event["time"], 4), "n": len(rows), "w": len(wasted)}
        found["a"] = [round(float(np.mean(ages)), 3) if ages else 0, max(ages, default=0)]
        if values := _values([*rows, *wasted], "local", metric, clients):
            found["l"] = values
    if "bytes_up" in event:
        found |= {"u": event["bytes_up"], "d": event["bytes_down"]}
    jobs = [
        [row["id"], round(row["sent"], 4), round(row["arrived"], 4), row.get("staleness")] for row in [*rows, *wasted]
    ]
    jobs += [[row["id"], round(row["sent"], 4), None, None] for row in event.get("in_flight", [])]
    failures = [[failure["client"], failure["reason"]] for failure in event.get("failures", [])]
    return found | ({"j": jobs} if jobs else {}) | ({"f": failures} if failures else {})


def _values(rows: Sequence[Mapping[str, Any]], kind: str, metric: str, clients: Sequence[int]) -> list[Any] | None:
    pairs = [(row["id"], found) for row in rows if (found := value(row, kind, metric, True)) is not None]
    ids = [client for client, _ in pairs]
    values = [round(found, 5) if isfinite(found) else None for _, found in pairs]
    return [0 if ids == list(clients) else ids, values] if pairs else None


def thinned(run: RunResult, jobs: int, steps: int, evaluations: int) -> list[Entry]:
    """The entries of a run with at most so many jobs (the first ones), steps (neighbors are joined) and rounds with values
    of clients (evenly spaced, with the last one; what clients reported in between comes with the next of them)."""
    clients, metric = run.clients, run.main_metric.name
    found = [each for event in run.events if (each := entry(event, clients, metric)) is not None]
    kept = {k: set(evenly_spaced([e["r"] for e in found if k in e], evaluations)) for k in LETTERS.values()}
    together = max(1, -(-sum("n" in each for each in found) // max(1, steps)))
    waiting: dict[str, dict[int, float | None]] = {letter: {} for letter in LETTERS.values()}
    result, group, moment = list[Entry](), list[Entry](), 0.0
    for each in found:
        listed, moment = each.pop("j", []), each.get("t", moment)
        if listed and jobs:
            each["j"], jobs = listed[:jobs], max(0, jobs - len(listed))
        for letter, values in waiting.items():
            if letter in each:
                ids, numbers = each.pop(letter)
                values |= dict(zip(ids or clients, numbers, strict=True))
                if each["r"] in kept[letter]:
                    each[letter] = [0 if list(values) == clients else list(values), list(values.values())]
                    waiting[letter] = {}
        if "n" in each:
            group.append(each)
        elif each.keys() - {"r", "s", "m"}:
            result.append({"t": moment, **each})
        if len(group) == together:
            result.append(_joined(group))
            group = []
    return [*result, *([_joined(group)] if group else [])]


def _joined(steps: Sequence[Entry]) -> Entry:
    """Neighboring steps as one: sums of what they counted, else the last one's."""
    if len(steps) == 1:
        return steps[0]
    used = sum(step["n"] for step in steps)
    mean = sum(step["a"][0] * step["n"] for step in steps) / used if used else 0
    sums = {
        "n": used,
        "w": sum(step["w"] for step in steps),
        "a": [round(mean, 3), max(step["a"][1] for step in steps)],
    }
    lists = {key: [item for step in steps for item in step.get(key, [])] for key in ("j", "f")}
    latest = {key: found for step in steps for key, found in step.items() if key in LETTERS.values()}
    return {**steps[-1], **latest, **sums, **{key: items for key, items in lists.items() if items}}
