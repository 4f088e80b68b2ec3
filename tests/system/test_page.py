"""The HTML page in a real browser."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsim import config as configs
from fedsim.cli import main
from fedsim.engine.launch import launch
from fedsim.files import write_npz

BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(BROWSER is None, reason="no chromium here; continuous integration installs it"),
]


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page about two settings, one of them with two seeds, stragglers and recorded matrices."""
    home = tmp_path_factory.mktemp("runs")
    base = ["clients=6", "rounds=6", "model=mlr", "stragglers=uniform-rounds", "pace=window", "partition=dirichlet"]
    for name, keys in {"a": ["seed=1"], "b": ["seed=2"], "c": ["seed=1", "algorithm=fedbuff"]}.items():
        launch(configs.read(None, [*base, *keys, f"out={home / name}"]), "inline")
    for number in (2, 5):
        write_npz(home / "a" / "matrices" / f"round-{number:06d}.npz", {"xi": np.eye(6) * number / 10})
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
        context = browser.new_context(**options)
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
    assert overflow(page) <= 0
    colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (colour == "rgb(255, 255, 255)") == (scheme == "light")


def test_a_click_sorts_the_table(opened: Any) -> None:
    page = opened()

    def column() -> list[str]:
        return [str(text) for text in page.locator("#table td:first-child").all_text_contents()]

    page.get_by_role("button", name="setting").click()
    assert column() == ["fedavg", "fedbuff"]
    page.get_by_role("button", name="setting").click()
    assert column() == ["fedbuff", "fedavg"]
    assert "±" in page.locator("#table tr", has_text="fedavg").first.text_content()


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


def test_hovering_shows_values(opened: Any) -> None:
    page = opened()
    page.locator("#curve svg").hover()
    assert "fedavg 0." in page.locator("#tip").text_content()
    page.locator("#labels canvas").hover()
    assert "samples" in page.locator("#tip").text_content()


def test_another_run_is_another_timeline(opened: Any) -> None:
    page = opened()
    before = page.locator("#timeline").inner_html()
    page.locator("#run").select_option(label="b")  # another seed, so other delays
    assert page.locator("#timeline").inner_html() != before
    assert not page.locator("#matrixpart").is_visible()
    page.locator("#run").select_option(label="c")
    page.locator("details summary").click()
    assert "fedbuff" in page.locator("#config").text_content()
