"""fedsim as it is measured: started like `fedsim run`, on a workload's data."""

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.workloads import LR, Workload, write

NEVER = 10**9


@dataclass(frozen=True)
class Measured:
    seconds: list[float]  # of each timed round
    driver: float  # peak memory in MB of the process that runs the server
    worker: float  # the highest peak memory in MB of the processes that train


def data_folder() -> Path:
    """Where the synthetic datasets lie."""
    from fedsim.partitions import cache

    return cache.root() / "benchmarks"


def has_key(name: str) -> bool:
    """Whether this version of fedsim has the configuration key."""
    from fedsim.config import RunConfig

    return name in {field.name for field in dataclasses.fields(RunConfig)}


def fedsim(engine: str, workload: Workload, settings: Mapping[str, Any]) -> Measured:
    """FedAvg on the workload without evaluation; the first round (warm-up) and the last one (evaluates) are left out."""
    from fedsim.config import parse
    from fedsim.engine.launch import launch

    write(workload, data_folder())
    with TemporaryDirectory() as home:
        config = parse(
            {
                "dataset": workload.dataset,
                "data-root": str(data_folder()),
                "model": workload.model,
                "clients": workload.clients,
                "participation": workload.cohort / workload.clients,
                "rounds": workload.rounds + 2,
                "batch-size": workload.batch,
                "lr": LR,
                "eval-every": NEVER,
                "checkpoint-every": 0,
                "device": "cpu",
                "out": f"{home}/run",
                **settings,
            }
        )
        launch(config, engine)
        events = [json.loads(line) for line in Path(f"{home}/run/events.jsonl").read_text().splitlines()]
    steps = [event for event in events if event["kind"] == "step"]
    failed = [failure for step in steps for failure in step["failures"]]
    if failed or any(len(step["clients"]) != workload.cohort for step in steps):
        raise RuntimeError(f"not every client answered in every round: {failed[:3]}")
    moments = [float(step["seconds"]) for step in steps[:-1]]
    seconds = [after - before for before, after in pairwise(moments)]
    worker = max(float(row["cost"].get("memory", 0.0)) for step in steps for row in step["clients"])
    return Measured(seconds, float(steps[-2]["cost"]["memory"]), worker)
