"""The tables of results and costs as data: a row per setting, a column per number, with the best two of each column."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Literal

from fedsim.report.settings import MeanStd, Setting
from fedsim.report.statistics import p_against_best
from fedsim.results.curves import KINDS
from fedsim.results.metric import ACCURACY
from fedsim.results.record import COSTS
from fedsim.sweeps.published import ROUNDS


@dataclass(frozen=True)
class Column:
    """`format` and `scale` define how values are printed, `direction` how they are ranked (None: not at all)."""

    name: str
    values: Sequence[MeanStd | str]
    format: str = ".2f"
    scale: float = 1.0
    direction: Literal["max", "min"] | None = None

    def text(self, row: int) -> str:
        value = self.values[row]
        return value.text(self.format, self.scale) if isinstance(value, MeanStd) else value


@dataclass(frozen=True)
class ResultTable:
    """A row per setting. Ranks are among settings on the same data."""

    settings: Sequence[Setting]
    columns: Sequence[Column]

    def rank(self, column: Column, row: int) -> int | None:
        """0 for the best setting on its data, 1 for the second, else None. Values that print alike share a rank; a
        setting without competitors has none."""
        return self._ranks[column.name].get(row) if column.direction else None

    @cached_property
    def _ranks(self) -> dict[str, dict[int, int]]:
        return {column.name: self._ranked(column) for column in self.columns if column.direction}

    def _ranked(self, column: Column) -> dict[int, int]:
        competitors: dict[str, dict[int, float]] = {}
        for row, (each, value) in enumerate(zip(self.settings, column.values, strict=True)):
            if isinstance(value, MeanStd) and value.mean is not None:
                printed = float(f"{value.mean * column.scale:{column.format}}")
                competitors.setdefault(each.data, {})[row] = -printed if column.direction == "max" else printed
        ranks: dict[int, int] = {}
        for values in competitors.values():
            if len(values) > 1:
                order = sorted(set(values.values()))
                ranks |= {row: order.index(value) for row, value in values.items() if value in order[:2]}
        return ranks

    def records(self) -> list[dict[str, Any]]:
        """A dictionary per row for other programs: the unscaled mean and standard deviation of each number, or None."""
        rows = []
        for row, each in enumerate(self.settings):
            flat: dict[str, Any] = {"setting": each.label, "seeds": len(each.runs), "missing": each.missing}
            flat["metric"] = each.metric.name
            for column in self.columns:
                value = column.values[row]
                if isinstance(value, MeanStd):
                    flat |= {column.name: value.mean, f"{column.name} std": value.std}
                elif column.name != "seeds":
                    flat[column.name] = value
            rows.append(flat)
        return rows


def result_table(settings: Sequence[Setting], target: float | None = None) -> ResultTable:
    """The metric of the settings, published numbers, p-values, and the costs of reaching `target`."""
    metric = settings[0].metric if settings else ACCURACY

    def values(name: str, number: Callable[[Setting], MeanStd]) -> Column:
        return Column(name, [number(each) for each in settings], metric.format, metric.scale, metric.direction)

    columns = [Column("seeds", [each.seeds for each in settings]), values("best", lambda each: each.best())]
    columns += [*_published(settings, "personal"), values("final", lambda each: each.final())]
    columns += [values("worst 10 %", lambda each: each.worst())]
    if any(run.malicious for each in settings for run in each.runs):
        columns += [values("honest", lambda each: each.final_of(malicious=False))]
        columns += [values("malicious", lambda each: each.final_of(malicious=True))]
        success = [each.attack_success() for each in settings]
        if any(number.count for number in success):
            columns += [Column("attack success", success, ACCURACY.format, ACCURACY.scale, "min")]
    for kind in KINDS:
        if any(each.unseen(kind).count for each in settings):
            columns += [values(f"unseen {kind}", partial(Setting.unseen, kind=kind))]
    for kind in ("local", "global"):
        if published := _published(settings, kind):
            columns += [values(f"{kind} best", partial(Setting.best, kind=kind)), *published]
    if len(settings) > 1:
        columns += [Column("p vs best", [MeanStd.single(p) for p in p_against_best(settings)], ".2g")]
    if target is not None:
        columns += _to_target(settings, [target] * len(settings), "personal")
    elif any(own := [each.target for each in settings]):
        columns += _to_target(settings, own, "global")
    return ResultTable(settings, columns)


def _to_target(settings: Sequence[Setting], targets: Sequence[float | None], kind: str) -> list[Column]:
    """Rounds, seconds and bytes until the metric of a kind of model reaches the target of each setting, and how many times
    fewer rounds that is than those of its baseline; published numbers of rounds beside ours."""
    metric, values = settings[0].metric, {target for target in targets if target is not None}
    value = f"{metric.scale * min(values):g}{' %' if metric.percent else ''}" if len(values) == 1 else "target"
    to = f"to {value}" if kind == "personal" else f"to {value} ({kind})"

    def column(name: str, number: Callable[..., MeanStd], scale: float = 1.0) -> Column:
        found = [
            MeanStd.of([None]) if t is None else number(s, t, kind) for s, t in zip(settings, targets, strict=True)
        ]
        return Column(f"{name} {to}", found, ".1f", scale, "min")

    rounds = column("rounds", Setting.rounds_to)
    columns = [rounds, *_speed_up(settings, rounds.values, "speed-up")]
    published = [each.published.get(ROUNDS, MeanStd.single(None)) for each in settings]
    if any(number.count for number in published):
        columns.insert(1, Column("rounds published", published, ".0f"))
        columns += _speed_up(settings, published, "speed-up published")
    return [*columns, column("seconds", Setting.seconds_to), column("MB", Setting.bytes_to, 1e-6)]


def _speed_up(settings: Sequence[Setting], rounds: Sequence[MeanStd | str], name: str) -> list[Column]:
    """The rounds of each setting's baseline over its own; no column without baselines."""
    row_of = {run.folder: row for row, each in enumerate(settings) for run in each.runs}
    means = [number.mean if isinstance(number, MeanStd) else None for number in rounds]
    ratios: list[MeanStd] = []
    for each, own in zip(settings, means, strict=True):
        against = next((means[row_of[path]] for path in each.baselines if path in row_of), None)
        ratios.append(MeanStd.single(against / own if against and own else None))
    return [Column(name, ratios, ".1f")] if any(each.baselines for each in settings) else []


def _published(settings: Sequence[Setting], kind: str) -> list[Column]:
    name = "published" if kind == "personal" else f"{kind} published"
    numbers = [each.published.get(kind, MeanStd.single(None)) for each in settings]
    if not any(number.count for number in numbers):
        return []
    return [Column(name, numbers, ACCURACY.format, ACCURACY.scale)]


def cost_table(settings: Sequence[Setting]) -> ResultTable:
    """Computing time by purpose, traffic, and the peak memory of the clients and the server."""

    def seconds(name: str) -> Column:
        return Column(f"{name} s", [s.cost(lambda c: c.seconds[name] if c.seconds else None) for s in settings], ".1f")

    def highest(name: str, by_client: Callable[[Any], dict[int, float]]) -> Column:
        return Column(name, [s.cost(lambda c: max(by_client(c).values(), default=None)) for s in settings], ".0f")

    columns = [Column("wall s", [s.cost(lambda c: c.wall) for s in settings], ".1f"), *map(seconds, COSTS)]
    columns += [Column("MB sent", [s.cost(lambda c: c.traffic) for s in settings], ".1f", 1e-6)]
    columns += [highest("client MB", lambda c: c.client_memory)]
    columns += [Column("server MB", [s.cost(lambda c: c.server_memory) for s in settings], ".0f")]
    gpu = highest("GPU MB", lambda c: c.gpu_memory)
    measured = any(isinstance(value, MeanStd) and value.count for value in gpu.values)
    return ResultTable(settings, [*columns, gpu] if measured else columns)


def published_sources(settings: Sequence[Setting]) -> str:
    """Where the published numbers come from."""
    return "; ".join(dict.fromkeys(each.source for each in settings if each.published and each.source))
