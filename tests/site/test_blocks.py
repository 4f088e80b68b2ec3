"""The code blocks of README and docs are run, in the order of the pages, in one folder that they share.

Blocks without a language are shell commands, and `fedsim` runs in this process; runs that do not say so use the inline
engine, which gives the same bits as Ray. What is not run stands in NOT_RUN, with the reason; `tests.test_docs` parses all
`fedsim` commands. The examples of README and extend.md, two packages with entry points, are run there as well.
"""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import fedsim
from fedsim.cli import main

ROOT = Path(__file__).parent.parent.parent
# The README and the first page come first: later pages use their runs.
PAGES = [ROOT / "README.md", ROOT / "docs" / "start.md"]
PAGES += sorted({*(ROOT / "docs").rglob("*.md")} - {*PAGES})
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PACKAGES = ("README.md", "extend.md")  # whose Python blocks are modules, run by tests.test_docs

NOT_RUN = {
    r"make ": "targets of the repository, tests among them",
    r"(python3\.11|pip|\.) ": "makes an environment, from a network",
    r"python -m benchmarks": "minutes",
    r"(ray|export|flwr) |fedsim run --ray-address": "a Ray cluster, or Flower's runtime; tests/system starts both",
    r"fedsim deploy": "several machines; tests/system/deploy starts a federation",
    r"fedsim doctor": "examines this machine; tests/deploy/doctor",
    r"fedsim chaos": "minutes; tests/chaos",
    r"(FEDSIM_DATA=\S+ )?fedsim book": "real datasets; tests/book",
    r"(fedsim watch|tensorboard) ": "serve until Ctrl-C; tests/watch, tests/trackers",
    r"fedsim sweep": "minutes, and Ray; tests/sweeps",
    r"fedsim report runs/(sweep|fedamp|platform|fedavg-training)": "results of such a sweep",
    r"fedsim resume": "a run that was interrupted; tests/results",
    r"fedsim .*(dataset=(mnist|cifar10|tiny-imagenet)|data-root=DIR|data (fmnist|cifar10|mix4) )": "real datasets",
    r"fedsim .*(/data/|dataset=hf:)": "data of the reader, or from the Hugging Face hub",
    r"fedsim .*(my_module|mean-predictions)": "a module of the reader's",
}


class Block(NamedTuple):
    page: str
    language: str
    text: str


def blocks() -> Iterator[Block]:
    for page in PAGES:
        for language, text in FENCE.findall(page.read_text()):
            yield Block(page.name, language, text)


def lines(block: Block) -> list[str]:
    """The commands of a shell block, without comments."""
    joined = block.text.replace("\\\n", " ").splitlines()
    return [words for line in joined if (words := shlex.join(shlex.split(line, comments=True)))]


def reason(line: str) -> str:
    """Why a command is not run; empty: it is."""
    return next((why for pattern, why in NOT_RUN.items() if re.match(pattern, f"{line} ")), "")


def test_everything_that_is_not_run_is_there() -> None:
    shown = [f"{line} " for block in blocks() if not block.language for line in lines(block)]
    assert [pattern for pattern in NOT_RUN if not any(re.match(pattern, line) for line in shown)] == []


def test_shell_blocks_hold_nothing_but_commands_that_are_known() -> None:
    shown = [line for block in blocks() if not block.language for line in lines(block)]
    assert [line for line in shown if not (line.startswith("fedsim ") or reason(line))] == []


@pytest.mark.timeout(900)
@pytest.mark.usefixtures("own_names")
def test_every_block_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    experiment = next(block for block in blocks() if block.text.startswith("# experiment.toml\n"))
    Path("experiment.toml").write_text(experiment.text)
    for block in blocks():
        if block.language == "python" and block.page not in PACKAGES:
            exec(compile(block.text, block.page, "exec"), {"__name__": "__main__"})
        if not block.language:
            for line in lines(block):
                if not reason(line):
                    words = shlex.split(line)[1:]
                    words += ["--engine", "inline"] if words[0] == "run" and "--engine" not in words else []
                    assert main(words) == 0, f"{block.page}: {line}\n{capsys.readouterr().err}"
    check_the_first_page(tmp_path)


def check_the_first_page(folder: Path) -> None:
    """What a new user gets from the script of docs/start.md: curves, a picture and the model of one client."""
    result = fedsim.load(folder / "runs" / "spfl")
    assert result.accuracy("personal").shape == (21, 10)
    assert result.accuracy("personal").iloc[-1].mean() > 0.95
    assert (folder / "spfl.png").read_bytes().startswith(b"\x89PNG")
    model: Any = result.model(client=3)
    assert model.head.out_features == 10
    assert "spfl" in (folder / "comparison.html").read_text()
