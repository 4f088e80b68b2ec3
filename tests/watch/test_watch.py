"""What `fedsim watch` reads and serves: new lines alone, runs that are resumed, and nobody but this machine."""

import http.client
import json
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedsim
from fedsim.cli import main
from fedsim.config import RunConfig
from fedsim.engine.launch import launch
from fedsim.errors import FedsimError
from fedsim.report.runs import RunResult
from fedsim.results.events import EVENTS
from fedsim.results.observers import Observer, observed_by
from fedsim.results.record import asked, read_summary
from fedsim.results.working import FILE, Working, read_working
from fedsim.sweeps.manifest import PlannedRun, SweepManifest
from fedsim.watch import watcher as watching
from fedsim.watch.follow import Follower, GrowingFile
from fedsim.watch.nodes import Nodes
from fedsim.watch.server import Server, is_named
from fedsim.watch.watcher import Watcher


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing waits until it is looked for again."""
    for name in ("LOOK_SECONDS", "READ_SECONDS", "RELATION_SECONDS", "SHARE"):
        monkeypatch.setattr(watching, name, 0.0)


class Browser(Observer):
    """Asks a watcher after every event of a run, as a browser does, and keeps what it is told."""

    def __init__(self, root: Path) -> None:
        self.watcher, self.known, self.answers = Watcher(root), dict[str, Any](), list[dict[str, Any]]()

    def event(self, event: Mapping[str, Any]) -> bool:
        self.ask()
        return False

    def ask(self, **more: Any) -> dict[str, Any]:
        answer = json.loads(json.dumps(self.watcher.changes({**self.known, **more}), allow_nan=False))
        self.known["version"] = answer["version"]
        if found := answer.get("run"):
            self.known |= {"run": found["name"], "generation": found["generation"], "after": found["after"]}
            self.known |= {"fixed": found["fixed"]["version"]} if "fixed" in found else {}
        self.answers.append(answer)
        return answer


def test_a_growing_run_is_told_in_increments(small: Callable[..., RunConfig], tmp_path: Path) -> None:
    browser = Browser(tmp_path)
    with observed_by([browser]):
        launch(small("rounds=3", "algorithm=spfl", f"out={tmp_path / 'run'}"), "inline")
    last = browser.ask()
    told = [each for answer in browser.answers for each in answer["run"]["entries"]]
    result = RunResult.load(tmp_path / "run")
    assert [(each["r"], "n" in each) for each in told] == [
        (event["round"], event["kind"] == "step") for event in result.events
    ]
    means = [np.mean(each["p"][1]) for each in told if "p" in each]
    assert means == pytest.approx(result.series("personal").mean, abs=1e-5)
    jobs = [job for each in told for job in each.get("j", [])]
    assert len(jobs) == len(result.jobs)
    rows = [answer["runs"][0] for answer in browser.answers]
    assert [row["round"] for row in rows] == sorted(row["round"] for row in rows)
    assert rows[-2]["status"] == "running"
    assert (last["runs"][0]["status"], last["runs"][0]["left"]) == ("finished", None)
    assert "fixed" in browser.answers[0]["run"]
    assert [m for answer in browser.answers if "fixed" in answer["run"] for m in answer["run"]["fixed"]["matrices"]]
    assert "overview" not in browser.ask(), "nothing is new"
    table = browser.ask(version=-1)["overview"]["results"]
    assert table["texts"][0][1] == f"{100 * result.series('personal').best:.2f}"


def test_a_run_that_is_resumed_is_told_again(small: Callable[..., RunConfig], tmp_path: Path) -> None:
    browser, folder = Browser(tmp_path), tmp_path / "run"

    def interrupt(step: fedsim.Step) -> None:
        if step.number == 3:
            raise KeyboardInterrupt

    keys: dict[str, Any] = {"clients": 3, "model": "mlr", "rounds": 4, "checkpoint_every": 2, "engine": "inline"}
    with pytest.raises(KeyboardInterrupt):
        fedsim.run(out=folder, on_step=interrupt, callbacks=[browser], **keys)
    stopped = browser.ask()
    assert (stopped["runs"][0]["status"], stopped["runs"][0]["round"]) == ("interrupted", 3)
    fedsim.resume(folder)
    again = browser.ask()
    assert again["run"]["generation"] > stopped["run"]["generation"]
    assert again["run"]["from"] == 0
    assert [each["r"] for each in again["run"]["entries"] if "n" in each] == [1, 2, 3, 4]
    fresh = Follower(folder)
    fresh.update(1 << 30)
    (follower,) = browser.watcher._runs.values()
    np.testing.assert_array_equal(follower.result().series("personal").values, fresh.result().series("personal").values)
    assert follower.result().costs == RunResult.load(folder).costs


def test_a_line_that_is_half_written_waits(tmp_path: Path) -> None:
    path = tmp_path / EVENTS
    lines = [json.dumps({"kind": "step", "round": number}) + "\n" for number in range(4)]
    path.write_text(lines[0] + lines[1][:9])
    growing = GrowingFile(path)
    assert [event["round"] for event in growing.read(1000)] == [0]
    path.write_text(lines[0] + lines[1] + "damaged\n" + lines[2])
    assert [event["round"] for event in growing.read(len(lines[1]))] == [1]
    assert [event["round"] for event in growing.read(1000)] == [2]
    assert (growing.generation, growing.unread) == (0, 0)
    path.write_text(lines[3] + lines[3])
    assert [event["round"] for event in growing.read(1000)] == [3, 3]
    assert growing.generation == 1


def test_a_sweep_lists_what_waits_and_what_has_died(small: Callable[..., RunConfig], tmp_path: Path) -> None:
    configs = {name: small(f"seed={seed}", f"out={tmp_path / name}") for seed, name in enumerate("abc")}
    SweepManifest("study", runs={name: PlannedRun(asked(config)) for name, config in configs.items()}).write(tmp_path)
    for name in "ab":
        launch(configs[name], "inline")
    manifest = tmp_path / "b" / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"finished"', '"running"').replace('"crc"', '"other"'))
    (tmp_path / "b" / ".lock").write_text("999999999\n")  # a process that does not exist
    assert {row["status"] for row in Browser(tmp_path).ask()["runs"]} == {"finished", "running"}, "elsewhere, perhaps"
    os.utime(tmp_path / "b" / EVENTS, (0, 0))
    answer = Browser(tmp_path).ask()
    assert {row["name"]: row["status"] for row in answer["runs"]} == {"a": "finished", "b": "stopped"}
    assert answer["waiting"] == ["c"]
    assert answer["overview"]["names"] == ["a", "b"]
    assert answer["overview"]["settings"][0]["label"] == "fedavg"
    assert Browser(tmp_path).ask(run="b")["run"]["name"] == "b"


def test_runs_of_different_objectives_are_not_compared(small: Callable[..., RunConfig], tmp_path: Path) -> None:
    for name in "ab":
        launch(small(f"out={tmp_path / name}"), "inline")
    path = tmp_path / "b" / "manifest.json"
    path.write_text(path.read_text().replace('"classification"', '"regression"').replace('"crc"', '"other"'))
    answer = Browser(tmp_path).ask()
    assert "different objectives" in answer["overview"]["problem"]
    assert len(answer["runs"]) == 2


def test_who_works_is_known_while_the_run_goes_on(small: Callable[..., RunConfig], tmp_path: Path) -> None:
    class Looking(Observer):
        seen: list[int] = []  # noqa: RUF012

        def event(self, event: Mapping[str, Any]) -> bool:
            self.seen.append(len(read_working(tmp_path / "run")))
            return False

    with observed_by([Looking()]):
        launch(small("algorithm=fedbuff", "stragglers=speed", "rounds=3", f"out={tmp_path / 'run'}"), "inline")
    assert max(Looking.seen) > 0
    assert not (tmp_path / "run" / FILE).exists()
    table = Working(tmp_path, [4, 7])
    table.sent([(7, 3), (99, 0)])
    ((row, base, since),) = read_working(tmp_path)
    assert (row, base, since > 1e9) == (1, 3, True)
    table.ended(7)
    assert read_working(tmp_path) == []
    (tmp_path / FILE).write_bytes(b"damaged")
    assert read_working(tmp_path) == []


# The server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server of a folder with one finished run."""
    home = tmp_path_factory.mktemp("served")
    fedsim.run(out=home / "run", clients=3, model="mlr", rounds=2, engine="inline")
    with Server(Watcher(home)) as found:
        thread = threading.Thread(target=found.serve_forever)
        thread.start()
        yield found
        found.shutdown()
        thread.join()


def get(server: Server, path: str, **headers: str) -> tuple[int, Mapping[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=30)
    try:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()
    finally:
        connection.close()


def test_the_server_gives_the_page_and_what_is_new(server: Server) -> None:
    status, headers, page = get(server, "/")
    assert (status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert b'{"live":true}' in page
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    status, _, content = get(server, "/changes?version=-1&generation=-1&after=0")
    found = json.loads(content)
    assert (status, found["run"]["progress"]["status"]) == (200, "finished")
    final = read_summary(server.watcher.root / "run")["accuracy"]["personal"]["final"]
    assert found["runs"][0]["latest"] == pytest.approx(final)
    after = found["run"]["after"]
    status, _, content = get(server, f"/changes?version=1&run=run&generation=0&after={after}")
    assert json.loads(content)["run"]["entries"] == []
    assert get(server, "/changes?after=x")[0] == 400
    assert get(server, "/../etc/passwd")[0] == 404


def test_a_name_that_was_made_to_point_here_is_refused(server: Server) -> None:
    port = server.server_address[1]
    assert get(server, "/changes", Host="evil.example")[0] == 421
    assert get(server, "/", Host=f"localhost:{port}")[0] == 200
    assert is_named("[::1]:80", server.names)
    assert is_named("192.0.2.7:80", server.names)
    assert not is_named("", server.names)
    assert not is_named("[broken", server.names)


def test_nobody_else_can_listen_there_and_folders_are_named(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    port = server.server_address[1]
    assert main(["watch", str(tmp_path), "--port", str(port)]) == 2
    assert f"cannot listen on 127.0.0.1:{port}" in capsys.readouterr().err
    assert main(["watch", str(tmp_path / "none")]) == 2
    assert "is no folder" in capsys.readouterr().err


def test_nodes_are_asked_beside_the_page_and_problems_are_told() -> None:
    answers: list[Any] = [
        {"federation": "f", "healthy": True, "server": {}, "current": [], "nodes": [{"name": "a", "policy": {}}]}
    ]

    def ask() -> dict[str, Any]:
        if not answers:
            raise FedsimError("the server does not answer")
        found: dict[str, Any] = answers.pop()
        return found

    nodes = Nodes("f", ask)
    for expected in ([{"name": "a"}], [{"name": "a"}]):
        nodes._asked = float("-inf")
        nodes.status()
        assert nodes._thread is not None
        nodes._thread.join()
        assert nodes._found["nodes"] == expected
    assert nodes._found["problem"] == "the server does not answer"
