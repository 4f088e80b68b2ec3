"""The HTML page in a real browser."""

import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsim import config as configs
from fedsim.cli import main
from fedsim.engine.launch import launch
from fedsim.files import write_npz
from fedsim.results.observers import Observer, observed_by
from fedsim.results.record import read_events, read_manifest, read_summary
from fedsim.sweeps.manifest import PlannedRun, SearchResult, SweepManifest
from fedsim.watch.server import Server
from fedsim.watch.watcher import Watcher
from tests.system_tools import program

BROWSER = program("chromium", "google-chrome")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
PATIENCE = 60_000  # milliseconds that the live page may take to show what is new
pytestmark = [pytest.mark.system, pytest.mark.needs("chromium")]


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page about two settings, one of them with two seeds, stragglers, recorded matrices, clusters and a published
    number, and about a third that is missing."""
    home = tmp_path_factory.mktemp("runs")
    base = ["clients=6", "rounds=6", "model=mlr", "stragglers=uniform-rounds", "pace=window", "partition=dirichlet"]
    for name, keys in {"a": ["seed=1"], "b": ["seed=2"], "c": ["seed=1", "algorithm=fedbuff"]}.items():
        launch(configs.read(None, [*base, *keys, f"out={home / name}"]), "inline")
    for number in (2, 5):
        write_npz(home / "a" / "matrices" / f"round-{number:06d}.npz", {"xi": np.eye(6) * number / 10})
    events = [
        {**e, "clusters": [0, 1] * 3} if e["kind"] == "step" and e["round"] == 3 else e for e in read_events(home / "a")
    ]
    (home / "a" / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    runs = {name: PlannedRun(read_manifest(home / name)["config"]) for name in "abc"}
    runs["c"] = PlannedRun(runs["c"].config, "", {"personal": (0.915, 0.0025)}, "Table 9 of a paper")
    runs["d"] = PlannedRun({**runs["a"].config, "algorithm": "local"})
    search = SearchResult("a", [{"lr": 0.1}, {"lr": 0.5}], [0.25, None])
    SweepManifest("study", "", runs, [search], ("algorithm", "pace")).write(home)
    page = home / "page.html"
    assert main(["report", str(home), "--html", str(page)]) == 0
    return page


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=BROWSER, args=FLAGS)
        yield chromium
        chromium.close()


@pytest.fixture
def opened(browser: Any, page_file: Path) -> Iterator[Any]:
    """A function that opens the page; whatever it complains about or asks the network for fails the test."""
    problems: list[str] = []
    contexts = []

    def visit(**options: Any) -> Any:
        context = browser.new_context(bypass_csp=True, **options)  # what tests evaluate is no code of the page
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
        page.on("request", lambda r: problems.append(r.url) if not r.url.startswith(("file:", "data:")) else None)
        page.goto(page_file.as_uri())
        return page

    yield visit
    for context in contexts:
        context.close()
    assert problems == []


def overflow(page: Any) -> int:
    return int(page.evaluate("document.documentElement.scrollWidth - window.innerWidth"))


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1100])
def test_it_lays_out_without_overflow(opened: Any, width: int, scheme: str) -> None:
    page = opened(viewport={"width": width, "height": 844}, color_scheme=scheme)
    page.evaluate("document.querySelectorAll('details').forEach((part) => (part.open = true))")
    assert overflow(page) <= 0
    colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (colour == "rgb(255, 255, 255)") == (scheme == "light")


def test_a_click_sorts_the_table(opened: Any) -> None:
    page = opened()

    def column() -> list[str]:
        return [str(text) for text in page.locator("#table td:first-child").all_text_contents()]

    heading = page.locator("#table").get_by_role("button", name="setting")
    heading.click()
    assert column() == ["fedavg", "fedbuff", "local"]
    heading.click()
    assert column() == ["local", "fedbuff", "fedavg"]
    best = page.locator("#table").get_by_role("button", name="best").first
    for _ in range(2):
        best.click()
        assert column()[-1] == "local", "what is missing comes last, whichever way"
    assert "±" in page.locator("#table tr", has_text="fedavg").first.text_content()
    page.locator("#costtable").get_by_role("button", name="wall s").click()
    seconds = [float(text.split()[0]) for text in page.locator("#costtable td:nth-child(2)").all_text_contents()[:2]]
    assert seconds == sorted(seconds, reverse=True)


def test_published_numbers_missing_runs_and_searches_are_there(opened: Any) -> None:
    page = opened()
    assert "91.50 ± 0.25" in page.locator("#table tr", has_text="fedbuff").text_content()
    assert "Table 9 of a paper" in page.locator("#results").text_content()
    assert "0 of 1" in page.locator("#table tr", has_text="local").text_content()
    assert "runs0/d" in page.locator("#missing").text_content()
    page.get_by_text("Hyper-parameter search").click()
    assert "25.0 % ★" in page.locator("#searches").inner_text()
    assert "failed" in page.locator("#searches").inner_text()


def test_the_heat_map_is_a_table_with_colors(opened: Any) -> None:
    cells = opened().locator("#heatmap td")
    texts = cells.all_text_contents()
    assert (texts[0], texts[2], len(texts)) == ("fedavg", "fedbuff", 4), "no row for a setting without runs"
    better = cells.nth(1 if float(texts[1]) > float(texts[3]) else 3)
    assert better.evaluate("(cell) => getComputedStyle(cell).color") == "rgb(0, 0, 0)", "black on bright"
    assert "±" in cells.nth(1).get_attribute("title")


def test_a_click_on_a_name_hides_its_curve(opened: Any) -> None:
    page = opened()

    def curves() -> int:
        return int(page.locator("#curve path[fill=none][stroke-width='2.2']").count())

    assert curves() == 2, "none for a setting without runs"
    page.locator("#legend").get_by_role("button", name="fedbuff").click()
    assert curves() == 1
    assert page.locator("#strip .name").all_text_contents() == ["fedavg"]
    page.locator("#legend").get_by_role("button", name="fedbuff").click()
    assert curves() == 2


def test_the_slider_moves_the_matrix(opened: Any) -> None:
    page = opened()
    assert page.locator("#roundvalue").text_content() == "5"
    box = page.locator("#heat canvas").bounding_box()
    page.locator("#heat canvas").scroll_into_view_if_needed()
    corner = {"x": box["width"] / 12, "y": box["height"] / 12}  # the first client with itself
    page.locator("#heat canvas").hover(position=corner)
    assert page.locator("#tip").text_content().endswith(": 0.5000")
    page.locator("#round").fill("0")
    assert page.locator("#roundvalue").text_content() == "2"
    page.locator("#heat canvas").hover(position=corner)
    assert page.locator("#tip").text_content().endswith(": 0.2000")


def test_clusters_are_drawn_over_the_rounds(opened: Any) -> None:
    page = opened()
    canvas = page.locator("#clusters canvas")
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    canvas.hover(position={"x": box["width"] * 0.9, "y": box["height"] * 0.1})
    assert page.locator("#tip").text_content() == "client 0, round 6: cluster 0"
    canvas.hover(position={"x": box["width"] * 0.1, "y": box["height"] * 0.9})
    assert page.locator("#tip").text_content() == "client 5, round 1: not known"
    assert "2 clusters" in page.locator("#clusternote").text_content()
    page.locator("#run").select_option(label="b")
    assert not page.locator("#clusterpart").is_visible()


def test_hovering_shows_values(opened: Any) -> None:
    page = opened()
    page.locator("#curve svg").hover()
    assert re.search(r"round \d\n.*fedavg \d+\.\d % \(", page.locator("#tip").text_content(), re.DOTALL)
    page.locator("#split svg").hover()
    assert re.search(r"aggregation \S+ s", page.locator("#tip").text_content())
    page.locator("#labels canvas").hover()
    assert "samples" in page.locator("#tip").text_content()


def test_a_filter_keeps_some_clients_and_a_click_sorts_them(opened: Any) -> None:
    page = opened()
    rows = page.locator("#clienttable tbody tr")
    assert rows.count() == 6
    page.locator("#clientfilter").fill("1, 3-4")
    assert page.locator("#clienttable tbody td:first-child").all_text_contents() == ["1", "3", "4"]
    assert "3 of 6 clients" in page.locator("#clientcount").text_content()
    page.locator("#clienttable").get_by_role("button", name="samples").click()
    samples = [int(text) for text in page.locator("#clienttable td:nth-child(4)").all_text_contents()]
    assert samples == sorted(samples, reverse=True)
    page.locator("#clientfilter").fill("no such words")
    assert rows.count() == 0


def test_the_list_of_runs_is_filtered_and_chosen_from(opened: Any) -> None:
    page = opened()
    assert page.locator("#runtable tbody td:first-child").all_text_contents() == ["a", "b", "c"]
    page.locator("#runfilter").fill("finished")
    assert page.locator("#runtable tbody tr").count() == 3
    page.locator("#runtable").get_by_role("button", name="c", exact=True).click()
    assert page.locator("#run").input_value() == "c"
    page.get_by_text("Configuration and versions").click()
    assert "fedbuff" in page.locator("#config").text_content()


def test_another_run_is_another_timeline(opened: Any) -> None:
    page = opened()
    before = page.locator("#timeline").inner_html()
    page.locator("#run").select_option(label="b")  # another seed, so other delays
    assert page.locator("#timeline").inner_html() != before
    assert not page.locator("#matrixpart").is_visible()


# The live page


@pytest.fixture
def watched(browser: Any, tmp_path: Path) -> Iterator[tuple[Any, Path]]:
    """The page of `fedsim watch` about an empty folder."""
    problems: list[str] = []
    context = browser.new_context(bypass_csp=True)
    page = context.new_page()
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    with Server(Watcher(tmp_path)) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        page.goto(server.url)
        yield page, tmp_path
        context.close()
        server.shutdown()
        thread.join()
    assert problems == []


class Stops(Observer):
    """Waits after every step until the page shows it; in the last one of the first part, the run is interrupted."""

    def __init__(self, page: Any, last: int) -> None:
        self.page, self.last = page, last

    def event(self, event: Any) -> bool:
        if event["kind"] == "step":
            tile = self.page.locator("#tiles .tile", has_text="round").locator("b")
            playwright_api().expect(tile).to_have_text(f"{event['round']} of 4", timeout=PATIENCE)
            if event["round"] == self.last:
                raise KeyboardInterrupt
        return False


def playwright_api() -> Any:
    import playwright.sync_api

    return playwright.sync_api


def test_a_run_that_grows_while_the_page_is_open(watched: tuple[Any, Path]) -> None:
    """It is interrupted after its third round and resumed from the second, and a second run begins."""
    page, home = watched
    expect = playwright_api().expect
    expect(page.locator("#intro")).to_have_text("0 runs.", timeout=PATIENCE)
    base = ["clients=4", "rounds=4", "model=mlr", "checkpoint-every=2", "algorithm=spfl", f"out={home / 'first'}"]
    with pytest.raises(KeyboardInterrupt), observed_by([Stops(page, 3)]):
        launch(configs.read(None, base), "inline")
    assert page.locator("#offline").is_hidden()
    status = page.locator("#tiles .tile", has_text="status").locator("b")
    expect(status).to_have_text("interrupted", timeout=PATIENCE)
    page.locator("#clientfilter").fill("2-3")
    launch(configs.read(None, [*base, "resume=true"]), "inline")
    expect(status).to_have_text("finished", timeout=PATIENCE)
    assert page.evaluate("RUN.steps.r") == [1, 2, 3, 4]
    assert page.evaluate("RUN.curves.p.r") == [0, 1, 2, 3, 4]
    assert page.locator("#clienttable tbody td:first-child").all_text_contents() == ["2", "3"], "the filter stays"
    means = read_summary(home / "first")["accuracy"]["personal"]
    assert page.evaluate("RUN.curves.p.mean").pop() == pytest.approx(means["final"], abs=1e-4)
    launch(configs.read(None, ["clients=4", "rounds=2", "model=mlr", f"out={home / 'second'}"]), "inline")
    events = home / "second" / "events.jsonl"
    written = events.read_text()
    events.write_text("")
    expect(page.locator("#runtable tbody tr")).to_have_count(2, timeout=PATIENCE)
    page.locator("#runtable").get_by_role("button", name="second").click()
    expect(page.locator("#config")).to_contain_text("fedavg", timeout=PATIENCE)
    assert page.evaluate("RUN.steps.r") == [], "a run that has no event yet"
    events.write_text(written)
    tile = page.locator("#tiles .tile", has_text="round").locator("b")
    expect(tile).to_have_text("2 of 2", timeout=PATIENCE)
    assert page.evaluate("RUN.steps.r") == [1, 2]
    expect(page.locator("#table tbody tr")).to_have_count(2, timeout=PATIENCE)
