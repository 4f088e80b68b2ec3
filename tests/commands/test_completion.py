"""Completion: what a shell offers, and the scripts in real shells."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fedsim.cli import COMMANDS, main
from fedsim.commands.completion import SCRIPTS, candidates
from fedsim.config import RunConfig
from fedsim.parameters import parameters

LINE = "fedsim run --set spfl.head-mode=so"


def test_commands_options_and_choices() -> None:
    assert candidates("fedsim ") == candidates("fedsim") == sorted(COMMANDS)
    assert candidates("fedsim sw") == ["sweep"]
    assert candidates("fedsim deploy u") == ["up"]
    assert candidates("fedsim deploy up --i") == ["--install"]
    assert candidates("fedsim run --engine ") == ["inline", "ray"]
    assert candidates("fedsim run --out ") == []  # a file
    assert candidates("fedsim completion ") == [*sorted({*SCRIPTS, "candidates"})]
    assert candidates("fedsim nonsense x") == []


def test_names() -> None:
    assert {"fedavg", "fedavg-ft"} <= set(candidates("fedsim list fedav"))
    assert "periodic" in candidates("fedsim list peri")
    assert candidates("fedsim list --json algo") == ["algorithms"]
    assert candidates("fedsim data digi") == ["digit-5", "digits"]
    assert candidates("fedsim sweep spfl-fm") == ["spfl-fmnist"]


def test_keys_and_values() -> None:
    assert set(candidates("fedsim run --set ")) == {f"{p.key}=" for p in parameters(RunConfig)}
    assert candidates("fedsim run --set local-") == ["local-epochs=", "local-steps="]
    assert candidates("fedsim run --set partition=pa") == ["partition=pathological"]
    assert candidates("fedsim run --set fedavg-f") == ["fedavg-ft."]
    assert candidates("fedsim run --set spfl.head") == ["spfl.head-mode="]
    assert candidates("fedsim run --set spfl.head-mode=") == ["spfl.head-mode=identity", "spfl.head-mode=softmax"]
    assert candidates("fedsim run --set partition=dirichlet --set partition.al") == ["partition.alpha="]
    assert candidates("fedsim run --set partition=shards --set partition.al") == []
    assert candidates("fedsim run --set finetune.p") == ["finetune.part="]
    assert candidates("fedsim run --set nothing.") == candidates("fedsim run --set lr=") == []


@pytest.mark.parametrize("shell", SCRIPTS)
def test_the_scripts_in_real_shells(shell: str, tmp_path: Path) -> None:
    if not (program := shutil.which(shell)):
        pytest.skip(f"{shell} is not installed")
    (tmp_path / "fedsim").write_text(f'#!/bin/sh\nexec {sys.executable} -m fedsim.cli "$@"\n')
    (tmp_path / "fedsim").chmod(0o755)
    (tmp_path / "script").write_text(SCRIPTS[shell])
    ask = {
        "bash": f"COMP_LINE='{LINE}'; COMP_POINT=${{#COMP_LINE}}; _fedsim; echo \"${{COMPREPLY[*]}}|\"",
        "zsh": f"words=({LINE}); CURRENT=4; _fedsim",
        "fish": f"complete -C '{LINE}'",
    }
    before = {"zsh": "compdef() { }; compadd() { print -r -- ${@:#-*} }; "}.get(shell, "")
    text = f"{before}source {tmp_path}/script; {ask[shell]}"
    path = f"{tmp_path}:/usr/bin:/bin"
    done = subprocess.run(
        [program, "-c", text], capture_output=True, text=True, check=True, env={"PATH": path, "HOME": "/"}
    )
    expected = {"bash": "softmax |", "zsh": "spfl.head-mode=softmax", "fish": "spfl.head-mode=softmax"}
    assert expected[shell] in done.stdout.splitlines()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["rum"], "unknown command 'rum'. Did you mean 'run'? Choices: book, chaos, "),
        (["deploy", "upp"], "fedsim deploy: error: unknown verb 'upp'. Did you mean 'up'?"),
        (["run", "--engine", "inlin"], "unknown --engine 'inlin'. Did you mean 'inline'?"),
        (["run", "--sett=x"], "fedsim run: error: unknown option '--sett'. Did you mean '--set'?"),
        (["resume", "a", "b"], "unexpected argument 'b'"),
    ],
)
def test_a_slip_is_answered_with_what_was_meant(
    words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert told in capsys.readouterr().err


def test_the_output_may_be_cut() -> None:
    code = "from fedsim.cli import exit_code; exit(exit_code(lambda: print('line\\n' * 100_000) or 0))"
    command = f'{sys.executable} -c "{code}" | head -1; echo ${{PIPESTATUS[0]}}'
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("line\n141\n", "")
