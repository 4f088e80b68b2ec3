"""`log=mlflow`: a run of MLflow, live. The experiment is `log.project`, of a sweep `log.project`/SWEEP.

The server is `log.uri`, else that of MLFLOW_TRACKING_URI, else MLflow's own default.
"""

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedsim.trackers.base import Row, TrackedRun, Tracker

PROJECT = "fedsim"
RUN_TAG = "fedsim.run"
ROUND = "round"  # the metric that tells how far a run is logged
STATUS = {"finished": "FINISHED", "failed": "FAILED", "interrupted": "KILLED"}
# MLflow would wait for minutes until it says that its server does not answer. A user's own choice is respected.
PATIENCE = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2", "MLFLOW_HTTP_REQUEST_TIMEOUT": "20"}
BATCH = 100  # parameters that the server takes at once


class Mlflow(Tracker):
    """MLflow: a run on a tracking server (log.uri), an experiment per sweep"""

    needs = {"mlflow": "mlflow-skinny"}  # noqa: RUF012

    def begin(self, run: TrackedRun) -> int:
        """A run that is resumed goes on in the run of MLflow that has its id as a tag."""
        for name, value in PATIENCE.items():
            os.environ.setdefault(name, value)
        from mlflow.entities import Metric
        from mlflow.tracking import MlflowClient

        self._metric = Metric
        self._client: Any = MlflowClient(self.params.uri or None)
        experiment = self._experiment("/".join(filter(None, (self.params.project or PROJECT, run.group))))
        found = self._client.search_runs([experiment], f"tags.`{RUN_TAG}` = '{run.id}'", max_results=1)
        if found:
            self._id = found[0].info.run_id
            self._client.update_run(self._id, status="RUNNING")
            return int(found[0].data.metrics.get(ROUND, 0))
        tags = {RUN_TAG: run.id, "fedsim.folder": str(run.folder)}
        self._id = self._client.create_run(experiment, tags=tags, run_name=run.name).info.run_id
        self._log_parameters(run.config)
        return 0

    def _experiment(self, name: str) -> str:
        from mlflow.exceptions import MlflowException

        found = self._client.get_experiment_by_name(name)
        if found is None:
            try:
                return str(self._client.create_experiment(name))
            except MlflowException:  # another run of the sweep was faster
                found = self._client.get_experiment_by_name(name)
                if found is None:
                    raise
        return str(found.experiment_id)

    def _log_parameters(self, config: Mapping[str, Any]) -> None:
        from mlflow.entities import Param

        params = [Param(key, str(value)) for key, value in config.items()]
        for start in range(0, len(params), BATCH):
            self._client.log_batch(self._id, params=params[start : start + BATCH])

    def scalars(self, number: int, values: Mapping[str, float]) -> None:
        now = int(1000 * time.time())
        told = {**values, ROUND: float(number)}
        self._client.log_batch(self._id, [self._metric(name, value, now, number) for name, value in told.items()])

    def clients(self, number: int, rows: Sequence[Row]) -> None:
        table = {name: [row[name] for row in rows] for name in rows[0]}
        self._client.log_table(self._id, table, f"clients/round-{number:06d}.json")

    def end(self, status: str, files: Mapping[str, Path]) -> None:
        for path in files.values():
            self._client.log_artifact(self._id, str(path))
        self._client.set_terminated(self._id, STATUS[status])
