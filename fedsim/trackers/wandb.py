"""`log=wandb`: a run of Weights & Biases, live, or in `wandb/` of the run folder with WANDB_MODE=offline, for `wandb sync`.

A sweep is a group. Key, entity, server and mode are W&B's own settings: `wandb login`, WANDB_API_KEY, WANDB_ENTITY,
WANDB_BASE_URL, WANDB_MODE.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedsim.errors import ConfigError
from fedsim.trackers.base import Row, TrackedRun, Tracker

PROJECT = "fedsim"
ROUND = "round"
EXIT_CODES = {"finished": 0, "failed": 1, "interrupted": 130}


class WeightsAndBiases(Tracker):
    """Weights & Biases: a run of the project log.project, a group per sweep; WANDB_MODE=offline writes files"""

    needs = {"wandb": "wandb"}  # noqa: RUF012

    def check(self) -> None:
        super().check()
        import wandb

        online = os.environ.get("WANDB_MODE", "online") == "online"
        if online and not wandb.login(prompt=False, verify=False):
            raise ConfigError("log=wandb: there is no API key: run `wandb login`, or set WANDB_MODE=offline")

    def begin(self, run: TrackedRun) -> int:
        import wandb

        self._wandb, self._name = wandb, run.name
        settings = wandb.Settings(console="off", silent=True, disable_git=True, disable_job_creation=True)
        self._run: Any = wandb.init(
            project=self.params.project or PROJECT,
            dir=str(run.folder),
            id=run.id,
            name=run.name,
            group=run.group or None,
            config=dict(run.config),
            resume="allow",
            reinit="create_new",
            settings=settings,
        )
        self._run.define_metric(ROUND, hidden=True)
        self._run.define_metric("*", step_metric=ROUND)
        summary: dict[str, Any] = dict(self._run.summary)
        return int(summary.get(ROUND, 0))

    def scalars(self, number: int, values: Mapping[str, float]) -> None:
        self._run.log({**values, ROUND: number})

    def clients(self, number: int, rows: Sequence[Row]) -> None:
        columns: list[str | int] = list(rows[0])
        table = self._wandb.Table(columns, [[row[name] for name in rows[0]] for row in rows])
        self._run.log({"clients": table, ROUND: number})

    def end(self, status: str, files: Mapping[str, Path]) -> None:
        artifact = self._wandb.Artifact(f"run-{self._run.id}", "run")
        for name, path in files.items():
            artifact.add_file(str(path), name)
        self._run.log_artifact(artifact)
        self._run.finish(EXIT_CODES[status])
