"""Help texts appear at once: they import none of the large libraries."""

import subprocess
import sys

import pytest

from fedsim.cli import COMMANDS

HEAVY = ("flwr", "matplotlib", "numpy", "ray", "rich", "scipy", "torch")
SCRIPT = """
import sys
from fedsim.cli import main
try:
    main(sys.argv[1:])
except SystemExit as end:
    print(end.code, *[name for name in {heavy!r} if name in sys.modules], file=sys.stderr)
"""


@pytest.mark.parametrize("words", [["--help"], *([name, "--help"] for name in COMMANDS)], ids=" ".join)
def test_help_imports_no_large_library(words: list[str]) -> None:
    command = [sys.executable, "-c", SCRIPT.format(heavy=HEAVY), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.startswith(f"usage: fedsim {'' if len(words) == 1 else words[0]}")
    assert done.stderr.split() == ["0"]
