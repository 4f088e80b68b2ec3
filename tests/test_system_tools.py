"""A test whose program is missing is skipped and named in the closing line; with CI=true it fails."""

import os
import subprocess
import sys
from pathlib import Path

from tests.system_tools import BIN

ROOT = Path(__file__).parent.parent


def run_without_faketime(**environment: str) -> "subprocess.CompletedProcess[str]":
    """Runs a test that needs faketime, where only the programs of this Python environment are found."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/system/test_deploy_refusals.py"]
    inherited = {key: value for key, value in os.environ.items() if key != "CI" and not key.startswith("PYTEST_")}
    variables = {**inherited, "PATH": str(BIN), **environment}
    return subprocess.run(
        [*command, "-k", "clocks"], cwd=ROOT, env=variables, capture_output=True, text=True, check=False
    )


def test_it_is_skipped_and_the_closing_line_names_the_package() -> None:
    done = run_without_faketime()
    assert done.returncode == 0, done.stdout
    assert done.stdout.splitlines()[-2] == ("Not tested: faketime (1). To test it all: apt-get install faketime")
    assert done.stdout.splitlines()[-1].startswith("1 skipped")


def test_it_fails_in_continuous_integration() -> None:
    done = run_without_faketime(CI="true")
    assert done.returncode == 1, done.stdout
    assert "needs faketime" in done.stdout
