"""Hooks of MkDocs: adds the pages that come from code and from the files above docs/."""

import re
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from docsite import gallery, notebooks, reference

ROOT = Path(__file__).parent.parent
ABOVE = {"README.md": "index.md", "CHANGELOG.md": "changelog.md"}  # files of the repository that are pages, too


def generated() -> Iterator[tuple[str, str | bytes]]:
    """(path, content) of everything that has no file in docs/: pages, and pictures of notebooks."""
    for source, page in ABOVE.items():
        yield page, _from_docs((ROOT / source).read_text())
    yield "reference/command-line.md", reference.command_line()
    yield "reference/parameters.md", reference.parameters()
    yield "reference/python.md", reference.python_api()
    for path, _, text in gallery.pages():
        yield path, text
    with TemporaryDirectory() as folder:
        yield from notebooks.pages(Path(folder))


def _from_docs(text: str) -> str:
    """A file of the repository with its links as seen from docs/."""
    for source, page in ABOVE.items():
        text = text.replace(f"]({source})", f"]({page})")
    return text.replace("](docs/", "](")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Puts the algorithms into the navigation."""
    (entry,) = (part for part in config.nav or [] if "Algorithms" in part)
    entry["Algorithms"] = [{title: path} for path, title, _ in gallery.pages()]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for path, text in generated():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Links to files above docs/ and to notebooks lead to the pages that are made from them."""
    for source, target in ABOVE.items():
        markdown = markdown.replace(f"](../{source}", f"]({target}")
    markdown = re.sub(r"\]\(([\w-]+)\.ipynb\)", r"](\1.md)", markdown)
    return re.sub(r"\]\(\.\./strategies/(\w+)\.py\)", r"](algorithms/\1.md)", markdown)
