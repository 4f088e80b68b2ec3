"""What came out of a run, for Python and notebooks."""

from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from fedsim.config import RunConfig, parse
from fedsim.errors import ConfigError, unknown
from fedsim.report.runs import RunResult
from fedsim.results.curves import KINDS
from fedsim.results.record import SUMMARY, read_summary

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure
    from torch import nn

KindOfModel = Literal["personal", "global", "local"]


class Result:
    """A run, read from its folder. Raises ConfigError if the folder holds none."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._run = RunResult.load(folder)

    @property
    def config(self) -> RunConfig:
        """What was asked for."""
        return parse({**self._run.config, "out": str(self.folder)})

    @property
    def status(self) -> str:
        """running, finished, failed or interrupted."""
        return str(self._run.manifest["status"])

    @cached_property
    def summary(self) -> dict[str, Any]:
        """The content of summary.json. Raises ConfigError if the run is not finished."""
        if not (self.folder / SUMMARY).exists():
            raise ConfigError(f"{self.folder} has no {SUMMARY}: the run is {self.status}")
        return read_summary(self.folder)

    @property
    def failures(self) -> "pd.DataFrame":
        """A row for each job that failed: client, round, reason."""
        import pandas as pd

        rows = [failure for event in self._run.events for failure in event.get("failures", [])]
        return pd.DataFrame(rows, columns=["client", "round", "reason"])

    def accuracy(self, kind: KindOfModel = "personal") -> "pd.DataFrame":
        """The accuracy of every client, a row per evaluated round and a column per client."""
        return self.metric("accuracy", kind)

    def loss(self, kind: KindOfModel = "personal") -> "pd.DataFrame":
        """The loss of every client, a row per evaluated round and a column per client."""
        return self.metric("loss", kind)

    def metric(self, name: str | None = None, kind: KindOfModel = "personal") -> "pd.DataFrame":
        """A metric of the run (the main one unless given), a row per evaluated round and a column per client. A client
        that was not evaluated in a round keeps its previous value. Raises ConfigError for an unknown metric or kind."""
        import pandas as pd

        from fedsim.report.runs import choose_metric

        if kind not in KINDS:
            unknown("kind of model", str(kind), KINDS)
        series = self._run.series(kind, choose_metric([self._run], name).name)
        rounds = pd.Index(series.rounds, name="round")
        return pd.DataFrame(series.values, rounds, pd.Index(self._run.clients, name="client"))

    @property
    def costs(self) -> "pd.Series[float]":
        """Seconds by activity, bytes sent, and peaks of memory in MB."""
        import pandas as pd

        costs = self._run.costs
        peak = max(costs.client_memory.values(), default=float("nan"))
        told = {"wall": costs.wall, **costs.seconds, "bytes": costs.traffic, "client memory": peak}
        server = float("nan") if costs.server_memory is None else costs.server_memory
        return pd.Series({**told, "server memory": server}, dtype=float)

    def plot(
        self, metric: str | None = None, kind: KindOfModel = "personal", path: str | Path | None = None
    ) -> "Figure":
        """The metric over the rounds and for every client at the end; also written to `path`, if it is given."""
        from fedsim.report.figures import metric_figure

        if kind not in KINDS:
            unknown("kind of model", str(kind), KINDS)
        return metric_figure([self._run], None if path is None else Path(path), metric, kind)

    def model(self, client: int | None = None) -> "nn.Module":
        """The model that a client uses at the end of the run, or the global model, as a torch module in evaluation mode.

        Raises ConfigError if the run has no such client or no global model, or is not finished.
        """
        from fedsim.api.models import global_model, personal_model

        return global_model(self) if client is None else personal_model(self, client)

    def __repr__(self) -> str:
        config = self._run.config
        name = f"{config['algorithm']} on {config['dataset']}/{config['partition']}"
        return f"<Result of {name}: {self.status}, {self.folder}>"

    def _repr_html_(self) -> str:
        """For notebooks: the final values of every kind of model, and the curve as a picture."""
        from base64 import b64encode

        from fedsim.report.figures import metric_figure

        metric, rows = self._run.main_metric, []
        for kind in ("personal", "global", "local"):
            series = self._run.series(kind)
            if len(series.rounds):
                numbers = (series.mean[-1], series.best, series.worst[-1])
                rows.append(f"<tr><td>{kind}</td>{''.join(f'<td>{metric.text(v)}</td>' for v in numbers)}</tr>")
        head = "".join(f"<th>{title}</th>" for title in (metric.name, "final", "best", "worst client"))
        picture = b64encode(metric_figure([self._run], None)._repr_png_()).decode()
        image = f'<img src="data:image/png;base64,{picture}" style="max-width:100%">'
        return f"<p>{escape(repr(self))}</p><table><tr>{head}</tr>{''.join(rows)}</table>{image}"
