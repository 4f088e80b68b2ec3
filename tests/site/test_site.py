"""The documentation site is built with warnings as errors: links, anchors, pages that are made from code, and notebooks."""

import os
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

import fedsim
from docsite import notebooks
from fedsim import registry
from fedsim.cli import COMMANDS
from fedsim.parameters import parameters
from fedsim.strategies import ALGORITHMS

ROOT = Path(__file__).parent.parent.parent
pytestmark = pytest.mark.timeout(900)  # the first test builds the site, which runs all notebooks

LOADED = re.compile(r"""<(?:script|link|img|iframe|source)[^>]*?(?:src|href)=["']?(https?:|//)[^>]*>""")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


def text_of(page: Path) -> str:
    return re.sub(r"<[^>]+>", "", page.read_text()).replace("&quot;", '"')


def test_every_algorithm_is_on_exactly_one_page_with_its_parameters(site: Path) -> None:
    pages = {page.stem: text_of(page) for page in (site / "algorithms").glob("*.html") if page.stem != "index"}
    for name in ALGORITHMS:
        (page,) = (text for text in pages.values() if re.search(rf"fedsim run --set algorithm={name}\s", text))
        for parameter in parameters(registry.find("algorithm", name).params):
            assert f"{name}.{parameter.key}" in page
            assert parameter.meaning.split("`")[0] in page
    assert len(pages) == len({place.partition(":")[0] for place in ALGORITHMS.values()})


def test_the_references_are_complete(site: Path) -> None:
    pages = {page.stem: text_of(page) for page in (site / "reference").glob("*.html")}
    for kind in set(registry.KINDS) - {"algorithm"}:
        assert [name for name in registry.names(kind) if name not in pages["parameters"]] == []
    assert [name for name in fedsim.__all__ if f"fedsim.{name}" not in pages["python"]] == []
    assert [name for name in COMMANDS if f"fedsim {name}" not in pages["command-line"]] == []


def test_pages_load_nothing_from_a_network(site: Path) -> None:
    found = {page.name: LOADED.findall(page.read_text()) for page in site.rglob("*.html")}
    assert {name: urls for name, urls in found.items() if urls} == {}
    sheets = "".join(path.read_text() for path in site.rglob("*.css"))
    assert re.findall(r"@import|url\([\"']?(?:https?:)?//", sheets) == []


def test_notebooks_are_pages_with_what_they_show(site: Path) -> None:
    first, own, late, data = sorted((site / "notebooks").glob("[1-9]*.html"))
    assert "data:image/png;base64," in first.read_text()  # a result shows its curve
    assert "samples of client 3" in text_of(first)
    assert "mixed.share must be at least 0 and at most 1, not 2.0" in text_of(own)
    assert "drop the slow half" in text_of(late)
    assert (site / "notebooks" / "3-stragglers-1.png").read_bytes().startswith(b"\x89PNG")
    assert "(head): Linear(in_features=64, out_features=10" in text_of(data)


@pytest.mark.parametrize("path", notebooks.paths(), ids=lambda path: path.stem)
def test_notebooks_are_stored_without_outputs(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    assert [cell.source for cell in notebook.cells if cell.get("outputs") or cell.get("execution_count")] == []
