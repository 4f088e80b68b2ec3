"""Checks of claims on made-up records, whose verdicts are plain to see."""

import pytest

from fedsim.book.checks import Check, judge
from fedsim.book.records import Record, mean_and_deviation

NUMBER = "personal best"
ACCURACY = {  # cell -> accuracy on seeds 0, 1, 2
    "spfl": (70.0, 71.0, 72.0),
    "fedavg": (60.0, 71.5, 59.0),
    "local": (65.0, 66.0, 67.0),
}


def records(dataset: str = "mnist", change: float = 0.0) -> list[Record]:
    return [
        Record({"cell": cell, "dataset": dataset, "seed": seed}, {NUMBER: value + change})
        for cell, values in ACCURACY.items()
        for seed, value in enumerate(values)
    ]


def verdict(found: list[Record], **check: object) -> tuple[bool | None, int, int]:
    result = judge(Check(1, "a claim", **check), found, {}, NUMBER)  # type: ignore[arg-type]
    return result.holds, result.right, result.compared


def test_an_order_holds_by_the_means_and_is_counted_by_seed() -> None:
    assert verdict(records(), order="spfl > fedavg") == (True, 2, 3)
    assert verdict(records(), order="fedavg > spfl") == (False, 1, 3)
    assert verdict(records(), order="spfl > local > fedavg") == (True, 2, 3)
    assert verdict(records(), order="fedavg < spfl") == (True, 2, 3)


def test_differences_ratios_and_tolerances() -> None:
    assert verdict(records(), order="spfl > local", by=4.9)[0] is True
    assert verdict(records(), order="spfl > local", by=5)[0] is False
    assert verdict(records(), order="spfl > local", times=1.07)[0] is True
    assert verdict(records(), order="spfl > local", times=1.08)[0] is False
    assert verdict(records(), order="local ~ spfl", within=5) == (True, 3, 3)
    assert verdict(records(), order="local ~ spfl", within=4.9) == (False, 0, 3)
    assert verdict(records(), order="local >= spfl", within=5)[0] is True
    assert verdict(records(), order="local >= spfl", within=4)[0] is False


def test_best_rest_and_median() -> None:
    assert verdict(records(), order="spfl > rest")[0] is True
    assert verdict(records(), order="fedavg < rest")[0] is True
    assert verdict(records(), order="local > rest")[0] is False
    assert verdict(records(), order="local > rest", aside=("spfl",))[0] is True
    assert verdict(records(), order="spfl >= best")[0] is True
    assert verdict(records(), order="local >= median")[0] is True


def test_every_other_key_makes_a_comparison_of_its_own() -> None:
    both = [*records(), *records("cifar10")]
    worse = [r for r in both if (r.keys["dataset"], r.keys["cell"]) != ("cifar10", "spfl")]
    worse += [Record({"cell": "spfl", "dataset": "cifar10", "seed": seed}, {NUMBER: 10.0}) for seed in range(3)]
    assert verdict(both, order="spfl > fedavg") == (True, 4, 6)
    found = judge(Check(1, "", order="spfl > fedavg"), worse, {}, NUMBER)
    assert (found.holds, found.right, found.compared, found.fails) == (False, 2, 6, ("cifar10",))
    assert verdict(worse, order="spfl > fedavg", where={"dataset": ["mnist"]})[0] is True
    assert verdict(worse, order="spfl > fedavg", negated=True)[0] is True
    assert verdict(both, order="spfl > fedavg", negated=True)[0] is False


def test_the_order_may_be_along_any_key() -> None:
    both = [*records(), *records("cifar10", -20)]
    assert verdict(both, order="mnist > cifar10", along="dataset") == (True, 9, 9)
    assert verdict(both, order="cifar10 > mnist", along="dataset", where={"cell": "spfl"}) == (False, 0, 3)


def test_limits_are_of_the_number_itself() -> None:
    assert verdict(records(), least=65, where={"cell": "local"}) == (True, 3, 3)
    assert verdict(records(), least=66, where={"cell": "local"}) == (True, 2, 3)
    assert verdict(records(), most=65, where={"cell": "local"}) == (False, 1, 3)


def test_a_number_that_was_not_reached_counts_as_infinite() -> None:
    rounds = {"FedSGD": (None, 300.0), "FedAvg": (30.0, 40.0)}
    found = [
        Record({"cell": cell, "seed": seed}, {NUMBER: value})
        for cell, values in rounds.items()
        for seed, value in enumerate(values)
    ]
    assert verdict(found, order="FedSGD > FedAvg", times=3) == (True, 2, 2)
    assert verdict(found, order="FedAvg < rest") == (True, 2, 2)
    assert mean_and_deviation(found[:2], NUMBER) == (None, None, 2)


def test_what_has_no_records_was_not_tested() -> None:
    assert verdict([], order="spfl > fedavg") == (None, 0, 0)
    assert verdict(records(), order="spfl > plga") == (None, 0, 0)
    assert verdict(records(), order="spfl > fedavg", where={"dataset": "cifar10"}) == (None, 0, 0)


def test_only_seeds_that_all_compared_values_have_are_compared() -> None:
    """Without seed 1, on which FedAvg is above, but with a fourth seed of SPFL alone, which does not count."""
    some = [r for r in records() if (r.keys["cell"], r.keys["seed"]) != ("fedavg", 1)]
    some.append(Record({"cell": "spfl", "dataset": "mnist", "seed": 3}, {NUMBER: 0.0}))
    assert verdict(some, order="spfl > fedavg", by=11) == (True, 1, 2)  # 10 and 13 points, on average 11.5


def test_means_over_seeds_are_judged_without_seeds() -> None:
    means = [Record({"cell": c}, {NUMBER: v}, {NUMBER: 1.0}, means=3) for c, v in (("spfl", 70.0), ("fedavg", 60.0))]
    assert verdict(means, order="spfl > fedavg") == (True, 0, 0)
    assert mean_and_deviation(means[:1], NUMBER) == (70.0, 1.0, 3)


@pytest.mark.parametrize(("gain", "significant"), [(2.0, True), (0.0, False)])
def test_significance_is_wilcoxon_over_clients(gain: float, significant: bool) -> None:
    """Ten clients that all gain 1.5 to 2.4 points differ from others (p = 2 / 1024); gains of both signs do not."""
    base = [60.0 + client for client in range(10)]
    changes = [gain + (0.1 * client - 0.5 if gain else (-1) ** client * (1 + client // 2)) for client in range(10)]
    found = [
        Record(
            {"cell": "fedamp", "seed": 0}, {NUMBER: 66.0}, clients=[b + c for b, c in zip(base, changes, strict=True)]
        ),
        Record({"cell": "fedavg", "seed": 0}, {NUMBER: 64.0}, clients=base),
    ]
    assert verdict(found, order="fedamp > rest", significant=True)[0] is significant
