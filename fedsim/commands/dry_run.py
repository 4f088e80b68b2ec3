"""`--dry-run`: what a run would be and cost, without a trace.

The roll call and two rounds with at most two clients happen in this process, in a temporary folder that is removed. The
time of the run follows from what a training sample and a test cost there.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from fedsim.config import RunConfig
from fedsim.errors import ConfigError
from fedsim.results.waiting import waiting

if TYPE_CHECKING:
    from rich.table import Table

    from fedsim.server.fleet import Fleet
    from fedsim.sweeps.sweep_file import Sweep

NOTHING = "a dry run: nothing was written"
ROUNDS, CLIENTS = 2, 2  # of the measurement; the first round pays for what happens once


@dataclass(frozen=True)
class Preview:
    """What a run would be. Bytes are those of one round, seconds those of the whole run on this machine."""

    config: RunConfig
    samples: tuple[int, ...]  # training samples of each client
    tests: int
    models: Mapping[str, tuple[int, int]]  # parameters and buffers by name
    jobs: int  # results of a round
    bytes_down: int
    bytes_up: int
    declared: bool  # whether `bytes_up` is what the algorithm declares; else what the measured round sent
    workers: int  # clients at work at a time
    seconds: float
    memory: float  # highest MB of the process that measured: server and one client

    @property
    def traffic(self) -> int:
        """Bytes of the whole run, with what all clients receive for the last test."""
        return self.config.rounds * (self.bytes_down + self.bytes_up) + self.bytes_down * len(self.samples) // self.jobs


def preview(config: RunConfig, engine: str) -> Preview:
    """Raises what the run itself would raise before its first round."""
    from fedsim import peak_memory
    from fedsim.engine.launch import open_grid
    from fedsim.partitions.client_data import shares
    from fedsim.results.observers import observed_by
    from fedsim.results.record import Record
    from fedsim.server.app import build

    with _nothing_kept() as folder:
        short = _short(config.replace(out=str(folder), checkpoint_every=0, target=0.0, metrics=0))
        shares(short)  # refused here if the data cannot be split
        strategy, watcher = build(short), _watcher()
        peak_memory.reset()
        grid = open_grid(short, "inline")
        try:
            with observed_by([watcher]):
                strategy.start(grid, record=Record(None, short, "inline"))
            fleet: Fleet = watcher.fleet
            sent = [strategy.server.instruct(strategy.state, c.id, True).nbytes for c in fleet.clients[:CLIENTS]]
            specs = strategy.server.expects().values()
        finally:
            grid.close()
    known = all(spec.shape is not None or spec.optional for spec in specs)
    jobs = _jobs(config)
    workers = _workers(config, engine)
    rows, events = watcher.rows, watcher.steps
    up = sum(spec.nbytes for spec in specs) if known else watcher.sent_up // max(1, watcher.jobs)
    per_sample = sum(row["cost"].get("train", 0.0) for row in rows) / max(1, sum(row["examples"] for row in rows))
    sizes = tuple(client.train for client in fleet.clients)
    test = fmean(row["cost"].get("test", 0.0) for row in rows) if rows else 0.0
    job = per_sample * fmean(sizes) + test
    server = events[-1]["cost"]["aggregation"] if events else 0.0
    seconds = config.rounds * (jobs * job / min(workers, jobs) + server) + len(sizes) * test / workers
    return Preview(
        config,
        sizes,
        sum(client.test for client in fleet.clients),
        {name: (layout.size, layout.buffer_size) for name, layout in fleet.layouts.items()},
        jobs,
        round(jobs * fmean(sent)),
        jobs * up,
        known,
        workers,
        seconds,
        peak_memory.peak(),
    )


def _short(config: RunConfig) -> RunConfig:
    """The same run for a measurement: few rounds with few clients, if they are enough for its pace and aggregator."""
    from fedsim.server.app import build
    from fedsim.server.run import pace_and_stragglers

    build(config)
    pace_and_stragglers(config)
    fewer = config.replace(rounds=min(ROUNDS, config.rounds))
    least = fewer.replace(
        participation=min(config.participation, CLIENTS / max(1, config.clients - len(config.unseen)))
    )
    try:
        build(least)
        pace_and_stragglers(least)
    except ConfigError:
        return fewer
    return least


def _jobs(config: RunConfig) -> int:
    """Results of a round: of all clients that have a job, or as many as the pace waits for."""
    return int(getattr(config.params("pace"), "k", config.cohort))


def _workers(config: RunConfig, engine: str) -> int:
    if config.workers or engine == "inline":
        return max(1, config.workers)
    return max(1, (os.cpu_count() or 1) // config.threads)


def _watcher() -> Any:
    """An observer that keeps what a run measures."""
    from fedsim.results.observers import Observer

    class Watcher(Observer):
        def __init__(self) -> None:
            self.steps: list[Mapping[str, Any]] = []

        def begin(self, record: Any) -> None:
            self.fleet = record.fleet

        def event(self, event: Mapping[str, Any]) -> bool:
            if event["kind"] == "step":
                self.steps.append(event)
            return False

        @property
        def rows(self) -> list[dict[str, Any]]:
            """The jobs of the last round."""
            return self.steps[-1]["clients"] if self.steps else []

        @property
        def jobs(self) -> int:
            return sum(len(step["clients"]) for step in self.steps)

        @property
        def sent_up(self) -> int:
            return int(self.steps[-1]["bytes_up"]) if self.steps else 0

    return Watcher()


@contextmanager
def _nothing_kept() -> Iterator[Path]:
    """A temporary folder. The cache of datasets and splits is read, and what it lacks is made in that folder."""
    from fedsim.partitions import cache

    with TemporaryDirectory(prefix="fedsim-dry-run-") as name:
        folder, before = Path(name), os.environ.get("FEDSIM_CACHE")
        for kind in ("datasets", "splits", "given"):
            (folder / "cache" / kind).mkdir(parents=True)
            for known in (cache.root() / kind).glob("[!.]*"):
                (folder / "cache" / kind / known.name).symlink_to(known.resolve())
        os.environ["FEDSIM_CACHE"] = str(folder / "cache")
        try:
            yield folder
        finally:
            if before is None:
                del os.environ["FEDSIM_CACHE"]
            else:
                os.environ["FEDSIM_CACHE"] = before


def preview_table(found: Preview, engine: str) -> "Table":
    """A row for each thing that a user wants to know before a run."""
    from rich.table import Table

    config = found.config
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))

    def row(name: str, text: str) -> None:
        table.add_row(name, text)

    row("run", f"{config.algorithm} on {config.dataset}, partition={config.partition}, engine={engine}")
    unseen = f", {len(config.unseen)} of them only at the end" if config.unseen else ""
    row("clients", f"{config.clients}{unseen}; {found.jobs} results in each of {config.rounds} rounds")
    sizes = found.samples
    row("samples", f"{sum(sizes)} training ({min(sizes)} to {max(sizes)} per client), {found.tests} test")
    for name, (parameters, buffers) in found.models.items():
        row("model", f"{name}: {parameters:,} parameters, {size(4 * (parameters + buffers))}")
    how = "as the algorithm declares" if found.declared else "as measured"
    total = f"{size(found.traffic)} in the whole run"
    row("traffic per round", f"{size(found.bytes_down)} down, {size(found.bytes_up)} up ({how}); {total}")
    row("time", f"about {duration(found.seconds)} of training and tests on this machine, {found.workers} at a time")
    several = f"; on Ray as much for each of {found.workers} workers" if engine == "ray" else ""
    row("memory", f"{found.memory:.0f} MB for the server and a client{several}")
    return table


def _finished(folder: Path) -> bool:
    from fedsim.results.record import holds_run, read_manifest

    return holds_run(folder) and read_manifest(folder)["status"] == "finished"


def size(count: float) -> str:
    """Bytes in a unit that keeps the number short."""
    for unit in ("bytes", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"


def duration(seconds: float) -> str:
    if seconds < 120:
        return f"{max(1, round(seconds))} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def show_preview(config: RunConfig, engine: str) -> None:
    """Prints what a run would be."""
    from fedsim.report.tables import show

    with waiting(f"measuring {ROUNDS} rounds with up to {CLIENTS} clients"):
        found = preview(config, engine)
    show(preview_table(found, engine))
    print(NOTHING)


def show_sweep(sweep: "Sweep", home: Path, jobs: int) -> None:
    """Prints what a sweep into `home` would be, a row per setting: runs that differ in the seed are measured once."""
    from rich.markup import escape
    from rich.table import Table

    from fedsim.report.tables import show

    settings: dict[RunConfig, list[str]] = {}
    for name, config in sweep.cells.items():
        settings.setdefault(config.replace(seed=0), []).append(name)
    table = Table("run", "runs", "finished", "clients", "rounds", "parameters", "MB per round", "time of a run", "MB")
    for column in table.columns[1:]:
        column.justify = "right"
    total = 0.0
    with waiting(f"measuring {len(settings)} settings") as progress:
        for number, names in enumerate(settings.values()):
            progress(number, len(settings))
            found = preview(sweep.cells[names[0]], "inline")
            left = sum(not _finished(home / name) for name in names)
            tried = sweep.search.count * (1 - sweep.search.validation) if sweep.search and left else 0
            total += found.seconds * (left + tried)
            table.add_row(
                escape(names[0]),
                str(len(names)),
                str(len(names) - left),
                str(found.config.clients),
                str(found.config.rounds),
                " + ".join(f"{parameters:,}" for parameters, _ in found.models.values()),
                f"{(found.bytes_down + found.bytes_up) / 1e6:.1f}",
                duration(found.seconds),
                f"{found.memory:.0f}",
            )
    show(table)
    if sweep.search:
        print(f"each setting has a search before it: {sweep.search.count} candidates on validation data, at most")
    print(f"about {duration(total / jobs)} of training and tests on this machine, {jobs} runs at a time")
    print(NOTHING)
