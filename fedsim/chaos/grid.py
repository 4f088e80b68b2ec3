"""Runs on a Flower grid in one process: messages are lost, late, doubled or damaged, clients lie, nodes come and go."""

from pathlib import Path
from random import Random

from fedsim.chaos import crashes, damage, messages
from fedsim.chaos.fault import Scenario, Trial
from fedsim.chaos.forked import Forked, NoFault
from fedsim.results.record import MANIFEST, read_manifest
from fedsim.weights import fingerprint

NODES = "nodes"  # the disks of the nodes, in the folder of a trial


class Grid(Forked):
    name, share = "grid", 5
    scenarios = (
        Scenario("rounds", ("algorithm=fedavg",)),
        Scenario("fedavg", ("algorithm=fedavg", "participation=0.75")),
        Scenario("scaffold", ("algorithm=scaffold", "partition=dirichlet")),
        Scenario("fedbuff", ("algorithm=fedbuff", "stragglers=speed")),
        Scenario("local", ("algorithm=local", "eval-every=2")),
        Scenario("fedasync", ("algorithm=fedasync", "stragglers=uniform-rounds")),
    )
    faults = (
        messages.LoseJob,
        messages.LoseReply,
        messages.TruncateReply,
        messages.DelayReply,
        messages.DoubleReply,
        messages.StrayReply,
        messages.Reorder,
        messages.Lie,
        messages.Fuzz,
        messages.FuzzRollCall,
        messages.FuzzInitialModel,
        messages.Strangers,
        messages.Restart,
        messages.Hang,
        crashes.Kill,
        crashes.LosePower,
        crashes.ClockJumps,
        damage.FlipBits,
    )

    def run(self, trial: Trial) -> int:
        from flwr.app import Context, RecordDict

        from fedsim import cli
        from fedsim import config as configs
        from fedsim.chaos.nodes import Nodes
        from fedsim.commands.resume import read_resumable
        from fedsim.engine.base import RUN_ID, SERVER_NODE
        from fedsim.logs import print_messages
        from fedsim.server.app import app

        def start() -> int:
            if (trial.run / MANIFEST).exists():
                config, _ = read_resumable(trial.run)
            else:
                config = configs.read(None, [*trial.config, f"out={trial.run}"])
            grid = Nodes(config, trial.folder / NODES)
            trial.disturb(grid)
            app(grid, Context(RUN_ID, SERVER_NODE, {}, RecordDict(), dict(config.flat())))
            return 0

        shorten_waits()
        print_messages()
        return cli.exit_code(start)

    def weights(self, run: Path) -> str:
        """Also of the models that clients keep on their nodes."""
        from safetensors.numpy import load_file

        kept = sorted((run.parent / NODES).glob(f"*/{read_manifest(run)['run']}/*.safetensors"))
        return super().weights(run) + "".join(fingerprint(load_file(path)) for path in kept)

    def failing_twin(self, scenario: Scenario, hits: list[messages.Hit]) -> Path:
        """The run in which the clients answer these jobs with an error."""
        name = "-".join("".join(map(str, hit)) for hit in hits)
        trial = Trial(0, self, NoFault(), scenario, Random(0), self.folder / "failing" / f"{scenario.name}-{name}")
        trial.disturb = messages.failing(hits)
        if not trial.run.exists():
            self._complete(trial)
        return trial.run


def shorten_waits() -> None:
    """The server looks for lost jobs and returned clients whenever it polls."""
    from fedsim.transport import liveness

    for name in ("CHECK_SECONDS", "IDLE_CHECK_SECONDS", "PATIENCE"):
        setattr(liveness, name, 0.0)
