"""Every sweep that ships can be read, and says what it is."""

import json

import pytest

from fedsim import sweep
from fedsim.cli import main


@pytest.mark.parametrize("name", sorted(sweep.presets()))
def test_it_can_be_read(name: str) -> None:
    found = sweep.read(name)
    assert found.about
    assert found.cells
    assert found.scale.startswith(("full size", "two-core size"))
    assert "measured" in found.takes


def test_the_list_tells_what_each_reproduces_at_which_scale_and_how_long_it_takes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["list", "presets", "--json"]) == 0
    listed = {entry["name"]: entry for entry in json.loads(capsys.readouterr().out)["presets"]}
    assert set(listed) == set(sweep.presets())
    entry = listed["spfl-table1-emnist"]
    assert "SPFL paper, Table 1, EMNIST" in entry["about"]
    assert entry["scale"] == "full size"
    assert entry["runs"] == 18
    assert main(["list", "presets"]) == 0
    assert f"takes: {entry['takes']}" in capsys.readouterr().out


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
