"""Every sweep that ships can be read, and says what it is."""

import pytest

from fedsim import sweep


@pytest.mark.parametrize("name", sorted(sweep.presets()))
def test_it_can_be_read(name: str) -> None:
    found = sweep.read(name)
    assert found.about
    assert found.cells


@pytest.mark.parametrize("table", ["fedamp-table1-iid", "fedamp-table2-pathological", "fedamp-table3-practical"])
@pytest.mark.parametrize("data", [["dataset=mnist"], ["dataset=emnist-byclass", "clients=62"], ["dataset=cifar100"]])
def test_the_tables_of_fedamp_serve_its_four_datasets(table: str, data: list[str]) -> None:
    cells = sweep.read(table, data).cells
    assert set(cells) >= {
        "local",
        "fedavg",
        "fedavg-ft",
        "fedprox",
        "fedprox-ft",
        "scaffold",
        "apfl",
        "fedamp",
        "heurfedamp",
    }
    assert {f"dataset={config.dataset}" for config in cells.values()} == {data[0]}
