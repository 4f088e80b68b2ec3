"""`metrics=PORT`: what is served during a run, and that the Grafana dashboard asks for nothing else."""

import json
import re
import socket
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from fedsim.client.jobs import ClientJob
from fedsim.config import RunConfig
from fedsim.engine.launch import launch
from fedsim.errors import ConfigError
from fedsim.payload import Uplink
from fedsim.results.observers import Observer, observed_by
from fedsim.results.record import read_events

DASHBOARD = Path(__file__).parent.parent.parent / "deploy" / "grafana.json"
SAMPLE = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)$", re.MULTILINE)


class Scraper(Observer):
    """Reads the metrics at every event, as Prometheus would; what is served includes all events before it."""

    def __init__(self, port: int) -> None:
        self.port, self.pages = port, list[str]()

    def event(self, event: Mapping[str, Any]) -> bool:
        with urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=10) as page:
            self.pages.append(page.read().decode())
        return False


def samples(page: str) -> dict[tuple[str, str], float]:
    return {(name, labels): float(value) for name, labels, value in SAMPLE.findall(page)}


@pytest.fixture(scope="module")
def port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        number: int = probe.getsockname()[1]
    return number


@pytest.fixture(scope="module")
def run(port: int, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """An asynchronous run, and what was served at each of its events."""
    folder, scraper = tmp_path_factory.mktemp("metrics") / "run", Scraper(port)
    keys: dict[str, Any] = {"algorithm": "fedbuff", "stragglers": "speed", "clients": 4, "rounds": 3, "model": "mlr"}
    with observed_by([scraper]):
        launch(RunConfig(**keys, metrics=port, out=str(folder)), "inline")
    return folder, scraper.pages


def test_the_last_page_tells_what_the_events_tell(run: tuple[Path, list[str]]) -> None:
    folder, pages = run
    events, found = read_events(folder), samples(pages[-1])
    steps = [event for event in events if event["kind"] == "step"]
    rows = [row for step in steps for row in step["clients"]]
    assert found["fedsim_round", ""] == found["fedsim_rounds", ""] == 3
    assert found["fedsim_clients", ""] == found["fedsim_clients_online", ""] == 4
    assert found["fedsim_results_total", ""] == len(rows)
    assert found["fedsim_staleness_sum", ""] == sum(row["staleness"] for row in rows)
    assert found["fedsim_round_seconds_count", ""] == 3
    assert found["fedsim_bytes", 'direction="up"'] == steps[-1]["bytes_up"]
    assert found["fedsim_accuracy", 'kind="global"'] > 0
    assert found["fedsim_failures_total", ""] == found["fedsim_refused_total", ""] == 0
    (info,) = [labels for name, labels in found if name == "fedsim_run_info"]
    assert 'algorithm="fedbuff"' in info


def test_nobody_listens_after_the_run(run: tuple[Path, list[str]], port: int) -> None:
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", port)) != 0


def test_refused_results_are_counted(port: int, small: Callable[..., RunConfig], tmp_path: Path) -> None:
    scraper = Scraper(port)
    config = small(f"metrics={port}", "rounds=2", f"out={tmp_path / 'run'}")
    with pytest.MonkeyPatch.context() as patch, observed_by([scraper]):
        honest = ClientJob.filtered

        def lying(self: ClientJob, uplink: Uplink) -> Uplink:
            return replace(honest(self, uplink), examples=-1) if self.job.client == 2 else honest(self, uplink)

        patch.setattr(ClientJob, "filtered", lying)
        launch(config, "inline")
    found = samples(scraper.pages[-1])
    assert found["fedsim_refused_total", ""] == found["fedsim_failures_total", ""] == 2


def test_a_port_that_is_taken_is_named(small: Callable[..., RunConfig], tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        number = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"metrics={number}: cannot listen on 127.0.0.1:{number}"):
            launch(small(f"metrics={number}", f"out={tmp_path / 'run'}"), "inline")


def queries() -> Iterator[str]:
    content = json.loads(DASHBOARD.read_text())
    for panel in content["panels"]:
        assert {"id", "title", "type", "gridPos", "datasource", "targets"} <= set(panel)
        for target in panel["targets"]:
            yield target["expr"]
    yield from (variable["query"] for variable in content["templating"]["list"])


def test_the_dashboard_asks_only_for_metrics_that_are_served(run: tuple[Path, list[str]]) -> None:
    served = {name for name, _ in samples(run[1][-1])}
    asked = {name for query in queries() for name in re.findall(r"fedsim_\w+", query)}
    assert asked
    assert asked <= served
    shown = {re.sub(r"_(total|bucket|sum|count)$", "", name) for name in asked}
    all_names = {re.sub(r"_(total|bucket|sum|count|created)$", "", name) for name in served}
    assert all_names - shown == set(), "every metric is on the dashboard"
