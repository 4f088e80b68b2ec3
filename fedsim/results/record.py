"""The run folder: manifest.json (what was asked), events.jsonl (what happened), summary.json (what came out),
model.npz (the final model by tensor name), matrices/ (what related the clients to each other, as it changed),
checkpoint/ (how to go on, and a copy of the manifest).

Whatever happens to the process or to the machine, the folder stays readable: see `fedsim.files`.
"""

import json
import logging
import platform
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from functools import cache
from importlib.metadata import distributions
from itertools import count
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedsim import logs, peak_memory, registry
from fedsim.attacks import attack_of, malicious_clients
from fedsim.config import RunConfig, Scalar
from fedsim.distribution import installed_version
from fedsim.errors import ConfigError, DamagedError, StorageError
from fedsim.files import make_folder, read_json, remove_leftovers, sync_folder, write_json, write_npz
from fedsim.payload import TRAINING, Answer, Arrival, Failure, Job, Metrics, RunIdentity
from fedsim.results import checkpoint as checkpoints
from fedsim.results.curves import KINDS, Curve
from fedsim.results.events import EVENTS, EventLog
from fedsim.results.events import read_events as read_events
from fedsim.results.matrices import FOLDER as MATRICES
from fedsim.results.matrices import Matrices
from fedsim.results.metric import Metric
from fedsim.results.observers import observers
from fedsim.results.progress import Progress, Silent
from fedsim.results.working import FILE as WORKING
from fedsim.results.working import Working
from fedsim.server.fleet import Client, Fleet

# Keys that say where and how patiently a run works, not what it is.
MAY_CHANGE = (
    "checkpoint-every",
    "timeout",
    "refusals",
    "nodes",
    "device",
    "data-root",
    "workers",
    "worker-gpus",
    "server-memory",
    "metrics",
    "log",
    "log-format",
)
BENCHED = "gets no more jobs"  # begins the reason of a failure: too many answers of the client were refused in a row
COSTS = ("training", "communication", "aggregation", "evaluation")  # what wall time goes into
MANIFEST, SUMMARY, MODEL = "manifest.json", "summary.json", "model.npz"
COPY = f"{checkpoints.FOLDER}/{MANIFEST}"  # of the manifest, for a run whose manifest was damaged
log = logging.getLogger(__name__)


def new_folder(config: RunConfig) -> Path:
    """The folder of a new run: `out`, or a new one below runs/. One that already holds a run is refused."""
    if not config.out:
        return _create_folder(config)
    folder = Path(config.out)
    if holds_run(folder):
        lost = "" if (folder / MANIFEST).exists() else f" whose {MANIFEST} is missing"
        raise ConfigError(
            f"{folder} already holds a run{lost}: choose another folder, or go on with `fedsim resume {folder}` "
            f"(on a federation: `fedsim deploy run --resume {folder}`)"
        )
    return folder


def _create_folder(config: RunConfig) -> Path:
    """Creates a folder below runs/ that no other run has, whenever it begins."""
    data = Path(config.dataset).stem.replace(":", "-")  # of a path its last part
    name = f"{datetime.now():%Y%m%d-%H%M%S}-{config.algorithm}-{data}-{config.partition}-{config.seed}"
    folder, number = Path("runs") / name, count(2)
    folder.parent.mkdir(exist_ok=True)
    while True:
        with suppress(FileExistsError):
            folder.mkdir()
            return folder
        folder = folder.with_name(f"{name}-{next(number)}")


def holds_run(folder: Path) -> bool:
    """Whether a run was begun in this folder."""
    return (folder / MANIFEST).exists() or (folder / COPY).exists()


def asked(config: RunConfig) -> dict[str, Scalar]:
    """What a run is, wherever it is kept."""
    return {k: v for k, v in config.flat().items() if k not in ("out", "resume", "any-version")}


def old_folder(config: RunConfig) -> Path:
    """Where the run is kept that is to be resumed; one that is finished or of another configuration is refused."""
    folder = Path(config.out)
    if not config.out:
        raise ConfigError("resume=true needs the folder of the run: out=RUN")
    manifest = read_manifest(folder)
    if manifest["status"] == "finished":
        raise ConfigError(f"{folder} is finished: there is nothing to resume")
    before = manifest["config"]
    changed = [k for k, v in asked(config).items() if k.partition(".")[0] not in MAY_CHANGE and before.get(k, v) != v]
    if changed:
        told = ", ".join(f"{k}={before[k]}" for k in changed)
        raise ConfigError(f"{folder} is a run with {told}: resume it with the configuration it was started with")
    check_version(folder, manifest, config.any_version)
    return folder


def check_version(folder: Path, manifest: Mapping[str, Any], any_version: bool) -> None:
    """Raises ConfigError if another version of fedsim began the run, unless the user agreed to that."""
    began, here = manifest.get("version", "of an older version"), installed_version()
    if began != here and not any_version:
        raise ConfigError(
            f"{folder} was begun by fedsim {began}, and this is {here}, which may compute other results: install the "
            "former, or resume with --any-version (with `flwr run`: any-version=true)"
        )


def metrics_of(config: RunConfig, objective: str) -> Mapping[str, Literal["max", "min"]]:
    """What the clients of a run measure, and which direction is better."""
    own = registry.find("objective", objective).metrics
    training = {TRAINING + metric: way for metric, way in own.items()} if config.eval_training else {}
    return {**own, **training, **attack_of(config).metrics}


class Record:
    """Writes the run folder while the loop runs. Without a folder it only keeps the numbers."""

    def __init__(self, folder: Path | None, config: RunConfig, engine: str, progress: Progress | None = None) -> None:
        self.folder, self.config, self.engine = folder, config, engine
        self._set_objective("classification")
        self.failures: list[dict[str, Any]] = []
        self.bytes_up = self.bytes_down = 0  # of vectors, as far as they were sent and taken
        self._progress = progress or Silent()
        self._observers = observers()
        self._started = time.monotonic()
        self._out: dict[int, dict[str, Any]] = {}  # training jobs by client
        self._wasted: list[dict[str, Any]] = []  # since the last step
        self._reports: dict[int, dict[str, Any]] = {}  # evaluations since the last one was written, by client
        self._local: dict[int, Metrics] = {}  # metrics after training, until their results are accounted for
        self._late: list[dict[str, Any]] = []  # failures after the last step
        self._virtual = 0.0
        self.ends_early = False  # the global model has reached the run's target, or an observer wants the run to end
        self._round, self._traffic = 0, 0.0  # the last one, and the bytes that were sent until its end
        self._moments: list[tuple[float, float]] = []  # of the points of the global curve: virtual seconds and bytes
        self.run = RunIdentity.new()
        self._spent = dict.fromkeys(COSTS, 0.0)  # seconds since the last event
        self.matrices = Matrices(folder)
        self.events = EventLog(folder)
        self._clusters: list[int] | None = None  # of the clients, after the last step
        self._working = Working(None, [])
        self._unseen: list[dict[str, Any]] = []  # what the clients measured that never took part

    def _set_objective(self, name: str) -> None:
        """Empty curves for every metric: those of the objective, on tests and if asked on training data, and those of
        the attack. The first metric is the main one."""
        self.objective, self.metrics = name, metrics_of(self.config, name)
        self.all_curves = {metric: {k: Curve(way) for k in KINDS} for metric, way in self.metrics.items()}
        self.curves = next(iter(self.all_curves.values()))

    def begin(self, fleet: Fleet, done: int = 0, lines: int = 0) -> None:
        """`done`: the round of the checkpoint from which a resumed run goes on, written after so many lines of events."""
        self.fleet = fleet
        self._set_objective(fleet.clients[0].objective)
        if self.config.target:
            self._main.check_target(self.config.target, "target")
        peak_memory.reset()
        if self.folder is not None:
            make_folder(self.folder)
            sync_folder(self.folder.parent)
            for folder in (self.folder / checkpoints.FOLDER, self.folder / MATRICES):
                remove_leftovers(folder)
            remove_leftovers(self.folder, MANIFEST, EVENTS, SUMMARY, MODEL, WORKING)
        if self.config.resume:
            self._replay(done, lines)
        self._working = Working(self.folder, [client.id for client in fleet.clients])
        self._manifest("running", copy=True)
        config, logs.context["run"] = self.config, self.run.id
        self._progress.begin(f"{config.algorithm} on {config.dataset}/{config.partition}", config.rounds, done)
        for observer in self._observers:
            observer.begin(self)

    @property
    def _main(self) -> Metric:
        return Metric(*next(iter(self.metrics.items())))

    def _note_target(self) -> None:
        """Looks whether the latest evaluation of the global model reached the run's target. Raises ConfigError if clients
        received no common model that could be evaluated."""
        points = self.curves["global"].points
        if not points:
            raise ConfigError(
                f"target={self.config.target:g} is of the global model, but {self.config.algorithm} has none"
            )
        self.ends_early |= bool(self._main.reached(np.array(points[-1][1]), self.config.target))

    def _to_target(self, axis: Sequence[float]) -> float | None:
        values = np.array([value for _, value in self.curves["global"].points])
        return self._main.crossing(values, self.config.target, np.array(axis))

    # What the loop tells

    def sent(self, jobs: Sequence[Job], now: float) -> None:
        self._out |= {job.client: {"id": job.client, "base": job.step, "sent": now} for job in jobs if job.train}
        self._working.sent((job.client, job.step) for job in jobs if job.train)
        self.bytes_down += sum(job.down.nbytes for job in jobs)

    def spent(self, **seconds: float) -> None:
        """Seconds that went into one of COSTS; several workers spend them side by side."""
        for name, value in seconds.items():
            self._spent[name] += value

    def reported(self, result: Answer | Failure) -> None:
        job = result.job
        if job.train:
            self._out.pop(job.client, None)
            self._working.ended(job.client)
        if isinstance(result, Answer):
            self.spent(training=result.cost.get("train", 0.0), evaluation=result.cost.get("test", 0.0))
            self.spent(communication=result.cost.get("exchange", 0.0))
            self.bytes_up += result.uplink.nbytes if result.uplink else 0
            report = result.report
            if report.local is not None and job.train:
                self._local[job.client] = report.local
            if job.newcomer:
                found = {"global": report.received, "personal": report.personal, "local": report.local}
                self._reports[job.client] = {"id": job.client, **self._measured(found)}
            elif report.received is not None or report.personal is not None:
                measured = self._measured({"global": report.received, "personal": report.personal})
                self._reports[job.client] = {"id": job.client, "base": job.step, **measured}

    def _measured(self, metrics: Mapping[str, Metrics | None]) -> dict[str, Any]:
        """The columns of an event's row: the main metric of each kind, and all metrics of the kinds that were measured."""
        main = next(iter(self.metrics))
        known = {kind: dict(found) for kind, found in metrics.items() if found is not None}
        return {kind: known[kind].get(main) if kind in known else None for kind in metrics} | {"metrics": known}

    def wasted(self, job: Job, sent: float, arrived: float, reason: str) -> None:
        """A job that brought the server nothing."""
        local = self._measured({"local": self._local.pop(job.client, None)})
        row = {"id": job.client, "base": job.step, "sent": sent, "arrived": arrived, "reason": reason, **local}
        self._wasted += [row] if job.train else []

    def evaluated(self, number: int) -> None:
        """The accuracies of the state after round `number` are in, as far as clients could answer."""
        rows = [self._reports[client] for client in sorted(self._reports)]
        self._reports = {}
        self._event({"kind": "evaluation", "round": number, "seconds": self.seconds, "clients": rows})
        self._progress.evaluated(number, self._text())

    def met_newcomers(self, number: int) -> None:
        """The clients that never took part have tested the model after the last round, as far as they could answer."""
        self._unseen = [self._reports[client] for client in sorted(self._reports)]
        self._reports = {}
        self._event({"kind": "unseen", "round": number, "seconds": self.seconds, "unseen": self._unseen})

    def step(
        self,
        number: int,
        now: float,
        arrivals: Sequence[Arrival],
        failures: Sequence[Failure],
        aggregation: float = 0.0,  # seconds the server took
        clusters: NDArray[np.int64] | None = None,  # of the clients, by row
        measured: Sequence[Metrics] = (),  # by the server, of each arrival
    ) -> None:
        attack = attack_of(self.config)
        rows = [
            {
                "id": a.client,
                "base": a.step,
                "staleness": a.staleness,
                "sent": a.sent,
                "arrived": a.arrived,
                "examples": a.uplink.examples,
                **({"malicious": a.client in attack.malicious(a.step)} if self.config.attack != "none" else {}),
                **a.uplink.metrics,
                **found,
                **self._measured({"local": self._local.pop(a.client, None)}),
                "cost": {name: round(value, 6) for name, value in a.cost.items()},
            }
            for a, found in zip(arrivals, measured or [{}] * len(arrivals), strict=True)
        ]
        failed = _told(number, failures)
        event = {"kind": "step", "round": number, "time": now, "seconds": self.seconds, "clients": rows}
        self.spent(aggregation=aggregation)
        more: dict[str, Any] = {
            "wasted": self._wasted,
            "failures": failed,
            "bytes_up": self.bytes_up,
            "bytes_down": self.bytes_down,
        }
        if clusters is not None and (listed := clusters.tolist()) != self._clusters:
            more["clusters"] = listed
        self._event({**event, **more})
        self._wasted = []
        self._progress.round(number)

    def failed(self, number: int, failures: Sequence[Failure]) -> None:
        """Failures after the last step."""
        self._late = _told(number, failures)

    def progress(self, step: int, buffered: int, training: int) -> None:
        self._progress.within(step + buffered / max(1, buffered + training))

    def finish(self, sha256: str, model: Mapping[str, Any] | None) -> dict[str, Any]:
        """summary.json, and the final model if there is a global one."""
        traffic = {"bytes_up": self.bytes_up, "bytes_down": self.bytes_down}
        out = [self._out[client] for client in sorted(self._out)]
        rest = {"in_flight": out, "wasted": self._wasted, "failures": self._late, **traffic}
        self._event({"kind": "end", "round": self._round, "seconds": self.seconds, **rest})
        summary = self.summary(sha256)
        self.sync()
        if self.folder is not None:
            if model is not None:
                write_npz(self.folder / MODEL, model)
            write_json(self.folder / SUMMARY, summary)
        self.end("finished")
        return summary

    def end(self, status: str) -> None:
        self._progress.end()
        self._working.close()
        try:
            self._manifest(status)
        except StorageError as error:
            if status == "finished":
                raise
            log.warning("%s", error)  # what ended the run matters more
        for observer in self._observers:
            observer.end(self, status)

    def summary(self, sha256: str = "") -> dict[str, Any]:
        config, ids = self.config, [c.id for c in self.fleet.clients]
        return {
            **{
                k: getattr(config, k)
                for k in ("algorithm", "dataset", "partition", "model", "clients", "rounds", "seed")
            },
            "engine": self.engine,
            "accuracy": self._summaries("accuracy", ids),
            "metrics": {metric: self._summaries(metric, ids) for metric in self.metrics},
            "seconds": self.seconds,
            "virtual_seconds": self._virtual,
            "bytes_up": self.bytes_up,
            "bytes_down": self.bytes_down,
            "weights_sha256": sha256,
            "failures": self.failures,
            **({"refusals": found} if (found := self._refusals()) else {}),
            **({"target": self._target()} if self.config.target else {}),
            **({"groups": self._groups()} if self.config.attack != "none" else {}),
            **({"unseen": self._of_unseen()} if self.fleet.unseen else {}),
            **({} if self._clusters is None else {"clusters": _counted(self._clusters)}),
        }

    def _refusals(self) -> dict[str, Any]:
        """How many answers of each client were refused, and who got no more jobs for it; empty if none was."""
        refused = Counter(row["client"] for row in self.failures if row.get("refused"))
        benched = [row["client"] for row in self.failures if row["reason"].startswith(BENCHED)]
        per_client = {str(client): refused[client] for client in sorted(refused)}
        return {"count": refused.total(), "per_client": per_client, "benched": benched} if refused else {}

    def _target(self) -> dict[str, float | str | None]:
        """When the global model reached the run's target; None: it did not."""
        rounds = [number for number, _ in self.curves["global"].points]
        seconds, traffic = zip(*self._moments, strict=True) if rounds else ((), ())
        found = {"round": self._to_target(rounds), "virtual_seconds": self._to_target(seconds)}
        return {"metric": self._main.name, "value": self.config.target, **found, "bytes": self._to_target(traffic)}

    def _groups(self) -> dict[str, Any]:
        """Honest clients and those that attacked at least once: their ids, and the means of their latest metrics."""
        malicious = malicious_clients(self.config)
        honest = [c.id for c in self.fleet.clients if c.id not in malicious]

        def means(clients: Sequence[int]) -> dict[str, dict[str, float | None]]:
            pooled = {metric: self._samples(metric) for metric in self.all_curves}
            return {
                metric: {
                    kind: curves[kind].mean(clients, pooled[metric] if kind == "global" else None) for kind in KINDS
                }
                for metric, curves in self.all_curves.items()
            }

        groups = {"honest": honest, "malicious": malicious}
        return {name: {"clients": clients, "metrics": means(clients)} for name, clients in groups.items()}

    def _of_unseen(self) -> dict[str, Any]:
        """The clients that never took part: their ids, and every metric of each kind of model, per client and its mean."""
        clients, rows = [c.id for c in self.fleet.unseen], {row["id"]: row["metrics"] for row in self._unseen}

        def of(kind: str, metric: str) -> dict[str, Any]:
            found = {c: rows[c][kind][metric] for c in rows if metric in rows[c].get(kind, {})}
            mean = Curve(latest=found).mean(clients, self._samples(metric) if kind == "global" else None)
            return {"final": mean, "per_client": [found.get(c) for c in clients] if found else []}

        metrics = {m: {kind: of(kind, m) for kind in ("personal", "local", "global")} for m in self.metrics}
        return {"clients": clients, "accuracy": metrics.get("accuracy", {}), "metrics": metrics}

    def _summaries(self, metric: str, clients: Sequence[int]) -> dict[str, Any]:
        curves = self.all_curves.get(metric, {kind: Curve() for kind in KINDS})
        return {kind: curves[kind].summary(clients) for kind in ("personal", "local", "global")}

    @property
    def seconds(self) -> float:
        return round(time.monotonic() - self._started, 3)

    # How it is kept

    def _event(self, event: dict[str, Any]) -> None:
        self._account(event)
        event["cost"] = {name: round(value, 6) for name, value in self._spent.items()} | {"memory": peak_memory.peak()}
        self._spent = dict.fromkeys(COSTS, 0.0)
        self.events.append(event)
        for observer in self._observers:
            self.ends_early |= observer.event(event)

    def _account(self, event: Mapping[str, Any]) -> None:
        """Adds one event to the curves; the same way while it happens and when a run is resumed."""

        def add(kind: str, pooled: bool = False) -> None:
            rows = [row for row in [*event["clients"], *event.get("wasted", [])] if kind in row["metrics"]]
            for metric, curves in self.all_curves.items():
                values = {row["id"]: row["metrics"][kind][metric] for row in rows if metric in row["metrics"][kind]}
                curves[kind].add(event["round"], values, self._samples(metric) if pooled else None)

        if event["kind"] == "evaluation":
            add("global", pooled=True)
            add("personal")
            if self.config.target:
                self._note_target()
                self._moments.append((self._virtual, self._traffic))
        elif event["kind"] == "step":
            add("local")
            self._virtual = event["time"]
            self._clusters = event.get("clusters", self._clusters)
            self._round, self._traffic = event["round"], float(event["bytes_up"] + event["bytes_down"])
        self.failures += event.get("failures", [])

    def _samples(self, metric: str) -> dict[int, float]:
        """How many samples every client measures a metric on."""
        part = "train" if metric.startswith(TRAINING) else "test"
        return {c.id: float(getattr(c, part)) for c in self.fleet.everyone}

    def sync(self) -> None:
        """Waits until the disk has everything that a checkpoint relies on."""
        self.events.sync()
        self.matrices.sync()

    def _replay(self, done: int, lines: int) -> None:
        """Takes over the events up to the checkpoint of round `done`, and drops what came after it."""
        if self.folder is None:
            return
        before = read_manifest(self.folder)
        for row in [*before["clients"], *before.get("unseen", [])]:
            now = self.fleet[row["id"]]
            own = {"labels": tuple(row["labels"]), "model": row.get("model", now.model)}
            was = replace(now, train=row["train"], test=row["test"], **own)
            if other := was.differs(now):
                raise ConfigError(f"client {was.id} has other data than when {self.folder} began: {other}")
        for name, layout in self.fleet.layouts.items():
            if before.get("layouts", {}).get(name, told := json.loads(layout.to_json())) != told:
                raise ConfigError(f"model {name} has other tensors than when {self.folder} began")
        saved = tuple(step for step in checkpoints.saved_steps(self.folder) if step <= done)
        self.run = RunIdentity(before.get("run", self.run.id), (*before.get("resumed", ()), done), saved)
        for event in self.events.rewind(done, lines):
            self._account(event)
            self._started = time.monotonic() - event["seconds"]
        self.matrices.rewind(done)

    def _text(self) -> str:
        return "  ".join(f"{kind} {curve.points[-1][1]:.3f}" for kind, curve in self.curves.items() if curve.points)

    def _manifest(self, status: str, copy: bool = False) -> None:
        if self.folder is None:
            return
        manifest = {
            "status": status,
            "version": installed_version(),
            "run": self.run.id,
            "resumed": list(self.run.resumed),
            "config": asked(self.config),
            "objective": {"name": self.objective, "metrics": dict(self.metrics)},
            "engine": self.engine,
            "python": platform.python_version(),
            "packages": _versions("flwr", "ray", "torch", "numpy"),
            "written": datetime.now().isoformat(timespec="seconds"),
            "clients": [_row(client) for client in self.fleet.clients],
            **({"unseen": [_row(client) for client in self.fleet.unseen]} if self.fleet.unseen else {}),
            "layouts": {name: json.loads(layout.to_json()) for name, layout in self.fleet.layouts.items()},
            **({"malicious": malicious_clients(self.config)} if self.config.attack != "none" else {}),
        }
        write_json(self.folder / MANIFEST, manifest)
        if copy:
            make_folder(self.folder / checkpoints.FOLDER)
            write_json(self.folder / COPY, manifest)


def _row(c: Client) -> dict[str, Any]:
    return {"id": c.id, "train": c.train, "test": c.test, "labels": c.labels, "model": c.model}


def _counted(clusters: Sequence[int]) -> dict[str, Any]:
    """The number of clusters that have members, and the cluster of each client; None: it is not known."""
    known = [None if cluster < 0 else cluster for cluster in clusters]
    return {"count": len(set(known) - {None}), "per_client": known}


def _told(number: int, failures: Sequence[Failure]) -> list[dict[str, Any]]:
    return [
        {"client": f.job.client, "round": number, "reason": f.reason, **({"refused": True} if f.refused else {})}
        for f in failures
    ]


@cache
def _versions(*packages: str) -> dict[str, str]:
    """Of what is installed: a server, for one, needs no torch."""
    return {dist.name: dist.version for dist in distributions() if dist.name in packages}


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a run, or its copy if the manifest is damaged; raises ConfigError if there is none."""
    try:
        return _read_json(folder, MANIFEST)
    except ConfigError:
        if not (folder / COPY).exists():
            raise
        found = _read_json(folder, COPY)
        if (folder / SUMMARY).exists():  # which is written at the end
            found["status"] = "finished"
        _warn_once(f"{folder / MANIFEST} is missing or damaged: its copy in {folder / COPY} is used")
        return found


def read_summary(folder: Path) -> dict[str, Any]:
    return _read_json(folder, SUMMARY)


def _read_json(folder: Path, name: str) -> dict[str, Any]:
    try:
        return read_json(folder / name)
    except (OSError, DamagedError) as error:
        raise ConfigError(f"{folder} is not the folder of a run: {name} cannot be read ({error})") from error


@cache
def _warn_once(message: str) -> None:
    """A command reads a manifest several times."""
    log.warning("%s", message)
