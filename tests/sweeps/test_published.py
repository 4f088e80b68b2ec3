"""Published numbers: found by the configuration of a run, and shown in every format of the report."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from fedsim.config import RunConfig
from fedsim.engine.launch import launch
from fedsim.errors import ConfigError
from fedsim.report.collection import RunCollection, collect_runs
from fedsim.report.export import FORMATS
from fedsim.report.page import content
from fedsim.report.result_tables import cost_table, result_table
from fedsim.report.runs import RunResult
from fedsim.report.settings import group_by_setting
from fedsim.results.record import asked, read_summary
from fedsim.sweeps.manifest import PlannedRun, SweepManifest, read_sweep_manifest
from fedsim.sweeps.sweep_file import Sweep, read_sweep
from tests.report.test_metrics import write_run
from tests.report.test_settings import run

TABLE = """
[grid]
dataset = ["digits", "mnist"]
[cell.one]
[cell.two]
algorithm = "local"
[published]
source = "a paper"
keys = ["dataset", "measure"]
columns = [["digits", "personal"], ["mnist", "personal"], ["mnist", "global"]]
[published.rows]
one = ["91.5 0.25", "", "80"]
"""


def read(tmp_path: Path, text: str) -> Sweep:
    path = tmp_path / "s.toml"
    path.write_text(text)
    return read_sweep(str(path))


def test_a_number_belongs_to_the_runs_that_are_what_its_column_says(tmp_path: Path) -> None:
    found = read(tmp_path, TABLE)
    numbers = {name: found.published.numbers_for(found.titles[name], config) for name, config in found.cells.items()}
    assert numbers == {
        "one-dataset=digits": {"personal": (0.915, 0.0025)},
        "one-dataset=mnist": {"global": (0.8, None)},
        "two-dataset=digits": {},
        "two-dataset=mnist": {},
    }


def test_without_cells_rows_are_algorithms(tmp_path: Path) -> None:
    found = read(tmp_path, '[grid]\nalgorithm = ["fedavg", "local"]\n[published.rows]\nlocal = [70]\n')
    assert found.published.numbers_for("", found.cells["local"]) == {"personal": (0.7, None)}
    assert found.published.numbers_for("", found.cells["fedavg"]) == {}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("three = [1, 2, 3]", "unknown row of .published. in .* 'three'.*one, two"),
        ("two = [1, 2]", "2 numbers for 3 columns"),
        ('two = ["", "", "a lot"]', "'a lot' is not an accuracy in percent"),
        ('two = ["", "", 101]', "not an accuracy"),
        ('two = ["", "", -1]', "not an accuracy"),
        ("two = 7", r"needs keys = .* rows.NAME = "),
    ],
)
def test_nonsense_is_refused(tmp_path: Path, wrong: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read(tmp_path, f"{TABLE}{wrong}\n")


@pytest.mark.parametrize("wrong", ["columns = [7]", "columns = 7", "keys = 7", "keys = [7]", "rows = 7"])
def test_what_is_no_table_is_refused(tmp_path: Path, wrong: str) -> None:
    with pytest.raises(ConfigError, match=r"\[published\] needs keys"):
        read(tmp_path, f'[grid]\nalgorithm = ["fedavg"]\n[published]\n{wrong}\n')


def test_columns_and_measures_are_checked(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="a value for each of"):
        read(tmp_path, TABLE.replace('["mnist", "global"]', '["mnist"]'))
    with pytest.raises(ConfigError, match=r"unknown measure.*personal"):
        read(tmp_path, TABLE.replace('["mnist", "global"]', '["mnist", "server"]'))


@pytest.mark.parametrize(
    ("preset", "overrides", "cell", "kind", "number"),
    [
        (
            "spfl-table1",
            [],
            "spfl-identity-dataset=cifar10-partition.shared=False-seed=0",
            "personal",
            (0.6722, 0.0115),
        ),
        (
            "spfl-table1-cifar100",
            [],
            "pfedme-dataset=cifar100-partition.shared=True-seed=0",
            "global",
            (0.3393, 0.0076),
        ),
        ("plga-table2", [], "lga-dataset=mnist-seed=0", "local", (0.9748, 0.0028)),
        ("plga-table2-emnist", [], "plga-dataset=emnist-balanced-seed=0", "global", (0.7391, 0.0272)),
        ("spfl-table6", [], "federated-dataset=mnist-partition.shared=True-seed=0", "personal", (0.98307, None)),
        ("spfl-table7", [], "clients-6-dataset=cifar10-partition.shared=False-seed=0", "personal", (0.6688, None)),
        ("spfl-table8", [], "lr-1e-4-dataset=mnist-partition.shared=False-seed=0", "personal", (0.9845, None)),
        ("fedamp-table1-iid", ["dataset=cifar100"], "apfl-seed=1", "personal", (0.4902, None)),
        (
            "fedamp-table2-pathological",
            ["dataset=emnist-byclass", "clients=62"],
            "fedavg-seed=0",
            "personal",
            (0.1944, None),
        ),
        ("fedamp-table3-practical", [], "scaffold-seed=2", "local", (0.4020, None)),
        ("fedamp-practical-fmnist", [], "heurfedamp-seed=0", "personal", (0.9137, None)),
        ("fedavg-table1-2nn", [], "C=0.1-partition=shards-batch-size=10", "rounds", (664, None)),
        ("fedavg-table1-cnn", [], "C=0.5-partition=iid-batch-size=0", "rounds", (164, None)),
        ("fedavg-table2-cnn", [], "E5-Binf-partition=shards", "rounds", (1000, None)),
        ("fedavg-speedup-2nn", [], "FedSGD-partition=iid-seed=1", "rounds", (1474, None)),
        ("hetero-table2-small", [], "SC-NIID(2)-seed=0", "personal", (0.7553, 0.0383)),
        ("hetero-table4-cifar100", [], "scaffold+-partition=sc-dir-seed=1", "personal", (0.1143, 0.0390)),
        ("hetero-table5", [], "ship, truck-seed=0", "personal", (0.8602, None)),
        ("hetero-table6", [], "cfl-seed=2", "personal", (0.6118, 0.0263)),
    ],
)
def test_presets_hold_the_numbers_of_their_tables(
    preset: str, overrides: list[str], cell: str, kind: str, number: tuple[float, float | None]
) -> None:
    found = read_sweep(preset, overrides)
    assert found.published.numbers_for(found.titles[cell], found.cells[cell])[kind] == pytest.approx(number)


def test_every_report_shows_them(tmp_path: Path) -> None:
    mine = run([0.5], tmp_path / "mine", seed=1)
    other = run([0.6], tmp_path / "other", algorithm="local")
    planned = PlannedRun(mine.config, "ours", {"personal": (0.915, 0.0025), "global": (0.8, None)}, "a paper")
    SweepManifest("study", "", {"mine": planned, "other": PlannedRun(other.config)}).write(tmp_path)
    groups = group_by_setting([mine, other])
    assert [each.label for each in groups] == ["ours", "local"]
    tables = [result_table(groups), cost_table(groups)]
    texts = {name: render(tables) for name, render in FORMATS.items()}
    assert json.loads(texts["json"])[0]["published"] == 0.915
    assert json.loads(texts["json"])[1]["published"] is None
    assert "0.915,0.0025" in texts["csv"]
    assert "| 91.50 ± 0.25 |" in texts["markdown"]
    assert "a paper" in texts["markdown"]
    assert r"91.50 $\pm$ 0.25" in texts["latex"]
    page = content(RunCollection([mine, other]))
    assert page["source"] == "a paper"
    assert "91.50 ± 0.25" in page["results"]["texts"][0]
    assert page["results"]["columns"].count("global published") == 1


def test_rounds_to_the_target_and_speed_ups_stand_beside_published_ones(tmp_path: Path) -> None:
    curves = {"slow": [0.2, 0.4, 0.6, 0.8], "fast": [0.6, 0.8, 0.9, 0.95], "never": [0.1, 0.2, 0.3, 0.4]}
    published = {"slow": {"rounds": (30.0, None)}, "fast": {"rounds": (4.0, None)}}
    planned = {}
    for name, curve in curves.items():
        write_global_run(tmp_path / name, curve, lr=0.1 * (1 + len(planned)), target=0.7)
        config = RunResult.load(tmp_path / name).config
        planned[name] = PlannedRun(config, name, published.get(name, {}), "a paper", "slow")
    SweepManifest("study", "", planned).write(tmp_path)
    table = result_table(group_by_setting([RunResult.load(tmp_path / name) for name in curves]))
    shown = {column.name: [column.text(row) for row in range(3)] for column in table.columns}
    assert shown["rounds to 70 % (global)"] == ["3.5", "1.5", "-"]
    assert shown["rounds published"] == ["30", "4", "-"]
    assert shown["speed-up"] == ["1.0", "2.3", "-"]
    assert shown["speed-up published"] == ["1.0", "7.5", "-"]
    assert shown["seconds to 70 % (global)"] == ["3.5", "1.5", "-"]
    personal = {column.name for column in result_table(table.settings, target=0.7).columns}
    assert "rounds to 70 %" in personal, "--target is of personal models"
    wrong = TABLE.replace('"mnist", "global"', '"mnist", "rounds"').replace('"80"', '"many"')
    with pytest.raises(ConfigError, match="'many' is not a number of rounds and its deviation, such as '1474'"):
        read(tmp_path, wrong)


def write_global_run(folder: Path, curve: list[float], **config: object) -> None:
    """A run whose global model has these accuracies after round 1, 2, ..."""
    objective = {"name": "classification", "metrics": {"accuracy": "max"}}
    write_run(folder, objective, [[{"accuracy": value}] for value in curve], **config)
    events = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    for row in (row for event in events if event["kind"] == "evaluation" for row in event["clients"]):
        row["metrics"] |= {"global": row["metrics"]["personal"]}
    (folder / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))


def test_a_plan_of_another_configuration_says_nothing(tmp_path: Path) -> None:
    mine = run([0.5], tmp_path / "mine")
    SweepManifest("study", "", {"mine": PlannedRun({**mine.config, "lr": 9}, "ours", {"personal": (0.9, None)})}).write(
        tmp_path
    )
    assert mine.planned == PlannedRun(mine.config)


def test_a_foreign_file_of_that_name_is_no_plan(tmp_path: Path) -> None:
    (tmp_path / "sweep.json").write_text('{"runs": 3}')
    assert read_sweep_manifest(tmp_path) == SweepManifest()
    assert read_sweep_manifest(tmp_path / "nowhere") == SweepManifest()


def test_a_report_can_be_about_some_of_the_clients(small: Callable[..., RunConfig], tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "a"
    config = small(f"out={folder}")
    launch(config, "inline")
    SweepManifest("s", "", {"a": PlannedRun(asked(config), clients=(2,))}, []).write(folder.parent)
    [run] = collect_runs([folder.parent]).runs
    whole = read_summary(folder)["accuracy"]["personal"]["per_client"]
    assert run.clients == [2]
    assert run.series("personal").mean[-1] == pytest.approx(whole[2])
    assert {job.client for job in run.jobs} == {2}


def test_clients_of_a_report_exist(tmp_path: Path) -> None:
    runs = "[base]\nclients = 3\n[grid]\nseed = [0]\n"
    assert read(tmp_path, runs + "[report]\nclients = [0, 2]\n").reported == (0, 2)
    assert read(tmp_path, runs).reported == ()
    with pytest.raises(ConfigError, match=r"clients=\[3\] must list clients from 0 to 2"):
        read(tmp_path, runs + "[report]\nclients = [3]\n")
    with pytest.raises(ConfigError, match=r"unknown part of .report. in .* 'client'"):
        read(tmp_path, runs + "[report]\nclient = [0]\n")
