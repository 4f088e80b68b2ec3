"""`metrics=PORT`: Prometheus metrics of a run, at http://127.0.0.1:PORT/metrics on the machine of the server.

They follow the run's events, so a run without the key pays nothing for them. Other machines are kept out: a Prometheus there
needs a tunnel, or an agent on this machine.
"""

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from fedsim.errors import ConfigError
from fedsim.results.observers import Observer

if TYPE_CHECKING:
    from fedsim.results.record import Record

LOOPBACK = "127.0.0.1"
ROUND_SECONDS = (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000, 3000)
STALENESS = (0, 1, 2, 3, 5, 8, 13, 21, 34)


class Exporter(Observer):
    """Serves the metrics of one run until it is closed. Raises ConfigError if it cannot."""

    def __init__(self, port: int) -> None:
        try:
            from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server
        except ModuleNotFoundError:
            raise ConfigError(f"metrics={port} needs prometheus-client: pip install prometheus-client") from None
        self.registry = CollectorRegistry()
        gauge, counter = partial(Gauge, registry=self.registry), partial(Counter, registry=self.registry)
        histogram = partial(Histogram, registry=self.registry)
        self._info = gauge("fedsim_run_info", "What runs: always 1", ["run", "algorithm", "dataset", "engine"])
        self._round = gauge("fedsim_round", "Rounds that are done")
        self._rounds = gauge("fedsim_rounds", "Rounds that the run will have")
        self._clients = gauge("fedsim_clients", "Clients of the run")
        self._online = gauge("fedsim_clients_online", "Clients that are not lost")
        self._results = counter("fedsim_results", "Results that went into an update")
        self._wasted = counter("fedsim_wasted", "Results that came too late, or not at all")
        self._failures = counter("fedsim_failures", "Jobs that failed")
        self._refused = counter("fedsim_refused", "Results that were refused")
        self._bytes = gauge("fedsim_bytes", "Bytes of vectors since the run began", ["direction"])
        self._seconds = counter("fedsim_seconds", "Seconds of work", ["activity"])
        self._round_seconds = histogram("fedsim_round_seconds", "Seconds per round", buckets=ROUND_SECONDS)
        self._staleness = histogram("fedsim_staleness", "Age of results, in rounds", buckets=STALENESS)
        self._accuracy = gauge("fedsim_accuracy", "The latest mean of the main metric", ["kind"])
        self._last = 0.0  # when the last round ended, in seconds of the run
        try:
            self._server, self._thread = start_http_server(port, LOOPBACK, self.registry)
        except OSError as error:
            raise ConfigError(f"metrics={port}: cannot listen on {LOOPBACK}:{port}: {error.strerror}") from error

    def begin(self, record: "Record") -> None:
        config, self._record = record.config, record
        self._info.labels(record.run.id, config.algorithm, config.dataset, record.engine).set(1)
        self._rounds.set(config.rounds)
        self._last = record.seconds
        self._show_clients()

    def event(self, event: Mapping[str, Any]) -> bool:
        for activity, seconds in event["cost"].items():
            if activity != "memory":
                self._seconds.labels(activity).inc(seconds)
        for kind, curve in self._record.curves.items():
            if curve.points:
                self._accuracy.labels(kind).set(curve.points[-1][1])
        if event["kind"] == "step":
            self._step(event)
        self._count_failures(event.get("failures", ()))
        self._show_clients()
        return False

    def _step(self, event: Mapping[str, Any]) -> None:
        self._round.set(event["round"])
        self._round_seconds.observe(event["seconds"] - self._last)
        self._last = event["seconds"]
        self._results.inc(len(event["clients"]))
        self._wasted.inc(len(event["wasted"]))
        for row in event["clients"]:
            self._staleness.observe(row["staleness"])
        for direction in ("up", "down"):
            self._bytes.labels(direction).set(event[f"bytes_{direction}"])

    def _count_failures(self, failures: Any) -> None:
        self._failures.inc(len(failures))
        self._refused.inc(sum(failure.get("refused", False) for failure in failures))

    def _show_clients(self) -> None:
        fleet = self._record.fleet
        self._clients.set(len(fleet))
        self._online.set(len(fleet) - sum(until == float("inf") for until in fleet.absent_until.values()))

    def close(self) -> None:
        """Stops serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
