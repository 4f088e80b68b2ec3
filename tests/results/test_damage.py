"""A run folder after a power failure, with flipped bits, cut-off files, or on a full disk: what can go on does, exactly."""

import json
import os
import resource
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsim import cli
from fedsim import config as configs
from fedsim.config import RunConfig
from fedsim.engine.launch import launch
from fedsim.errors import ConfigError, FedsimError, StorageError
from fedsim.files import read_npz
from fedsim.report.runs import RunResult
from fedsim.results import checkpoint as checkpoints
from fedsim.results import record as records
from fedsim.results.record import Record, read_events, read_manifest, read_summary
from fedsim.server.app import build
from tests.events import reproducible_events
from tests.nodes import Nodes

Small = Callable[..., RunConfig]
SETTINGS = (
    "algorithm=fedbuff",
    "clients=5",
    "rounds=8",
    "checkpoint-every=2",
    "stragglers=speed",
    "batch-size=256",
)


@pytest.fixture(scope="module")
def stopped_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunConfig, Path, Path]:
    """A configuration, the folder of its run, and a copy of it as it was right after the checkpoint of round 6."""
    home = tmp_path_factory.mktemp("runs")
    whole, copy, save = home / "whole", home / "copy", checkpoints.save
    config = configs.read(None, [*SETTINGS, "model=mlr", f"out={whole}"])

    def save_and_copy(folder: Path, point: checkpoints.Checkpoint) -> None:
        save(folder, point)
        if point.step == 6:
            shutil.copytree(whole, copy)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoints, "save", save_and_copy)
        launch(config, "inline")
    return config, whole, copy


@pytest.fixture
def run(stopped_run: tuple[RunConfig, Path, Path], tmp_path: Path) -> Path:
    """The folder of a run that was stopped after the checkpoint of round 6; the one before it is of round 4."""
    shutil.copytree(stopped_run[2], tmp_path / "run")
    return tmp_path / "run"


@pytest.fixture
def resume(stopped_run: tuple[RunConfig, Path, Path], run: Path) -> Callable[[], None]:
    """Goes on with the run, and compares its weights with those of the run that was not stopped."""
    config, whole, _ = stopped_run

    def go_on() -> None:
        launch(config.replace(out=str(run), resume=True), "inline")
        assert read_summary(run)["weights_sha256"] == read_summary(whole)["weights_sha256"]

    return go_on


def same_events(run: Path, stopped_run: tuple[RunConfig, Path, Path]) -> bool:
    return reproducible_events(run) == reproducible_events(stopped_run[1])


def flip(path: Path, place: int = -1) -> None:
    """Changes a bit in the middle of a file, or at a place."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2 if place < 0 else place] ^= 4
    path.write_bytes(content)


# What a run relies on is on the disk before


def test_nodes_are_told_of_a_checkpoint_that_a_power_failure_cannot_take_away(
    small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    fsync, replace, push = os.fsync, os.replace, Nodes.push_messages

    def observed_sync(handle: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{handle}"))
        done.append(f"sync {path.name.split('.')[1] if path.name.startswith('.') else path.name}")
        fsync(handle)

    def observed_rename(source: Path, target: Path) -> None:
        done.append(f"rename {Path(target).name}")
        replace(source, target)

    def observed_push(self: Nodes, messages: Any) -> Any:
        listed = list(messages)
        told = {tuple(about["saved"]) for m in listed if (about := m.content.config_records.get("job"))}
        done.extend(f"saved {steps[-1]}" for steps in told if steps)
        return push(self, listed)

    monkeypatch.setattr(os, "fsync", observed_sync)
    monkeypatch.setattr(os, "replace", observed_rename)
    monkeypatch.setattr(Nodes, "push_messages", observed_push)
    config = small("clients=2", "rounds=4", "checkpoint-every=2")
    build(config).start(Nodes(config, tmp_path / "disks"), record=Record(tmp_path / "run", config, "test"))
    server = [
        each
        for each in done
        if "events" in each or "step-000002.npz" in each or "checkpoint" in each or "saved" in each
    ]
    first = server.index("rename step-000002.npz")
    assert server[first - 1] == "sync events.jsonl"
    assert server[first + 1 :][:2] == ["sync checkpoint", "saved 2"]
    assert "saved 2" not in server[:first]


# Damaged files


def test_a_damaged_checkpoint_costs_two_rounds(
    run: Path, resume: Any, stopped_run: Any, caplog: pytest.LogCaptureFixture
) -> None:
    flip(run / "checkpoint" / "step-000006.npz")
    resume()
    assert "step-000006.npz is damaged" in caplog.text
    assert read_manifest(run)["resumed"] == [4]
    assert same_events(run, stopped_run)


def test_two_damaged_checkpoints_are_named_and_nothing_is_touched(run: Path, resume: Any) -> None:
    for path in (run / "checkpoint").glob("*.npz"):
        flip(path)
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    with pytest.raises(FedsimError, match=r"step-000006.npz is damaged.*step-000004.npz is damaged"):
        resume()
    assert {path: content for path, content in before.items() if path.read_bytes() != content} == {}


COPIES = ("events.jsonl", "checkpoint/events.jsonl")


def damage_line(path: Path, start: str) -> None:
    """Changes a bit in the line of this event."""
    lines = path.read_text().splitlines(keepends=True)
    (place,) = [n for n, line in enumerate(lines) if line.startswith(start)]
    flip(path, len("".join(lines[:place])) + len(lines[place]) // 2)


@pytest.mark.parametrize("damage", ["a cut", "a flipped bit", "zeros", "nothing", "missing"])
def test_events_come_back_from_their_copy(
    damage: str, run: Path, resume: Any, stopped_run: Any, caplog: pytest.LogCaptureFixture
) -> None:
    path = run / "events.jsonl"
    content, expected = path.read_bytes(), read_events(run)
    if damage == "a flipped bit":
        damage_line(path, '{"kind": "step", "round": 3')
    elif damage == "missing":
        path.unlink()
    else:
        path.write_bytes({"a cut": content[:-30], "zeros": bytes(len(content)), "nothing": b""}[damage])
    assert read_events(run) == expected
    assert f"its copy in {run / COPIES[1]} is used" in caplog.text
    resume()
    assert f"{path} was damaged before the checkpoint of round 6" in caplog.text
    assert read_manifest(run)["resumed"] == [6]
    assert same_events(run, stopped_run)


@pytest.mark.parametrize("lost", [1, 3])
def test_events_that_end_before_the_checkpoint_cost_two_rounds(
    lost: int, run: Path, resume: Any, stopped_run: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """As after a power failure of a disk that promised too much."""
    for path in (run / name for name in COPIES):
        path.write_text("".join(path.read_text().splitlines(keepends=True)[:-lost]))
    resume()
    assert "the events before its last checkpoint are not complete" in caplog.text
    assert read_manifest(run)["resumed"] == [4]
    assert same_events(run, stopped_run)


@pytest.mark.parametrize(
    "tail", ['{"kind": "evalu', "\0" * 4096, "\0" * 100 + "\n", "\xff\xfe\n", "[]\n", '{"kind": "step"}\n']
)
def test_what_follows_the_checkpoint_does_not_matter(tail: str, run: Path, resume: Any, stopped_run: Any) -> None:
    with (run / "events.jsonl").open("a", encoding="latin-1") as file:
        file.write(tail)
    resume()
    assert read_manifest(run)["resumed"] == [6]
    assert same_events(run, stopped_run)


def test_a_good_checkpoint_goes_on_without_the_events_of_its_beginning(
    run: Path, resume: Any, stopped_run: Any, caplog: pytest.LogCaptureFixture
) -> None:
    for name in COPIES:
        damage_line(run / name, '{"kind": "step", "round": 3')
    resume()
    assert "events.jsonl: its copy is damaged, too. Its curves lack round 3" in caplog.text
    steps = [event["round"] for event in read_events(run) if event["kind"] == "step"]
    assert steps == [1, 2, 4, 5, 6, 7, 8]
    series = RunResult.load(run).series("local")
    assert series.rounds.tolist() == steps
    assert series.times.tolist() == RunResult.load(stopped_run[1]).series("local").times[[0, 1, 3, 4, 5, 6, 7]].tolist()


def test_a_report_names_a_damaged_line(run: Path, caplog: pytest.LogCaptureFixture) -> None:
    number = len(read_events(run))
    for name in COPIES:
        flip(run / name, 20)
    assert len(read_events(run)) == number - 1
    assert "events.jsonl: line 1 is damaged and left out" in caplog.text


@pytest.mark.parametrize("content", ["", "{", "\0\0\0\0", None])
def test_a_good_checkpoint_goes_on_without_its_manifest(
    content: str | None, run: Path, resume: Any, stopped_run: Any, caplog: pytest.LogCaptureFixture
) -> None:
    path, before = run / "manifest.json", read_manifest(run)
    path.unlink()
    if content is not None:
        path.write_text(content)
    with pytest.raises(ConfigError, match="already holds a run"):
        records.new_folder(stopped_run[0].replace(out=str(run)))
    resume()
    assert f"its copy in {run}/checkpoint/manifest.json is used" in caplog.text
    after = read_manifest(run)
    assert (after["run"], after["resumed"], after["status"]) == (before["run"], [6], "finished")
    assert same_events(run, stopped_run)


def test_a_changed_manifest_is_not_believed(run: Path, resume: Any, stopped_run: Any) -> None:
    path = run / "manifest.json"
    path.write_text(path.read_text().replace('"seed": 0', '"seed": 4'))
    resume()
    assert same_events(run, stopped_run)


def test_a_manifest_without_a_copy_is_named(run: Path, resume: Any) -> None:
    (run / "checkpoint" / "manifest.json").unlink()
    (run / "manifest.json").write_text("")
    with pytest.raises(ConfigError, match=r"manifest\.json cannot be read \(.*run/manifest\.json is damaged"):
        resume()


def test_the_last_matrices_are_made_again_and_others_are_lost_alone(
    small: Small, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = small("algorithm=fedamp", "rounds=3", f"out={tmp_path / 'run'}")
    launch(config, "inline")
    wanted = read_summary(tmp_path / "run")["weights_sha256"]
    two, three = (tmp_path / "run" / "matrices" / f"round-00000{number}.npz" for number in (2, 3))
    expected = read_npz(three)
    for name in ("manifest.json", "summary.json"):  # as if it had been killed at the very end
        (tmp_path / "run" / name).unlink()
    flip(two)
    flip(three)
    launch(config.replace(resume=True), "inline")
    assert read_summary(tmp_path / "run")["weights_sha256"] == wanted
    for path in (two, three):
        assert f"{path} is damaged: its checksum is another one" in caplog.text
    assert not two.exists()
    np.testing.assert_equal(read_npz(three), expected)


# A full disk


@pytest.fixture
def limited() -> Iterator[Callable[[int], None]]:
    """Lets this process write no file of more than so many bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("file", ["checkpoint/step-000008.npz", "events.jsonl"])
def test_a_file_that_does_not_fit_is_named_and_the_run_goes_on_later(
    file: str, run: Path, resume: Any, stopped_run: Any, limited: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    size = (run / "events.jsonl").stat().st_size
    if file == "events.jsonl":
        begin = Record.begin

        def begin_and_limit(self: Record, *arguments: Any) -> None:
            begin(self, *arguments)
            limited(size + 100)

        monkeypatch.setattr(Record, "begin", begin_and_limit)
    else:
        save = checkpoints.save

        def limit_and_save(folder: Path, point: Any) -> None:
            limited(1000)
            save(folder, point)

        monkeypatch.setattr(checkpoints, "save", limit_and_save)
    with pytest.raises(StorageError, match=f"cannot write {run / file}: File too large. Make room there, then resume"):
        resume()
    monkeypatch.undo()
    limited(resource.RLIM_INFINITY)
    assert not list(run.rglob("*.unfinished"))
    resume()
    assert same_events(run, stopped_run)


# Other folders, other versions


def test_a_process_killed_after_its_last_checkpoint_leaves_no_third_one(run: Path, resume: Any) -> None:
    (run / "checkpoint" / "step-000002.npz").write_bytes(b"")
    resume()
    assert checkpoints.saved_steps(run) == [6, 8]


def test_leftovers_of_a_killed_process_go(run: Path, resume: Any) -> None:
    names = (
        "checkpoint/.step-000008.npz",
        ".manifest.json",
        ".events.jsonl",
        "matrices/.round-000007.npz",
        ".page.html",
    )
    (run / "matrices").mkdir(exist_ok=True)
    for name in names:
        (run / f"{name}.17.unfinished").write_text("half")
    resume()
    assert [path.name for path in run.rglob("*.unfinished")] == [".page.html.17.unfinished"]  # another program's


def test_jobs_in_flight_at_the_end_are_listed_in_order(run: Path, resume: Any) -> None:
    resume()
    (end,) = [event for event in read_events(run) if event["kind"] == "end"]
    clients = [row["id"] for row in end["in_flight"]]
    assert len(clients) > 1
    assert clients == sorted(clients)


def test_a_run_of_another_version_is_resumed_only_if_told(
    run: Path, resume: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(records, "installed_version", lambda: "0.9.1")
    with pytest.raises(ConfigError, match=r"was begun by fedsim 0\.2\.0, and this is 0\.9\.1.*any-version=true"):
        resume()
    assert cli.main(["resume", str(run)]) == 2
    assert "resume with --any-version" in capsys.readouterr().err
    assert cli.main(["resume", str(run), "--any-version"]) == 0
    assert read_manifest(run)["version"] == "0.9.1"


def test_a_run_of_a_version_with_other_keys_is_refused_for_its_version(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest = read_manifest(run)
    manifest["config"]["former-key"] = 1
    del manifest["version"]
    (run / "manifest.json").write_text(json.dumps(manifest))
    assert cli.main(["resume", str(run)]) == 2
    assert "was begun by fedsim of an older version" in capsys.readouterr().err
