"""README and docs: their size, and that links, commands, TOML files, tables and the example agree with the code."""

import argparse
import re
import shlex
import tomllib
from collections.abc import Callable
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from docsite import keys
from fedsim import config as configs
from fedsim import registry
from fedsim.cli import COMMANDS
from fedsim.config import DataParams, RunConfig, key_of
from fedsim.deploy import inventory, policy
from fedsim.parameters import parameters
from fedsim.strategies import ALGORITHMS
from fedsim.sweeps import sweep_file

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
PAGES = [README, ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]
BOOK = sorted((ROOT / "docs" / "results").glob("*.md"))  # made by `fedsim book`; reached from docs/results.md
LINES, COLUMNS = 130, 120  # of the README
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")


class Block(NamedTuple):
    """A fenced block of a page."""

    page: str
    language: str
    text: str


def blocks(language: str) -> list[Block]:
    found = [Block(p.name, *match) for p in [*PAGES, *BOOK] for match in FENCE.findall(p.read_text())]
    return [block for block in found if block.language == language]


def commands() -> list[str]:
    """Every `fedsim ...` line of the fenced blocks without a language."""
    lines = [line for block in blocks("") for line in block.text.replace("\\\n", " ").splitlines()]
    return [line for line in lines if line.startswith("fedsim ")]


def plug_ins() -> set[str]:
    """Names that the entry points shown in the documentation would add; they are not installed."""
    trees = [tomllib.loads(block.text).get("project", {}).get("entry-points", {}) for block in blocks("toml")]
    return {name for tree in trees for group in tree.values() for name in group}


def parser() -> argparse.ArgumentParser:
    """The command line of `fedsim` with all commands."""
    whole = argparse.ArgumentParser(prog="fedsim")
    subparsers = whole.add_subparsers(required=True)
    for name in COMMANDS:
        import_module(f"fedsim.commands.{name}").add(subparsers)
    return whole


def prose(page: Path) -> str:
    return FENCE.sub("", page.read_text())


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    titles = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def table_below(page: Path, heading: str) -> list[list[str]]:
    """The cells of the first table after a heading, without its head."""
    _, _, rest = page.read_text().partition(f"\n## {heading}\n")
    rows = re.search(r"(?:^\|.*\n)+", rest, re.MULTILINE)
    assert rows, f"{page.name} has no table below {heading!r}"
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows[0].splitlines()[2:]]


def test_the_readme_is_short() -> None:
    lines = README.read_text().splitlines()
    assert len(lines) <= LINES
    assert [line for line in lines if len(line) > COLUMNS] == []


@pytest.mark.parametrize("page", [*PAGES, *BOOK], ids=lambda page: page.name)
def test_every_relative_link_resolves(page: Path) -> None:
    for link in LINK.findall(prose(page)):
        if link.startswith(("http://", "https://")):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{page.name} links to {link}, which does not exist"
        assert not anchor or anchor in anchors(target), f"{page.name} links to {link}: no such heading"


def test_every_page_can_be_reached_from_the_readme() -> None:
    linked = {(ROOT / link.partition("#")[0]).resolve() for link in LINK.findall(prose(README))}
    assert {page for page in PAGES if page != README} <= linked


@pytest.mark.parametrize("line", commands())
def test_every_command_parses(line: str) -> None:
    args = parser().parse_args(shlex.split(line, comments=True)[1:])
    pairs = [pair for pair in getattr(args, "set", []) if not plug_ins() & set(re.split(r"[.=]", pair))]
    if args.handler is import_module("fedsim.commands.sweep").run and not args.file.endswith(".toml"):
        sweep_file.read_sweep(args.file, pairs)
    else:
        configs.parse(configs.assignments(pairs))
    for name in (getattr(args, "compare", None) or "iid").split(","):
        registry.check("partition", name)


READERS: dict[str, Callable[[Path], Any]] = {
    "experiment.toml": configs.read,
    "sweep.toml": lambda path: sweep_file.read_sweep(str(path)),
    "federation.toml": inventory.read,
    "policy.toml": lambda path: policy.check_names(policy.read(path.parent)),
}


@pytest.mark.parametrize("block", blocks("toml"), ids=lambda block: block.page)
def test_every_toml_block_is_valid(block: Block, tmp_path: Path) -> None:
    """A block whose first line is a comment with a file name is read as that kind of file."""
    assert tomllib.loads(block.text)
    name = block.text.splitlines()[0].removeprefix("# ")
    if name in READERS:
        path = tmp_path / name
        path.write_text(block.text)
        READERS[name](path)


def test_every_kind_of_file_is_shown() -> None:
    assert {block.text.splitlines()[0].removeprefix("# ") for block in blocks("toml")} >= set(READERS)


def test_every_algorithm_is_in_the_readme() -> None:
    listed = [name for row in table_below(README, "Algorithms") for name in re.findall(r"`([\w-]+)`", row[0])]
    assert set(ALGORITHMS) <= set(listed)
    assert len(listed) == len(set(listed))


@pytest.mark.parametrize(
    ("page", "heading", "kind"),
    [
        ("data.md", "Datasets", "dataset"),
        ("data.md", "Partitions", "partition"),
        ("models.md", "Names", "model"),
        ("stragglers.md", "Straggler models", "stragglers"),
        ("stragglers.md", "Paces", "pace"),
    ],
)
def test_tables_of_names_are_complete(page: str, heading: str, kind: str) -> None:
    listed = {name for row in table_below(ROOT / "docs" / page, heading) for name in re.findall(r"`(.+?)`", row[0])}
    assert listed == set(registry.load(registry.KINDS[kind].table))


def test_the_table_of_configuration_keys_is_made_from_the_code() -> None:
    """If this fails: python -m docsite.keys"""
    assert keys.TABLE.findall(keys.PAGE.read_text()) == [keys.keys()]
    assert [p.key for p in parameters(RunConfig) if not p.meaning] == []
    assert set(keys.SEE) <= {p.key for p in parameters(RunConfig)}


def test_every_parameter_of_the_data_is_documented_with_its_default() -> None:
    found = re.findall(r"^\| `data\.([\w-]+)` \| (\S+) \|", (ROOT / "docs" / "data.md").read_text(), re.MULTILINE)
    defaults = {
        key_of(f.name): str(f.default or (f.default if f.default == 0 else "empty")) for f in fields(DataParams)
    }
    assert {key: default.strip("`") for key, default in found} == {
        k: v.replace("()", "empty") for k, v in defaults.items()
    }


def test_every_key_of_a_policy_is_documented() -> None:
    listed = [row[0].strip("`[]") for row in table_below(ROOT / "docs" / "security.md", "The policy of a site")]
    assert listed == [key_of(f.name) for f in fields(policy.Policy)]


def test_every_algorithm_that_needs_label_counts_is_named() -> None:
    text = (ROOT / "docs" / "security.md").read_text()
    sentence = text[
        text.index("Algorithms that need label counts") : text.index("are refused by a node that hides them")
    ]
    needed = {name for name in ALGORITHMS if registry.find("algorithm", name).label_counts}
    assert set(re.findall(r"`([\w-]+)`", sentence)) == needed


def test_the_example_of_the_readme_is_fedprox(
    small: Callable[..., RunConfig],
    finished: Callable[..., dict[str, Any]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (example,), (point,) = ([b for b in blocks(kind) if b.page == README.name] for kind in ("python", "toml"))
    (entry,) = tomllib.loads(point.text)["project"]["entry-points"]["fedsim.algorithms"].items()
    (tmp_path / f"{entry[1].partition(':')[0]}.py").write_text(example.text)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(ALGORITHMS, *entry)
    registry.providers.cache_clear()
    try:
        example_run = finished(small(f"algorithm={entry[0]}", f"{entry[0]}.mu=0.5"), name="example")
    finally:
        registry.providers.cache_clear()
    built_in = finished(small("algorithm=fedprox", "fedprox.mu=0.5"), name="built-in")
    assert example_run["weights_sha256"] == built_in["weights_sha256"]


def test_nothing_tells_to_install_the_other_project() -> None:
    """The name `fedsim` of the package index belongs to another project."""
    kinds = (".md", ".py", ".toml", ".txt", ".sh", "Dockerfile")
    folders = ("fedsim", "strategies", "clients", "partitions", "deploy", "benchmarks")
    sources = [p for folder in folders for p in (ROOT / folder).rglob("*") if p.is_file() and p.name.endswith(kinds)]
    assert [p for p in [*PAGES, ROOT / "Makefile", *sources] if "pip install fedsim" in p.read_text()] == []


def test_the_plug_in_of_the_extend_page_runs_and_passes_its_own_tests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The module and both tests are taken from the page; the entry point is replaced by a line in the registry."""
    module, *tests = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "extend.md").read_text(), re.S)
    (tmp_path / "mean_predictions.py").write_text(module)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(registry.providers("algorithm"), "mean-predictions", "mean_predictions:MEAN_PREDICTIONS")
    found: dict[str, Any] = {}
    exec("\n".join(tests), found)
    found["test_absent_classes_do_not_count"]()
    found["test_without_distillation_it_is_local_training"](tmp_path)
