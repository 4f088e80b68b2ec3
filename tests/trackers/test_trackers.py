"""`log=...`: one run that is interrupted and resumed, with every tracker at once, and what each of them then holds; what
happens to a run whose tracker fails."""

import csv
import logging
import os
import socket
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import pytest

import fedsim
from fedsim import registry
from fedsim.config import RunConfig
from fedsim.engine.launch import launch
from fedsim.errors import ConfigError
from fedsim.report.runs import RunResult
from fedsim.results.record import asked, read_summary
from fedsim.sweeps.manifest import PlannedRun, SweepManifest
from fedsim.trackers import run_log
from fedsim.trackers.base import TrackedRun, Tracker
from fedsim.trackers.wandb import WeightsAndBiases

ROUNDS, CLIENTS = 4, 3
PATIENCE = 120.0  # seconds that the tracking server may take to start


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        number: int = probe.getsockname()[1]
    return number


@pytest.fixture(scope="module")
def tracking_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a real MLflow tracking server."""
    home, port = tmp_path_factory.mktemp("mlflow"), free_port()
    store = ["--backend-store-uri", f"sqlite:///{home}/runs.db", "--artifacts-destination", str(home / "artifacts")]
    command = [sys.executable, "-m", "mlflow", "server", *store, "--port", str(port), "--workers", "1"]
    quiet = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_DISABLE_TELEMETRY": "true", "PYTHONWARNINGS": ""}
    with (home / "log").open("w") as output:
        server = subprocess.Popen(command, stdout=output, stderr=output, env={**os.environ, **quiet}, cwd=home)
    try:
        end = time.monotonic() + PATIENCE
        while True:
            try:
                urlopen(f"http://127.0.0.1:{port}/health", timeout=5).close()
                break
            except (URLError, ConnectionError, TimeoutError):
                assert server.poll() is None, (home / "log").read_text()
                assert time.monotonic() < end, (home / "log").read_text()
                time.sleep(0.2)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(30)


@pytest.fixture(scope="module")
def home(tracking_server: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of a sweep with one run, which was interrupted in its third round and resumed from the checkpoint of the
    second."""
    folder = tmp_path_factory.mktemp("study")
    run = folder / "run"
    patch = pytest.MonkeyPatch()
    patch.setenv("WANDB_MODE", "offline")
    for name in ("DATA", "CACHE", "CONFIG"):
        patch.setenv(f"WANDB_{name}_DIR", str(folder / "wandb"))
    patch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")

    def interrupt(step: fedsim.Step) -> None:
        if step.number == 3:
            raise KeyboardInterrupt

    keys: dict[str, Any] = {"rounds": ROUNDS, "clients": CLIENTS, "model": "mlr", "checkpoint_every": 2}
    more = {"log.uri": tracking_server, "log.project": "tests", "log.group": "study"}
    trackers = ["csv", "mlflow", "tensorboard", "wandb"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # those of the libraries
        with pytest.raises(KeyboardInterrupt):
            fedsim.run("fedavg", engine="inline", log=trackers, set=more, out=run, on_step=interrupt, **keys)
        fedsim.resume(run)
    yield run
    patch.undo()


def expected(run: Path, kind: str, metric: str = "accuracy") -> dict[int, float]:
    series = RunResult.load(run).series(kind, metric)
    return dict(zip(series.rounds.tolist(), series.mean.tolist(), strict=True))


def close(found: Mapping[int, float], run: Path, kind: str, metric: str = "accuracy") -> bool:
    return dict(found) == {number: pytest.approx(value) for number, value in expected(run, kind, metric).items()}


def test_csv_files_have_a_row_per_round_and_client(home: Path) -> None:
    with (home / "csv" / "rounds.csv").open(newline="") as file:
        rounds = list(csv.DictReader(file))
    assert [int(row["round"]) for row in rounds] == list(range(ROUNDS + 1))
    assert close({int(row["round"]): float(row["accuracy/personal"]) for row in rounds}, home, "personal")
    assert close({int(r["round"]): float(r["loss/local"]) for r in rounds if r["loss/local"]}, home, "local", "loss")
    summary = read_summary(home)
    assert float(rounds[-1]["bytes/up"]) == summary["bytes_up"]
    with (home / "csv" / "clients.csv").open(newline="") as file:
        clients = list(csv.DictReader(file))
    every = [(number, client) for number in range(ROUNDS + 1) for client in range(CLIENTS)]
    assert [(int(row["round"]), int(row["client"])) for row in clients] == every
    last = [float(row["accuracy/personal"]) for row in clients[-CLIENTS:]]
    assert last == pytest.approx(summary["accuracy"]["personal"]["per_client"])


def test_mlflow_has_one_run_with_every_round_once(home: Path, tracking_server: str) -> None:
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_server)
    experiment = client.get_experiment_by_name("tests/study")
    (found,) = client.search_runs([experiment.experiment_id])
    assert (found.info.run_name, found.info.status) == ("run", "FINISHED")
    assert (found.data.params["algorithm"], found.data.params["rounds"]) == ("fedavg", str(ROUNDS))
    history = client.get_metric_history(found.info.run_id, "accuracy/personal")
    assert close({point.step: point.value for point in history}, home, "personal")
    steps = [point.step for point in client.get_metric_history(found.info.run_id, "seconds")]
    assert sorted(set(steps)) == list(range(1, ROUNDS + 1))
    files = {file.path for file in client.list_artifacts(found.info.run_id)}
    assert {"summary.json", "model.npz", "curves.png", "clients"} <= files
    tables = {file.path for file in client.list_artifacts(found.info.run_id, "clients")}
    assert f"clients/round-{ROUNDS:06d}.json" in tables


def test_tensorboard_reads_every_round_once(home: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # tensorboard's own
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        found = EventAccumulator(str(home / "tensorboard"))
        found.Reload()
    steps = [event.step for event in found.Scalars("seconds")]
    assert steps == list(range(1, ROUNDS + 1))
    assert close({event.step: event.value for event in found.Scalars("accuracy/global")}, home, "global")
    assert {"worst client/personal", "virtual seconds", "bytes/up"} <= set(found.Tags()["scalars"])
    assert found.Histograms("clients/accuracy/personal")[-1].histogram_value.num == CLIENTS
    assert found.Images("curves")[0].encoded_image_string.startswith(b"\x89PNG")
    assert found.Tags()["tensors"] == ["configuration"]


def log_records(content: bytes) -> Iterator[bytes]:
    """The records of an offline run: after 7 bytes a log of LevelDB, in blocks of 32 kB."""
    place, record = 7, b""
    while place < len(content):
        if (left := 32768 - place % 32768) < 7:
            place += left
            continue
        length, kind = int.from_bytes(content[place + 4 : place + 6], "little"), content[place + 6]
        record += content[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # whole, or its last part
            yield record
            record = b""


def test_wandb_has_both_parts_under_one_id(home: Path) -> None:
    from wandb.proto.wandb_internal_pb2 import Record

    seen: dict[int, float] = {}
    names, groups, codes, artifacts = set(), set(), [], set()
    for path in sorted(home.glob("wandb/offline-run-*/*.wandb")):
        names.add(path.stem)
        for data in log_records(path.read_bytes()):
            record = Record.FromString(data)
            groups |= {record.run.run_group} if record.HasField("run") else set()
            codes += [record.exit.exit_code] if record.HasField("exit") else []
            artifacts |= {entry.path for entry in record.request.log_artifact.artifact.manifest.contents}
            artifacts |= {entry.path for entry in record.artifact.manifest.contents}
            found = {".".join(item.nested_key) or item.key: item.value_json for item in record.history.item}
            if "accuracy/personal" in found:
                seen[int(found["round"])] = float(found["accuracy/personal"])
    (name,) = names
    assert name.removeprefix("run-") == RunResult.load(home).manifest["run"]
    assert close(seen, home, "personal")
    assert groups == {"study"}
    assert codes == [130, 0]
    assert {"summary.json", "model.npz"} <= artifacts


# What may go wrong


class Kept(Tracker):
    """Keeps what it gets"""

    begun: list[TrackedRun]
    got: list[tuple[int, Mapping[str, float]]]
    problems = 0  # calls that fail

    def begin(self, run: TrackedRun) -> int:
        type(self).begun = [run]
        type(self).got = []
        return 0

    def scalars(self, number: int, values: Mapping[str, float]) -> None:
        if type(self).problems:
            type(self).problems -= 1
            raise ConnectionError("nobody answers")
        self.got.append((number, values))


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Kept]]:
    """A third party's tracker, `log=kept`."""
    monkeypatch.setitem(registry.providers("tracker"), "kept", f"{__name__}:Kept")
    monkeypatch.setitem(registry._objects, ("tracker", "kept"), Kept)
    registry.find.cache_clear()
    yield Kept
    registry.find.cache_clear()


def test_a_run_of_a_sweep_knows_its_group(kept: type[Kept], small: Callable[..., RunConfig], tmp_path: Path) -> None:
    config = small("log=kept", f"out={tmp_path / 'study' / 'a'}")
    SweepManifest("Study", runs={"a": PlannedRun(asked(config))}).write(tmp_path / "study")
    launch(config, "inline")
    (run,) = kept.begun
    assert (run.name, run.group, run.done, run.rounds) == ("a", "Study", None, 2)
    assert [number for number, _ in kept.got] == [0, 1, 1, 2, 2, 2]
    assert {name for _, values in kept.got for name in values} <= set(run.scalars)


def test_what_fails_is_tried_again(
    kept: type[Kept],
    small: Callable[..., RunConfig],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(run_log, "RETRY_SECONDS", 0.01)
    monkeypatch.setattr(kept, "problems", 3)
    launch(small("log=kept", f"out={tmp_path / 'run'}"), "inline")
    warned = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert warned == ["log=kept does not work, the run goes on: ConnectionError: nobody answers"]
    if kept.got:  # unless the run ended first, which is not waited for
        assert kept.got[0][0] == 0


def test_trackers_that_cannot_work_end_no_run(
    small: Callable[..., RunConfig], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """No server answers at the address, and the folder of the CSV files cannot be created."""
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "csv").write_text("")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        uri = f"log.uri=http://127.0.0.1:{free_port()}"
        launch(small("log=csv,mlflow", uri, f"out={tmp_path / 'run'}"), "inline")
    assert read_summary(tmp_path / "run")["weights_sha256"]
    warned = sorted(record.getMessage() for record in caplog.records if record.levelno == logging.WARNING)
    assert [message.partition(" ")[0] for message in warned] == ["log=csv", "log=mlflow"]
    assert str(tmp_path / "run" / "csv") in warned[0]


def test_what_is_missing_is_said_before_the_run_starts(
    kept: type[Kept], small: Callable[..., RunConfig], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept, "needs", {"no_such_package": "no-such-package"})
    with pytest.raises(ConfigError, match=r"no_such_package is missing: pip install no-such-package"):
        launch(small("log=csv,kept", f"out={tmp_path / 'run'}"), "inline")
    with pytest.raises(ConfigError, match=r"unknown tracker 'tensorbord'. Did you mean 'tensorboard'"):
        small("log=tensorbord")
    assert not (tmp_path / "run").exists()


def test_wandb_without_a_key_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("WANDB_MODE", "WANDB_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(ConfigError, match="wandb login"):
            WeightsAndBiases(RunConfig().params("log")).check()
