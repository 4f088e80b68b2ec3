"""Heat maps of settings: in the terminal, as a picture and on the page."""

from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread

from fedsim.cli import main
from fedsim.errors import ConfigError
from fedsim.report.collection import RunCollection, collect_runs
from fedsim.report.heat_map import heat_map, heat_map_figure
from fedsim.report.page import content
from fedsim.report.runs import RunResult
from fedsim.report.settings import group_by_setting
from fedsim.sweeps.manifest import PlannedRun, SweepManifest
from tests.report.test_metrics import write_run
from tests.report.test_settings import run

KEYS = ("attack", "aggregator")
OBJECTIVE = {"name": "classification", "metrics": {"accuracy": "max", "attack-success": "min"}}


def runs() -> list[RunResult]:
    """Two seeds of none/mean, one of none/median and of scale/mean; scale/median is missing."""
    known = [("none", "mean", 0, 0.8), ("none", "mean", 1, 0.9), ("none", "median", 0, 0.7), ("scale", "mean", 0, 0.1)]
    return [run([value], attack=a, aggregator=b, seed=seed) for a, b, seed, value in known]


def test_every_field_is_the_mean_over_seeds() -> None:
    found = heat_map(group_by_setting(runs()), KEYS)
    (panel,) = found.panels
    assert (panel.rows, found.columns) == (["none", "scale"], ["mean", "median"])
    assert [[cell.mean for cell in row] for row in panel.cells] == [[pytest.approx(0.85), 0.7], [0.1, None]]
    assert [[panel.text(r, c) for c in (0, 1)] for r in (0, 1)] == [["85.0", "70.0"], ["10.0", ""]]


def test_the_page_has_texts_and_colors() -> None:
    shown = content(RunCollection(runs(), heatmap=KEYS))["heatmap"]
    (panel,) = shown["panels"]
    assert (panel["rows"], shown["columns"], shown["keys"]) == (["none", "scale"], ["mean", "median"], list(KEYS))
    assert panel["title"] == "final accuracy in percent"
    assert panel["shares"] == [[1.0, 0.8], [0.0, None]], "from the worst, 0.1, to the best, 0.85"
    assert panel["details"][0][0] == "85.00 ± 7.07"
    assert content(RunCollection(runs()))["heatmap"] is None


def test_settings_that_are_alike_are_all_bright() -> None:
    settings = group_by_setting([run([0.80], attack="a", aggregator="b"), run([0.81], attack="c", aggregator="b")])
    assert heat_map(settings, KEYS).panels[0].brightness() == pytest.approx(np.array([[0.9], [1.0]]))


def test_keys_that_make_no_heat_map_are_refused() -> None:
    settings = group_by_setting(runs())
    with pytest.raises(ConfigError, match=r"unknown key of a heat map 'atack'.*aggregator, algorithm, attack"):
        heat_map(settings, ("atack", "aggregator"))
    with pytest.raises(ConfigError, match=r"'fedavg, .*' and 'fedavg, .*' have the same attack and lr"):
        heat_map(settings, ("attack", "lr"))


def test_bright_fields_of_the_picture_are_good(tmp_path: Path) -> None:
    heat_map_figure(heat_map(group_by_setting(runs()), KEYS), tmp_path / "map.png")
    pixels = imread(tmp_path / "map.png")[..., :3].reshape(-1, 3)
    colors, counts = np.unique((pixels * 255).round().astype(int), axis=0, return_counts=True)
    most = {tuple(color) for color in colors[np.argsort(counts)[-5:]].tolist()}
    assert (204, 204, 204) in most, "gray where nothing was measured"
    assert (68, 1, 84) in most, "dark is the worst (viridis)"
    assert (253, 231, 36) in most, "bright is the best"


def test_the_command_draws_what_the_sweep_asks_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home, rows = tmp_path / "home", {"mean": (0.5, 0.9), "median": (0.8, 0.2)}
    for name, (accuracy, success) in rows.items():
        values = {"accuracy": accuracy, "attack-success": success}
        write_run(home / name, OBJECTIVE, [[values]], attack="backdoor", aggregator=name)
    planned = {name: PlannedRun(RunResult.load(home / name).config) for name in rows}
    SweepManifest("sweep", "", planned, heatmap=KEYS).write(home)
    assert collect_runs([home]).heatmap == KEYS
    assert main(["report", str(home), "--plot", str(tmp_path / "plots"), "--html", str(tmp_path / "page.html")]) == 0
    text = capsys.readouterr().out
    assert "attack / aggregator" in text
    assert "attack success in percent" in text
    assert (tmp_path / "plots" / "heat-map.png").exists()
    assert (
        '"title":"attack success in percent","rows":["backdoor"],"texts":[["90.0","20.0"]]'
        in (tmp_path / "page.html").read_text()
    )
    assert main(["report", str(home), "--heatmap", "aggregator", "attack"]) == 0
    assert "aggregator / attack" in capsys.readouterr().out
