"""Every preset can be read and is described."""

import json

import pytest

from fedsim.cli import main
from fedsim.sweeps.sweep_file import preset_texts, read_sweep


@pytest.mark.parametrize("name", sorted(preset_texts()))
def test_it_can_be_read(name: str) -> None:
    found = read_sweep(name)
    assert found.about
    assert found.cells
    assert found.scale.startswith(("full size", "two-core size"))
    assert "measured" in found.takes


def test_the_list_tells_what_each_reproduces_at_which_scale_and_how_long_it_takes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["list", "presets", "--json"]) == 0
    listed = {entry["name"]: entry for entry in json.loads(capsys.readouterr().out)["presets"]}
    assert set(listed) == set(preset_texts())
    entry = listed["spfl-table1-emnist"]
    assert "SPFL paper, Table 1, EMNIST" in entry["about"]
    assert entry["scale"] == "full size"
    assert entry["runs"] == 18
    assert main(["list", "presets"]) == 0
    assert f"takes: {entry['takes']}" in capsys.readouterr().out


METHODS = {"local", "fedavg", "fedavg-ft", "fedprox", "fedprox-ft", "scaffold", "apfl", "fedamp", "heurfedamp"}


@pytest.mark.parametrize("split", ["iid", "pathological", "practical"])
@pytest.mark.parametrize("data", [["dataset=mnist"], ["dataset=emnist-byclass", "clients=62"], ["dataset=cifar100"]])
def test_the_tables_of_fedamp_serve_its_four_datasets(split: str, data: list[str]) -> None:
    tables = {"iid": "fedamp-table1-iid", "pathological": "fedamp-table2-pathological"}
    for preset in (tables.get(split, "fedamp-table3-practical"), f"fedamp-{split}-fmnist"):
        cells = read_sweep(preset, data).cells.values()
        assert {(c.algorithm, c.seed) for c in cells} == {(name, seed) for name in METHODS for seed in (0, 1, 2)}
        assert {(f"dataset={c.dataset}", c.partition) for c in cells} == {(data[0], split)}


def test_table_4_of_rethinking_heterogeneity_has_eight_methods_four_splits_and_three_seeds() -> None:
    for preset in ("hetero-table4", "hetero-table4-small"):
        found = read_sweep(preset)
        assert len(set(found.titles.values())) == 8
        cells = {(found.titles[name], c.partition, c.seed) for name, c in found.cells.items()}
        assert len(cells) == len(found.cells) == 8 * 4 * 3
        assert {c.clients for c in found.cells.values()} == {100}
        assert all(found.published.numbers_for(found.titles[name], c) for name, c in found.cells.items())
        # clients that train alone take part as often as the others do on average
        assert len({round(c.rounds * c.participation) for c in found.cells.values()}) == 1
