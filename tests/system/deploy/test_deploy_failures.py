"""SuperNodes, the ServerApp, the SuperLink or the network fail in the middle of a run on a real federation."""

import os
import signal
import time
from collections.abc import Mapping
from itertools import combinations
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load_file

from fedsim import config as configs
from fedsim.chaos import oracle
from fedsim.chaos.campaign import attempt
from fedsim.chaos.fault import Fault, Trial
from fedsim.deploy.chaos.deployment import NODES, Deployment, children, eventually
from fedsim.deploy.chaos.federation import Federation
from fedsim.deploy.chaos.machines import DropConnection, KillOperator, KillSuperLink
from fedsim.files import read_npz
from fedsim.results.checkpoint import saved_steps
from fedsim.results.record import read_manifest, read_summary
from tests.replay import own_model

from ..deployment import inline

pytestmark = [pytest.mark.system, pytest.mark.timeout(900)]
SCAFFOLD = ("algorithm=scaffold", "partition=dirichlet")  # its clients keep state between rounds


def test_a_killed_supernode_is_named_and_returns_with_its_state(deployment: Deployment, tmp_path: Path) -> None:
    """Local training goes on from the client's own model, so lost state would show in the accuracy.

    Client 0 sleeps in every other round: the others do not train for nothing while the SuperNode is away.
    """
    run = tmp_path / "run"

    def accuracies() -> list[float]:
        """Of the client's own model after each of its jobs."""
        return [row["local"] for step in deployment.events(run, "step") for row in step["clients"] if row["id"] == 1]

    def missed() -> int:
        return sum(1 not in {row["id"] for row in step["clients"]} for step in deployment.events(run, "step"))

    slowly = ("clock=wall", "pace=synchronous", "stragglers=periodic", "stragglers.count=1", "stragglers.unit=6")
    settings = ("algorithm=local", "rounds=1000", "timeout=300", "checkpoint-every=100", *slowly)
    with deployment.running(run, *settings) as process:
        eventually(lambda: len(accuracies()) >= 5, 180, "five rounds")
        os.kill(deployment.process("ward-1", "supernode"), signal.SIGKILL)
        eventually(lambda: missed() >= 1, 180, "a round without it")
        before = accuracies()
        eventually(lambda: len(accuracies()) > len(before), 240, "its return")
        os.killpg(process.pid, signal.SIGINT)  # as Ctrl-C in a terminal does
    assert process.returncode == 130
    told = (tmp_path / "run.log").read_text()
    assert f"`fedsim deploy run --resume {run}` goes on with it" in told
    assert "Traceback" not in told
    assert before[0] < 0.6 < before[-1]  # otherwise the next assertion would prove nothing
    assert accuracies()[len(before)] > before[-1] - 0.1
    failures = [failure for step in deployment.events(run, "step") for failure in step["failures"]]
    assert {failure["client"] for failure in failures} == {1}
    assert "Flower error 5" in failures[0]["reason"]
    assert read_manifest(run)["config"]["algorithm"] == "local"  # the results so far were fetched
    eventually(lambda: not deployment.status()["current"], 60, "the end of the run on the server")


@pytest.mark.parametrize(
    ("fault", "scenario"), [(KillSuperLink, "scaffold"), (DropConnection, "local"), (KillOperator, "fedavg")]
)
def test_faults_of_a_campaign(fault: type[Fault], scenario: str, deployment: Deployment, tmp_path: Path) -> None:
    """The run ends as its undisturbed twin does, and nothing is left: see `fedsim chaos --level federation`."""
    level = Federation(tmp_path, deployment)
    (chosen,) = (each for each in level.scenarios if each.name == scenario)
    trial = Trial(0, level, fault(), chosen, Random(1), tmp_path / "trial")
    outcome, problems = attempt(trial)
    assert (outcome, problems) == (oracle.SAME, []), "\n".join(ended.output for ended in trial.ended)


def test_a_run_whose_server_was_killed_resumes_exactly(deployment: Deployment, tmp_path: Path) -> None:
    """SCAFFOLD's control variates live on the clients: they must be those of the checkpoint, not the newest ones."""
    run, settings = tmp_path / "run", (*SCAFFOLD, "rounds=9", "checkpoint-every=4")
    with deployment.running(run, *settings) as process:
        eventually(lambda: deployment.steps(run) >= 6, 120, "the steps after a checkpoint")
        (server_app,) = children(deployment.process("server", "superexec"))
        os.kill(server_app, signal.SIGKILL)
    assert process.returncode == 1
    assert deployment.steps(run) < 9, "it was too fast to be killed"
    told = deployment.fedsim("run", "--resume", str(run))
    manifest, summary = read_manifest(run), read_summary(run)
    assert manifest["resumed"] == [4]
    assert saved_steps(run) == [8, 9], "the one that was fetched before is gone"
    assert_same_run(run, inline(tmp_path / "inline", *settings), told)
    for client in range(NODES):
        state = deployment.home(f"ward-{client}") / "state" / manifest["run"]
        steps = sorted(path.name for path in (state / f"client-000{client}").iterdir())
        # The newest two, and what the checkpoint before the last one would begin with.
        assert steps == ["step-000003-0-0.npz", "step-000007-0-1.npz", "step-000008-0-1.npz"]
        assert equal(load_file(state / f"client-000{client}.safetensors"), read_npz(run / "model.npz"))
        accuracy = summary["accuracy"]["personal"]["per_client"][client]
        card = (state / f"client-000{client}.md").read_text()
        assert f"| accuracy on its own tests | {accuracy:.4f} |" in card


@pytest.mark.needs("network namespaces")
def test_a_host_that_was_disconnected_for_a_while_loses_no_state(deployment: Deployment, tmp_path: Path) -> None:
    """The model of `local` is never sent: it must be the result of all jobs of its client, before and after the outage."""
    run, settings = tmp_path / "run", ("algorithm=local", "rounds=12", "eval-every=6")
    try:
        with deployment.running(run, *settings, "timeout=300"):
            deployment.hosts[1].disconnect()
            time.sleep(3)  # what was under way on the other host
            before = deployment.steps(run)
            time.sleep(17)  # the outage itself
            assert deployment.steps(run) == before < 12, "nobody noticed the outage"
            deployment.hosts[1].connect()
    finally:
        deployment.hosts[1].connect()
    told = f"{(tmp_path / 'run.log').read_text()}\n{deployment.logs()}"
    assert (run / "summary.json").exists(), told
    failures = read_summary(run)["failures"]
    assert {failure["client"] for failure in failures} <= {0, 1}, told  # the nodes on that host
    config, steps = configs.read(None, [f"clients={NODES}", *settings]), deployment.events(run, "step")
    for client in range(NODES):
        counted = {number for number, step in enumerate(steps) if client in [row["id"] for row in step["clients"]]}
        missed = {failure["round"] - 1 for failure in failures if failure["client"] == client}
        state = deployment.home(f"ward-{client}") / "state" / read_manifest(run)["run"]
        model = load_file(state / f"client-000{client}.safetensors")
        # A job that was missed may have been done all the same, before its answer was given up.
        histories = [counted | set(done) for n in range(len(missed) + 1) for done in combinations(missed, n)]
        assert counted | missed == set(range(12)), told
        assert any(equal(model, own_model(config, client, sorted(jobs))) for jobs in histories), told


def assert_same_run(run: Path, reference: Path, told: str) -> None:
    ours, theirs = read_summary(run), read_summary(reference)
    assert ours["failures"] == [], told
    assert ours["accuracy"] == theirs["accuracy"], told
    assert equal(read_npz(run / "model.npz"), read_npz(reference / "model.npz")), told


def equal(one: Mapping[str, NDArray[Any]], two: Mapping[str, NDArray[Any]]) -> bool:
    return one.keys() == two.keys() and all(np.allclose(one[name], two[name], atol=1e-6) for name in one)
