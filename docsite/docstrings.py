"""The docstring of a strategy, cut into what it consists of: title, equations, symbols, prose."""

import html
import re
from collections.abc import Mapping
from dataclasses import dataclass

from docsite.equations import typeset

# "Client (1):  w <- ...", "       (2):  ...", "Weights (7):    ...", "sigma:   auto: ..."
LABELLED = re.compile(r"^( *(?:[A-Z][\w ,-]*)?(?:\(\d+\))+|[A-Za-z-]+(?=:  )):\s+(\S.*)$")
INDENTED = re.compile(r"^ {4,}\S")


@dataclass(frozen=True)
class Docstring:
    title: str  # "FedProx"
    about: str  # the rest of the first paragraph
    body: str  # HTML of everything else


def read(text: str, pages: Mapping[str, str]) -> Docstring:
    """Title and HTML of a docstring; modules that it names are linked to their pages."""
    first, *rest = re.split(r"\n\s*\n", text.strip())
    title, _, about = " ".join(first.split()).partition(": ")
    body = "\n".join(_block(block) for block in rest)
    for module, page in pages.items():
        code = f"<code>{module}</code>"
        body = body.replace(code, f'<a href="{page}">{code}</a>')
    return Docstring(title, about, body)


def _block(block: str) -> str:
    lines = block.splitlines()
    if lines[0].startswith("|"):
        return _table(lines)
    if any(LABELLED.match(line) for line in lines):
        return _equations(lines)
    paragraphs = re.split(r"\n(?=Deviation)", block)
    return "\n".join(f"<p>{typeset(' '.join(text.split()))}</p>" for text in paragraphs)


def _table(lines: list[str]) -> str:
    """A table of Markdown: symbol, meaning, name in the code. A symbol may contain bars: cells are counted from the end."""
    rows = [line.strip().removeprefix("|").removesuffix("|") for line in lines]
    cells = [[cell.strip() for cell in re.split(r" \|(?: |$)", row)] for row in rows]
    head = "".join(f"<th>{html.escape(cell)}</th>" for cell in cells[0])
    body = "".join("<tr>" + "".join(f"<td>{typeset(cell)}</td>" for cell in row) + "</tr>" for row in cells[2:])
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _equations(lines: list[str]) -> str:
    """A grid of labels and equations; a line that continues an equation stands below it."""
    out = ""
    for line in lines:
        if found := LABELLED.match(line):
            out += f"<dt>{typeset(found[1].strip())}</dt><dd>{typeset(found[2])}</dd>"
        elif INDENTED.match(line):
            out += f"<dd>{typeset(line.strip())}</dd>"
        else:
            out += f'<dd class="whole">{typeset(line.strip())}</dd>'
    return f'<dl class="equations">{out}</dl>'
