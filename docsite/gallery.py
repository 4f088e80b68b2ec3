"""A page per strategy file, made from its docstring, and a table of all algorithms."""

from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from typing import Any

from docsite import docstrings
from docsite.tables import parameter_table, table
from fedsim import registry
from fedsim.algorithm import Algorithm, no_fine_tuning
from fedsim.strategies import ALGORITHMS

FOLDER = "algorithms"
PACKAGE = "fedsim.strategies."
INTRODUCTION = """---
hide: [toc]
---

# Algorithms

Every algorithm is one file in `strategies/`, and its page is made from the docstring of that file. How to add your own:
[Extend](../extend.md). `fedsim run --set algorithm=NAME` runs one, `fedsim list NAME` describes it. The columns say which
[options](../configuration.md#options-of-every-algorithm) an algorithm can follow.

"""


def pages() -> Iterator[tuple[str, str, str]]:
    """(path, title, Markdown) of the table and of every page."""
    yield f"{FOLDER}/index.md", "All algorithms", _index()
    for module, names in sorted(_by_module().items(), key=lambda item: _docstring(item[0]).title.lower()):
        yield f"{FOLDER}/{_page(module)}", _docstring(module).title.split(",")[0], _of_module(module, names)


@cache
def _by_module() -> Mapping[str, list[str]]:
    """The algorithms of each strategy file."""
    found: dict[str, list[str]] = {}
    for name, place in ALGORITHMS.items():
        found.setdefault(place.partition(":")[0], []).append(name)
    return found


@cache
def _docstring(module: str) -> docstrings.Docstring:
    return docstrings.read(import_module(module).__doc__ or "", {name: _page(name) for name in _by_module()})


def _page(module: str) -> str:
    return module.removeprefix(PACKAGE).replace("_", "-") + ".md"


def _index() -> str:
    head = [
        "algorithm",
        "what it is",
        "aggregators",
        "server optimizers",
        "fine-tuning",
        "unseen clients",
        "different models",
    ]
    rows = []
    for name, place in sorted(ALGORITHMS.items()):
        found = registry.find("algorithm", name)
        link = f"[`{name}`]({_page(place.partition(':')[0])})"
        rows.append([link, found.about, *("✓" if allowed else "" for allowed in _options(found).values())])
    return INTRODUCTION + table(head, rows, centered=range(2, len(head)))


def _of_module(module: str, names: list[str]) -> str:
    docstring = _docstring(module)
    about = docstring.about[:1].upper() + docstring.about[1:]
    sections = "\n".join(_section(name, several=len(names) > 1) for name in sorted(names))
    file = module.removeprefix("fedsim.").replace(".", "/") + ".py"
    return f"# {docstring.title}\n\n{about}\n\n{docstring.body}\n\n{sections}\n\nSource: `{file}`\n"


def _section(name: str, several: bool) -> str:
    """How an algorithm is used: its name, its parameters, what it needs and what it goes with."""
    found = registry.find("algorithm", name)
    facts = table(["property", "value"], [[key, value] for key, value in _facts(found).items()])
    parameters = parameter_table(found.params, prefix=f"{name}.")
    heading, below = (f"## `{name}`", "###") if several else ("## Use", "##")
    example = f"```\nfedsim run --set algorithm={name}{' --set public=200' if found.public else ''}\n```"
    return "\n\n".join(
        [
            heading,
            *([found.about[:1].upper() + found.about[1:] + "."] if several else []),
            example,
            *([f"{below} Parameters", parameters] if parameters else []),
            f"{below} Properties",
            facts,
        ]
    )


def _options(found: Algorithm[Any]) -> dict[str, bool]:
    """Which options of every algorithm this one can follow."""
    server = found.server
    return {
        "`aggregator`": server.averages,
        "`server-optimizer`": server.optimizes,
        "`finetune`": not server.no_finetune,
        "`partition.unseen`": not server.no_newcomers,
        "clients with different models": found.common != "model",
    }


def _facts(found: Algorithm[Any]) -> dict[str, str]:
    server = found.server
    why = {"`finetune`": server.no_finetune, "`partition.unseen`": server.no_newcomers}
    preset = {"`server-optimizer`": f": `{found.server_optimizer}` unless set"}
    preset |= {"`finetune`": ", preset"} if found.finetune is not no_fine_tuning else {}
    options = {
        option: "yes" + preset.get(option, "") if allowed else "no" + (f": {why[option]}" if why.get(option) else "")
        for option, allowed in _options(found).items()
    }
    facts = {
        "pace": f"`{found.pace}` unless set",
        **options,
        "public data": "for " + " and ".join(found.public) if found.public else "",
        "targets": {"any": "", "classes": "classes", "labels": "one class per sample"}[found.targets],
        "label counts": "the server learns them" if found.label_counts else "",
        "packages on the server": ", ".join(found.server_needs),
    }
    return {key: value for key, value in facts.items() if value}
