"""Every sweep that ships can be read, and says what it is."""

import pytest

from fedsim import sweep


@pytest.mark.parametrize("name", sorted(sweep.presets()))
def test_it_can_be_read(name: str) -> None:
    found = sweep.read(name)
    assert found.about
    assert found.cells


METHODS = {"local", "fedavg", "fedavg-ft", "fedprox", "fedprox-ft", "scaffold", "apfl", "fedamp", "heurfedamp"}


@pytest.mark.parametrize("split", ["iid", "pathological", "practical"])
@pytest.mark.parametrize("data", [["dataset=mnist"], ["dataset=emnist-byclass", "clients=62"], ["dataset=cifar100"]])
def test_the_tables_of_fedamp_serve_its_four_datasets(split: str, data: list[str]) -> None:
    tables = {"iid": "fedamp-table1-iid", "pathological": "fedamp-table2-pathological"}
    for preset in (tables.get(split, "fedamp-table3-practical"), f"fedamp-{split}-fmnist"):
        cells = sweep.read(preset, data).cells.values()
        assert {(c.algorithm, c.seed) for c in cells} == {(name, seed) for name in METHODS for seed in (0, 1, 2)}
        assert {(f"dataset={c.dataset}", c.partition) for c in cells} == {(data[0], split)}
