"""`fedsim run --engine inline` and `fedsim resume`: killed, without power, with a failing, full or damaged disk."""

from fedsim.chaos import crashes, damage
from fedsim.chaos.fault import Scenario, Trial
from fedsim.chaos.forked import Forked, command


class Inline(Forked):
    name, share = "inline", 14
    scenarios = (
        Scenario("fedavg", ("algorithm=fedavg",)),
        Scenario("scaffold", ("algorithm=scaffold", "participation=0.75", "partition=dirichlet")),
        Scenario("fedbuff", ("algorithm=fedbuff", "stragglers=speed", "eval-every=2")),
        Scenario("local", ("algorithm=local", "stragglers.dropout=0.2", "stragglers.absence=2")),
        Scenario("spfl", ("algorithm=spfl", "spfl.gamma=2")),
        Scenario("fedasync", ("algorithm=fedasync", "stragglers=uniform-rounds", "batches=in-order")),
    )
    faults = (
        crashes.Kill,
        crashes.KillSometime,
        crashes.Interrupt,
        crashes.Terminate,
        crashes.KillWhileCaching,
        crashes.LosePower,
        crashes.LosePowerWhileCaching,
        crashes.FailingDisk,
        crashes.FullDisk,
        crashes.SmallDisk,
        crashes.TwoProcesses,
        crashes.ClockJumps,
        damage.FlipBits,
        damage.Truncate,
        damage.Zero,
        damage.Remove,
        damage.FlipBitsInCache,
        damage.TruncateInCache,
        damage.ZeroInCache,
        damage.RemoveFromCache,
    )

    def run(self, trial: Trial) -> int:
        from fedsim.cli import main

        return main(command(trial, self.name))
