"""The notebooks of docs/notebooks: executed, and as pages of the site. They are stored without outputs."""

import base64
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).parent.parent / "docs" / "notebooks"
TIMEOUT = 120  # seconds for a cell
# Left out of pages: colors of a terminal, lines about progress, and what pandas says about the look of its tables.
NOISE = re.compile(r"\x1b\[[0-9;]*m|^\S+ on \S+: (after round .*|\d+ rounds)\n?|^\n", re.MULTILINE)
LOOK = re.compile(r'<style scoped>.*?</style>\s*| border="1" class="dataframe"| style="text-align: right;"', re.DOTALL)


def paths() -> list[Path]:
    return sorted(FOLDER.glob("*.ipynb"))


def executed(working: Path) -> Mapping[str, Any]:
    """Every notebook by name with its outputs, run in `working` by one kernel with an empty namespace for each. Raises
    CellExecutionError with the cell and its traceback."""
    notebooks = {path.stem: nbformat.read(path, as_version=4) for path in paths()}
    client = NotebookClient(
        nbformat.v4.new_notebook(),
        timeout=TIMEOUT,
        startup_timeout=TIMEOUT,
        resources={"metadata": {"path": str(working)}},
    )
    with TemporaryDirectory() as sockets:
        manager = client.create_kernel_manager()
        manager.transport, manager.ip = "ipc", f"{sockets}/kernel"  # no port that others on this machine could use
        with client.setup_kernel():
            _execute(client, notebooks.values())
    return notebooks


def _execute(client: NotebookClient, notebooks: Iterable[Any]) -> None:
    for notebook in notebooks:
        notebook.cells.insert(0, nbformat.v4.new_code_cell("%reset -f"))
        client.nb = notebook
        for index, cell in enumerate(notebook.cells):
            client.execute_cell(cell, index)
        del notebook.cells[0]


def markdown(name: str, notebook: Any) -> tuple[str, dict[str, bytes]]:
    """A notebook as a page, and its pictures by file name."""
    pictures: dict[str, bytes] = {}
    parts = []
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            parts.append(cell.source)
            continue
        parts.append(f"```python\n{cell.source}\n```")
        for kind, content in map(_shown, cell.get("outputs", [])):
            if kind == "image/png":
                file = f"{name}-{len(pictures) + 1}.png"
                pictures[file] = base64.b64decode(content)
                parts.append(f"![What this cell draws]({file})")
            elif kind == "text/html":
                parts.append(LOOK.sub("", content))
            elif text := NOISE.sub("", content).rstrip():
                parts.append(f"```text\n{text}\n```")
    return "\n\n".join(parts) + "\n", pictures


def _shown(output: Any) -> tuple[str, str]:
    """The kind and content of an output: a picture, HTML, or text."""
    if output.output_type == "stream":
        return "text/plain", output.text
    data = output.get("data", {})
    for kind in ("image/png", "text/html", "text/plain"):
        if kind in data:
            return kind, data[kind]
    raise ValueError(f"an output that is neither a picture nor text: {sorted(data)}")


def pages(working: Path) -> Iterator[tuple[str, str | bytes]]:
    """(path, content) of every page and picture."""
    for name, notebook in executed(working).items():
        text, pictures = markdown(name, notebook)
        yield f"notebooks/{name}.md", text
        for file, content in pictures.items():
            yield f"notebooks/{file}", content
