"""Claims as checks of stored records: an order between methods or settings, per seed and for the means over seeds.

    along = "cell"                     # the key whose values the order compares
    order = "spfl > fedupdate > fedavg"
    where = { "partition.shared" = false }    # only these records; a list allows several values

All other keys are free: the order is checked once for each of their combinations, such as each dataset. `a > b` needs a
difference of more than `by`, or a ratio of more than `times`; `a ~ b` one of at most `within`; `a >= b` allows b to be
`within` better; `a < b` is `b > a`. `best` stands for the largest value of all, `rest` for that of all that the order does
not name (with `<`: the smallest), `median` for the middle one of these; values `aside` are left out of all three. `least`
and `most` are limits of the number itself instead of an order. `significant = true` also asks for Wilcoxon's signed-rank
test over clients and seeds, with Holm's correction (p < 0.05), of the first value of the order against each of the others.

A check holds if it does for the means over seeds in every combination; with `negated = true` if there is one in which it
does not. A number that was not reached, such as the rounds to a target, counts as infinite.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf
from statistics import mean as mean_of
from statistics import median_low
from typing import Any

from fedsim.book.records import SEED, Record, mean_and_deviation
from fedsim.config import Scalar

BEST, REST, MEDIAN = "best", "rest", "median"
PSEUDO = (BEST, REST, MEDIAN)
SPLIT = re.compile(r" (>=|>|<|~) ")
LEVEL = 0.05  # of p-values
Values = dict[str, float]  # of a number, by the value of the key `along`


@dataclass(frozen=True)
class Check:
    """A claim, or a part of one, about the records of a page."""

    claim: int
    says: str
    order: str = ""
    along: str = "cell"
    where: Mapping[str, Any] = field(default_factory=dict)
    table: str = ""  # the table of the page whose number is compared; empty: the first
    number: str = ""  # instead of that of the table
    by: float = 0.0
    times: float = 1.0
    within: float = 0.0
    least: float | None = None
    most: float | None = None
    aside: tuple[str, ...] = ()
    negated: bool = False
    significant: bool = False

    def selects(self, record: Record) -> bool:
        return all(_value(record, key) in _texts(wanted) for key, wanted in self.where.items())

    @property
    def named(self) -> list[str]:
        """The values that the order names."""
        return [term for term in SPLIT.split(self.order)[::2] if term not in (*PSEUDO, "")]

    @property
    def compares_all(self) -> bool:
        """Whether the order has a term that stands for other values."""
        return any(term in PSEUDO for term in SPLIT.split(self.order)[::2])

    def true_of(self, values: Values) -> bool:
        if self.least is not None or self.most is not None:
            low, high = (-inf if self.least is None else self.least), (inf if self.most is None else self.most)
            return all(low <= value <= high for value in values.values())
        terms, signs = SPLIT.split(self.order)[::2], SPLIT.split(self.order)[1::2]
        steps = zip(signs, pairwise(terms), strict=True)
        return all(self._step(sign, self._term(a, values, sign), self._term(b, values, sign)) for sign, (a, b) in steps)

    def _step(self, sign: str, a: float, b: float) -> bool:
        if sign == "~":
            return abs(a - b) <= self.within
        if sign == ">=":
            return a >= b - self.within
        high, low = (a, b) if sign == ">" else (b, a)
        return high > self.times * low + self.by if low < inf else False

    def _term(self, name: str, values: Values, sign: str) -> float:
        if name not in PSEUDO:
            return values[name]
        skipped = {*self.aside, *(self.named if name != BEST else ())}
        others = [value for key, value in values.items() if key not in skipped]
        return median_low(others) if name == MEDIAN else min(others) if sign == "<" else max(others)


@dataclass(frozen=True)
class Verdict:
    """What came out of a check: whether it holds (None: not tested), on how many single comparisons of how many (a seed of
    a combination is one), where it fails, and how many combinations were compared."""

    check: Check
    holds: bool | None
    right: int = 0
    compared: int = 0
    fails: tuple[str, ...] = ()
    combinations: int = 0

    @property
    def text(self) -> str:
        if self.holds is None:
            return "not tested"
        counted = f"{self.right} of {self.compared} single runs" if self.compared else "means only"
        return f"{'holds' if self.holds else 'does not hold'} ({counted})"


def judge(check: Check, records: Sequence[Record], number_of: Mapping[str, str], number: str) -> Verdict:
    """The verdict on stored records. `number_of`: the number of a cell, if it is not `number`."""
    groups: dict[tuple[tuple[str, str], ...], dict[str, list[Record]]] = {}
    single = check.least is not None or check.most is not None
    for record in records:
        if check.selects(record) and (check.along in record.keys or single):
            keys = {k: _text(v) for k, v in record.keys.items() if k != SEED and (single or k != check.along)}
            group = groups.setdefault(tuple(sorted(keys.items())), {})
            group.setdefault("" if single else _value(record, check.along), []).append(record)

    def chosen(name: str, own: Sequence[Record]) -> str:
        cell = name if check.along == "cell" else str(own[0].keys.get("cell", ""))
        return check.number or number_of.get(cell, number)

    right, compared, tested, fails = 0, 0, 0, []
    for free, members in groups.items():
        means: Values = {}
        by_seed: dict[Scalar, Values] = {}
        for name, own in members.items():
            which = chosen(name, own)
            measured = [record for record in own if which in record.numbers]
            if measured:
                mean = mean_and_deviation(measured, which)[0]
                means[name] = inf if mean is None else mean
            for record in measured:
                if record.seed is not None:
                    value = record.numbers[which]
                    by_seed.setdefault(record.seed, {})[name] = inf if value is None else value
        needed = set() if single else set(check.named)
        if not means or not needed <= set(means) or (not single and len(means) < 2):
            continue
        tested += 1
        relevant = needed if needed and not check.compares_all else set(means)
        complete = [values for values in by_seed.values() if relevant <= set(values)]
        for name in relevant if complete else ():  # means over the same seeds
            means[name] = mean_of(values[name] for values in complete)
        compared += len(complete)
        right += sum(check.true_of(values) for values in complete)
        if not (check.true_of(means) and (not check.significant or _significant(check, members))):
            fails.append(", ".join(value for key, value in free if key not in check.where) or "all")
    if not tested:
        return Verdict(check, None)
    if check.negated:
        return Verdict(check, bool(fails), combinations=tested)
    return Verdict(check, not fails, right, compared, tuple(fails), tested)


def _significant(check: Check, members: Mapping[str, Sequence[Record]]) -> bool:
    """Whether the clients of the first value differ from those of each other value, over all seeds that both have."""
    from fedsim.report.statistics import holm, signed_rank

    first = check.named[0]
    clients = {name: {r.seed: r.clients for r in own} for name, own in members.items() if name not in check.aside}
    ps = []
    for name, found in clients.items():
        if name != first and (common := [seed for seed in clients[first] if seed in found]):
            one, two = ([v for seed in common for v in of[seed]] for of in (clients[first], found))
            ps.append(signed_rank(one, two))
    return bool(ps) and max(holm(ps)) < LEVEL


def _value(record: Record, key: str) -> str:
    return _text(record.keys.get(key, ""))


def _text(value: Scalar) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _texts(wanted: Any) -> list[str]:
    return [_text(value) for value in (wanted if isinstance(wanted, list) else [wanted])]
