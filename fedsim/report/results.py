"""The table of results: a row per setting, a column per number; the best and the second of each column are known."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from fedsim.record import COSTS
from fedsim.report.groups import Group, Spread
from fedsim.report.statistics import against_winners

HIGHEST, LOWEST = 1, -1


@dataclass(frozen=True)
class Column:
    """`scale` and `digits` say how it is printed, `better` in which direction it is ranked, if at all."""

    name: str
    values: Sequence[Spread | str]
    digits: int | None = 2  # None: two significant ones
    scale: float = 1.0
    better: int = 0

    def text(self, row: int) -> str:
        value = self.values[row]
        return value.text(self.digits, self.scale) if isinstance(value, Spread) else value


@dataclass(frozen=True)
class Results:
    """Settings in rows. Only settings on the same data compete with each other."""

    groups: Sequence[Group]
    columns: Sequence[Column]

    def place(self, column: Column, row: int) -> int | None:
        """0: the best of its data, 1: the second. Values that print alike share a place; a single one has none."""
        return self._places[column.name].get(row) if column.better else None

    @cached_property
    def _places(self) -> dict[str, dict[int, int]]:
        return {column.name: self._ranked(column) for column in self.columns if column.better}

    def _ranked(self, column: Column) -> dict[int, int]:
        rivals: dict[str, dict[int, float]] = {}
        for row, (each, value) in enumerate(zip(self.groups, column.values, strict=True)):
            if isinstance(value, Spread) and value.mean is not None:
                shown = float(Spread(value.mean, None, 1, 1).text(column.digits, column.scale))
                rivals.setdefault(each.data, {})[row] = -column.better * shown
        found: dict[int, int] = {}
        for values in rivals.values():
            if len(values) > 1:
                order = sorted(set(values.values()))
                found |= {row: order.index(value) for row, value in values.items() if value in order[:2]}
        return found

    def records(self) -> list[dict[str, Any]]:
        """Plain values for programs: a mean and a standard deviation for each number, None where there is none."""
        rows = []
        for row, each in enumerate(self.groups):
            flat: dict[str, Any] = {"setting": each.label, "seeds": len(each.runs), "missing": each.missing}
            for column in self.columns:
                value = column.values[row]
                if isinstance(value, Spread):
                    flat |= {column.name: value.mean, f"{column.name} std": value.std}
                elif column.name != "seeds":
                    flat[column.name] = value
            rows.append(flat)
        return rows


def results(groups: Sequence[Group], target: float | None = None) -> Results:
    """What came out, beside what a paper reports where one does."""

    def accuracy(name: str, value: Callable[[Group], Spread], better: int = HIGHEST) -> Column:
        return Column(name, [value(each) for each in groups], 2, 100.0, better)

    columns = [Column("seeds", [each.seeds for each in groups]), accuracy("best", lambda g: g.best())]
    columns += [*_published(groups, "personal"), accuracy("final", lambda g: g.final())]
    columns += [accuracy("worst 10 %", lambda g: g.worst())]
    for kind in ("local", "global"):
        if beside := _published(groups, kind):
            columns += [accuracy(f"{kind} best", lambda g, kind=kind: g.best(kind)), *beside]  # type: ignore[misc]
    if len(groups) > 1:
        ps = [Spread(p, None, 1, 1) if p is not None else Spread(None, None, 0, 0) for p in against_winners(groups)]
        columns += [Column("p vs best", ps, None)]
    if target is not None:
        at = f"to {100 * target:g} %"
        columns += [
            Column(f"rounds {at}", [g.rounds_to(target) for g in groups], 1, better=LOWEST),
            Column(f"seconds {at}", [g.seconds_to(target) for g in groups], 1, better=LOWEST),
            Column(f"MB {at}", [g.bytes_to(target) for g in groups], 1, 1e-6, LOWEST),
        ]
    return Results(groups, columns)


def _published(groups: Sequence[Group], kind: str) -> list[Column]:
    name = "published" if kind == "personal" else f"{kind} published"
    numbers = [each.published.get(kind, Spread(None, None, 0, 0)) for each in groups]
    return [Column(name, numbers, 2, 100.0)] if any(number.count for number in numbers) else []


def costs(groups: Sequence[Group]) -> Results:
    """What it took: seconds of the machine and where they went, traffic, the highest memory of a client and the server."""

    def seconds(name: str) -> Column:
        return Column(f"{name} s", [g.cost(lambda c: c.seconds[name] if c.seconds else None) for g in groups], 1)

    def most(name: str, of: Callable[[Any], dict[int, float]]) -> Column:
        return Column(name, [g.cost(lambda c: max(of(c).values(), default=None)) for g in groups], 0)

    columns = [Column("wall s", [g.cost(lambda c: c.wall) for g in groups], 1), *map(seconds, COSTS)]
    columns += [Column("MB sent", [g.cost(lambda c: c.traffic) for g in groups], 1, 1e-6)]
    columns += [most("client MB", lambda c: c.client_memory)]
    columns += [Column("server MB", [g.cost(lambda c: c.server_memory) for g in groups], 0)]
    gpu = most("GPU MB", lambda c: c.gpu_memory)
    return Results(groups, [*columns, gpu] if any(v.count for v in gpu.values if isinstance(v, Spread)) else columns)


def sources(groups: Sequence[Group]) -> str:
    """Where the published numbers come from."""
    return "; ".join(dict.fromkeys(each.source for each in groups if each.published and each.source))
