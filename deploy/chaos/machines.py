"""Processes and machines that die, hang or lose their network; operators who lose their connection."""

import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from fedsim.chaos import messages
from fedsim.chaos.fault import Fault, Process, Trial
from fedsim.chaos.midway import Midway, await_rounds
from fedsim.chaos.process import command_of
from fedsim.deploy.chaos.deployment import NODES, Deployment, children, node_name

if TYPE_CHECKING:
    from fedsim.deploy.chaos.federation import Federation

JOB_SECONDS = 60.0  # for a node to get a job
GROUP = "agent.group"  # of the agent: its process group


def level_of(trial: Trial) -> "Federation":
    level: Any = trial.level
    found: Federation = level
    return found


class OnFederation(Midway):
    """Something happens to a federation in the middle of a run."""

    latest = 6
    scenarios: ClassVar[tuple[str, ...]] = ("fedavg", "scaffold", "local")

    def disturb(self, trial: Trial, process: Process) -> None:
        self.strike(trial, level_of(trial).deployment)

    def strike(self, trial: Trial, deployment: Deployment) -> None:
        """Lets it happen."""

    def inject(self, trial: Trial) -> None:
        super().inject(trial)
        if self.loss:
            messages.missing_twin(trial)


class OnNode(OnFederation):
    """Something happens to one node; what it did not deliver in time is missing."""

    loss, scenarios = "the node's results while it was away", ("fedavg",)

    def strike(self, trial: Trial, deployment: Deployment) -> None:
        node = node_name(trial.rng.randrange(NODES))
        trial.notes.append(node)
        self.strike_node(trial, deployment, node)

    def strike_node(self, trial: Trial, deployment: Deployment, node: str) -> None:
        """Lets it happen to this node."""


def kill(process: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)


def kill_machine(deployment: Deployment, name: str) -> None:
    """Kills the agent of a machine and everything it started."""
    os.killpg(int((deployment.home(name) / GROUP).read_text()), signal.SIGKILL)


class KillSuperLink(OnFederation):
    name = "killed SuperLink"

    def strike(self, trial: Trial, deployment: Deployment) -> None:
        kill(deployment.process("server", "superlink"))


class KillServerApp(OnFederation):
    """SIGKILL for the process that does the run."""

    name = "killed ServerApp"

    def strike(self, trial: Trial, deployment: Deployment) -> None:
        for child in children(deployment.process("server", "superexec")):
            kill(child)


class KillSuperExec(OnFederation):
    """SIGKILL for the process that starts the ServerApp."""

    name = "killed SuperExec"

    def strike(self, trial: Trial, deployment: Deployment) -> None:
        kill(deployment.process("server", "superexec"))


class KillServer(OnFederation):
    """All processes of the server's machine are gone; the operator starts them again."""

    name = "killed server machine"

    def strike(self, trial: Trial, deployment: Deployment) -> None:
        kill_machine(deployment, "server")
        deployment.fedsim("up", "--wait", "180")


class KillServerAgent(OnFederation):
    """SIGKILL for the agent of the server: nobody watches its processes until the operator repeats `up`."""

    name = "killed agent of the server"

    def strike(self, trial: Trial, deployment: Deployment) -> None:
        kill(int((deployment.home("server") / GROUP).read_text()))

    def repair(self, trial: Trial) -> None:
        level_of(trial).deployment.fedsim("up", "--wait", "180")


class KillSuperNode(OnNode):
    name = "killed SuperNode"

    def strike_node(self, trial: Trial, deployment: Deployment, node: str) -> None:
        kill(deployment.process(node, "supernode"))


class KillExecutor(OnNode):
    """SIGKILL for the process that starts a ClientApp for each job."""

    name = "killed executor"

    def strike_node(self, trial: Trial, deployment: Deployment, node: str) -> None:
        kill(deployment.process(node, "executor"))


class KillClientApp(OnNode):
    """SIGKILL in the middle of a job."""

    name, number = "killed ClientApp", signal.SIGKILL

    def strike_node(self, trial: Trial, deployment: Deployment, node: str) -> None:
        executor = deployment.process(node, "executor")
        deadline = time.monotonic() + JOB_SECONDS
        while time.monotonic() < deadline:
            for child in children(executor):
                with suppress(ProcessLookupError):
                    os.kill(child, self.number)
                    return
            time.sleep(0.001)
        trial.notes.append("there was no job")


class KillAgent(OnNode):
    """SIGKILL for the agent of a node: nobody watches its processes until the operator repeats `up`."""

    name = "killed agent of a node"

    def strike_node(self, trial: Trial, deployment: Deployment, node: str) -> None:
        kill(int((deployment.home(node) / GROUP).read_text()))

    def repair(self, trial: Trial) -> None:
        level_of(trial).deployment.fedsim("up", "--wait", "180")


class KillNode(OnNode):
    """All processes of a node's machine are gone; the operator starts them again."""

    name = "killed node machine"

    def strike_node(self, trial: Trial, deployment: Deployment, node: str) -> None:
        kill_machine(deployment, node)
        deployment.fedsim("up", "--wait", "180")


class HangSuperNode(OnNode):
    """A SuperNode stops for a while and then goes on."""

    name = "hung SuperNode"

    def strike_node(self, trial: Trial, deployment: Deployment, node: str) -> None:
        seconds, process = trial.rng.choice((5.0, 20.0, 80.0)), deployment.process(node, "supernode")
        trial.notes.append(f"for {seconds:.0f} s")
        os.kill(process, signal.SIGSTOP)
        time.sleep(seconds)
        os.kill(process, signal.SIGCONT)


class Unplug(OnNode):
    """A host, with the server or with two nodes, has no network for a while."""

    name, weight = "unplugged host", 2

    def strike(self, trial: Trial, deployment: Deployment) -> None:
        number, seconds = trial.rng.randrange(len(deployment.hosts)), trial.rng.uniform(2, 30)
        trial.notes.append(f"host {number} for {seconds:.0f} s")
        host = deployment.hosts[number]
        host.disconnect()
        time.sleep(seconds)
        host.connect()


class LosePackets(OnNode):
    """A part of all packets is lost for the rest of the run, from or to one host."""

    name, weight = "lost packets", 2

    def strike(self, trial: Trial, deployment: Deployment) -> None:
        number, loss = trial.rng.randrange(len(deployment.hosts)), trial.rng.uniform(0.02, 0.25)
        trial.notes.append(f"{loss:.0%} of host {number}")
        behave(deployment, number, loss=loss)

    def repair(self, trial: Trial) -> None:
        for number in range(len(level_of(trial).deployment.hosts)):
            behave(level_of(trial).deployment, number)


class DelayPackets(LosePackets):
    """Packets are late and overtake each other for the rest of the run, from and to one host."""

    name, weight = "late packets", 2

    def strike(self, trial: Trial, deployment: Deployment) -> None:
        number, delay = trial.rng.randrange(len(deployment.hosts)), trial.rng.uniform(0.02, 0.3)
        trial.notes.append(f"{1000 * delay:.0f} to {2000 * delay:.0f} ms, host {number}")
        behave(deployment, number, delay=delay, jitter=delay)


def behave(deployment: Deployment, number: int, **how: float) -> None:
    cable = deployment.hosts[number].cable
    assert cable is not None
    cable.behave(**how)


class DropConnection(OnFederation):
    """The connection breaks by which the operator's command follows the run."""

    name, weight = "dropped connection of the operator", 2

    def strike(self, trial: Trial, deployment: Deployment) -> None:
        for process in followers(deployment):
            kill(process)


class KillOperator(Fault):
    """The operator's command is killed, and the operator follows the run again."""

    name, scenarios = "killed command of the operator", OnFederation.scenarios

    def inject(self, trial: Trial) -> None:
        level, process, after = level_of(trial), trial.start(), trial.rng.randint(1, OnFederation.latest)
        trial.notes.append(f"after round {after}")
        await_rounds(trial, process, after)
        process.send(signal.SIGKILL)
        trial.wait(process)
        run = level.deployment.federation().runs()[-1]["id"]
        trial.started += 1
        trial.wait(level.call(trial, ["run", "--follow", str(run), "--out", str(trial.run)]))


def followers(deployment: Deployment) -> list[int]:
    """The processes on the server by which commands follow runs."""
    home = deployment.home("server").resolve()
    found = []
    for place in Path("/proc").glob("[0-9]*/cwd"):
        with suppress(OSError):
            if place.readlink() == home and "fedsim.deploy.control" in command_of(int(place.parent.name)):
                found.append(int(place.parent.name))
    return found


FAULTS = (
    KillSuperLink,
    KillServerApp,
    KillSuperExec,
    KillServer,
    KillServerAgent,
    KillSuperNode,
    KillExecutor,
    KillClientApp,
    KillAgent,
    KillNode,
    HangSuperNode,
    Unplug,
    LosePackets,
    DelayPackets,
    DropConnection,
    KillOperator,
)
