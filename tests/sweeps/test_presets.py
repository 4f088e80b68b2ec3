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
    assert entry["runs"] == 200
    assert main(["list", "presets"]) == 0
    assert f"takes: {entry['takes']}" in capsys.readouterr().out


SAGEFLOW, FEDAMP = ("stragglers", "adversaries", "both"), ("iid", "pathological", "practical")
SMALL_ENOUGH = {"hetero-table5"}  # full size, in minutes
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


def published_of(preset: str, cell: str, **values: object) -> dict[str, tuple[float, float | None]]:
    """The published numbers of the first run of a cell whose configuration has these values."""
    found = read_sweep(preset)
    for name, config in found.cells.items():
        if found.titles[name] == cell and all(getattr(config, key) == value for key, value in values.items()):
            return found.published.numbers_for(cell, config)
    raise AssertionError(f"{preset} has no cell {cell} with {values}")


@pytest.mark.parametrize("preset", ["spfl-table1", "spfl-table1-small"])
def test_table_1_of_spfl_compares_what_the_paper_tested(preset: str) -> None:
    """SPFL's rows were made with a head that is not mixed, and pFedMe's row is its averaged model."""
    assert published_of(preset, "spfl-identity", dataset="cifar10") == {"personal": pytest.approx((0.7191, 0.0356))}
    assert published_of(preset, "spfl-1s-identity", dataset="cifar10") == {"personal": pytest.approx((0.6553, 0.0424))}
    assert published_of(preset, "spfl", dataset="cifar10") == {}
    assert published_of(preset, "pfedme", dataset="mnist") == {"global": pytest.approx((0.988, 0.0016))}
    assert published_of(preset, "fedavg", dataset="mnist") == {"personal": pytest.approx((0.9846, 0.0021))}


def test_table_2_of_spfl_tests_personal_models_every_round_and_has_lenet5_for_cifar10() -> None:
    for preset in ("plga-table2", "plga-table2-small"):
        cells = read_sweep(preset).cells
        assert {c.eval_every for c in cells.values() if c.algorithm == "plga"} == {1}
        expected = "mlp" if preset.endswith("small") else "lenet5"
        assert {c.model for c in cells.values() if c.dataset == "cifar10"} == {expected}
        assert {c.params("stragglers").schedule for c in cells.values()} == {"paper"}
        assert {c.batches for c in cells.values()} == {"in-order"}


def test_table_8_of_spfl_is_only_about_models_after_fine_tuning() -> None:
    for preset in ("spfl-table8", "spfl-table8-small", "spfl-table8-emnist", "spfl-table8-cifar100"):
        assert all(c.eval_every == c.rounds for c in read_sweep(preset).cells.values())


@pytest.mark.parametrize("table", ["spfl-table1", "plga-table2", "spfl-table6", "spfl-table7", "spfl-table8"])
def test_tables_of_spfl_have_ten_seeds_and_three_at_two_core_size(table: str) -> None:
    for data in ("", "-emnist", "-cifar100"):
        assert {c.seed for c in read_sweep(f"{table}{data}").cells.values()} == set(range(10))
        assert {c.seed for c in read_sweep(f"{table}{data}-small").cells.values()} == {0, 1, 2}


def test_every_table_has_a_two_core_size() -> None:
    sizes = {name: read_sweep(name).scale.startswith("two-core") for name in preset_texts()}
    full = {name for name, small in sizes.items() if not small}
    other = {name: f"{name}-small" for name in full} | {f"sageflow-{s}": f"sageflow-{s}-fmnist" for s in SAGEFLOW}
    other |= {f"fedamp-table{n}-{s}": f"fedamp-table{n}-small" for n, s in enumerate(FEDAMP, start=1)}
    assert [name for name in full - SMALL_ENOUGH if not sizes.get(other[name])] == []
