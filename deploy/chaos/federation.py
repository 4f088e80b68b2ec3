"""The level `federation`: runs on a real federation of three hosts that lives on from fault to fault."""

import os
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsim.chaos import messages
from fedsim.chaos.fault import Level, Prepare, Scenario, Trial
from fedsim.chaos.grid import NODES as GRID_NODES
from fedsim.chaos.grid import Grid
from fedsim.chaos.process import Copy, command_of
from fedsim.deploy.chaos import certificates, machines
from fedsim.deploy.chaos.deployment import NODES, Deployment, children, node_name
from fedsim.deploy.chaos.network import can_make_namespaces, can_relay, network
from fedsim.errors import ConfigError, FedsimError
from fedsim.files import read_npz
from fedsim.results.events import EVENTS
from fedsim.results.record import MANIFEST, read_manifest

LONGER = ("rounds=10", "timeout=180")
LATE, SLEEPING = ("stragglers=periodic", "stragglers.count=1"), ("clock=wall",)
TOLERANCE = 1e-6  # of models: gRPC and the grid in one process may round differently
RECOVERY = 200.0  # seconds for the federation to recover by itself: Flower refuses a node for a minute after a crash
PORTS = (9092, 8000, 9094, 9095, 9094, 9095)  # every host has its own
LOOK_SECONDS = 5.0  # between two looks, each of which costs a second of processor time
ENDS = 30.0  # seconds for processes to end that belong to no agent


class Federation(Level):
    name, share, patience = "federation", 1, 400.0
    scenarios = (
        Scenario("fedavg", ("algorithm=fedavg", *LONGER)),
        Scenario("scaffold", ("algorithm=scaffold", "partition=dirichlet", *LONGER)),
        Scenario("local", ("algorithm=local", "eval-every=4", *LONGER)),
        Scenario("slow", ("algorithm=fedavg", *LONGER, "pace=synchronous", *LATE, *SLEEPING)),
    )
    faults = (*machines.FAULTS, *certificates.FAULTS)

    def __init__(self, folder: Path, deployment: Deployment | None = None) -> None:
        """`deployment`: one that is up; it is left as it is found."""
        if deployment is None and not (can_make_namespaces() and can_relay()):
            raise ConfigError("the level federation needs network namespaces and TAP devices: Linux, iproute2, root")
        super().__init__(folder)
        self.up_seconds = 0.0  # how long the command `up` takes here
        self._grid, self._stack, self._deployment = Grid(self.folder), ExitStack(), deployment

    @property
    def deployment(self) -> Deployment:
        """The federation, which is started when it is first asked for."""
        if self._deployment is None:
            place = self.folder / "federation"
            place.mkdir(parents=True)
            hosts = self._stack.enter_context(network(relayed=True))
            found = Deployment(place, hosts, PORTS, {"FEDSIM_CACHE": str(self.cache)})
            found.write_inventory()
            found.fedsim("init")
            self._stack.callback(found.attempt, "down")
            began = time.monotonic()
            found.fedsim("up")
            self.up_seconds = time.monotonic() - began
            self._deployment = found
        return self._deployment

    def start(self, trial: Trial, prepare: Prepare) -> Copy:
        words = ["--resume", str(trial.run)]
        if not (trial.run / MANIFEST).exists():
            words = ["--out", str(trial.run), *(f"--set={setting}" for setting in trial.config)]
        return self.call(trial, ["run", *words])

    def call(self, trial: Trial, words: list[str]) -> Copy:
        """`fedsim deploy` in a process of its own."""
        place = self.deployment.folder

        def run() -> int:
            from fedsim.cli import main

            os.chdir(trial.folder)
            return main(["deploy", *words, "--dir", str(place)])

        return Copy(run, trial.folder / f"output-{trial.started}.txt")

    def events(self, trial: Trial) -> Path:
        return self.deployment.server_folder(trial.run) / EVENTS

    def twin(self, scenario: Scenario) -> Path:
        """The run on a Flower grid in one process."""
        return self._grid.twin(_awake(scenario))

    def failing_twin(self, scenario: Scenario, jobs: list[messages.Hit]) -> Path:
        """The same, in which these results are missing."""
        return self._grid.failing_twin(_awake(scenario), jobs)

    def same_model(self, run: Path, other: Path) -> bool:
        return _close(*map(_model, (run, other)))

    def same_weights(self, run: Path, other: Path) -> bool:
        """Also the models that clients keep on their nodes."""
        return self.same_model(run, other) and all(
            _close(self._kept(run, client), self._kept(other, client)) for client in range(NODES)
        )

    def _kept(self, run: Path, client: int) -> Mapping[str, NDArray[Any]]:
        from safetensors.numpy import load_file

        of_grid = run.parent / GRID_NODES / str(client)
        place = of_grid if of_grid.exists() else self.deployment.home(node_name(client)) / "state"
        path = place / str(read_manifest(run)["run"]) / f"client-{client:04d}.safetensors"
        return load_file(path) if path.exists() else {}

    def leftovers(self) -> list[str]:
        """What did not recover, and processes that no agent knows. What an operator has to repair is repaired."""
        found = list[str]()
        if not self._recovers():
            found.append(f"a federation that did not recover: {self.deployment.attempt('status').stdout}")
            self.deployment.attempt("down")
            self.deployment.fedsim("up")
        deadline = time.monotonic() + ENDS
        while (strange := self._strangers()) and time.monotonic() < deadline:
            time.sleep(0.5)
        return [*found, *strange]

    def _recovers(self) -> bool:
        """Waits until every node is online, as long as the agents may need for that."""
        deadline = time.monotonic() + RECOVERY
        federation = self.deployment.federation()
        while time.monotonic() < deadline:
            try:
                online = [node["status"] for node in federation.registered_nodes().values()]
                if online == ["online"] * NODES and all(
                    run["status"].startswith("finished") for run in federation.runs()
                ):
                    return True
            except FedsimError:
                pass  # the SuperLink is not there yet
            time.sleep(1.0)
        return False

    def _strangers(self) -> list[str]:
        """Processes in the home folders besides the agents and what they started."""
        homes = {self.deployment.home(name).resolve(): name for name in self.deployment.names}
        found = {pid: name for pid, folder in _folders() if (name := homes.get(folder))}
        agents = {pid for pid in found if "fedsim.deploy.agent" in command_of(pid)}
        known = agents | {child for agent in agents for child in children(agent)}
        several = [f"{len(agents)} agents"] if len(agents) > len(homes) else []
        return [
            *several,
            *(f"a process of {name}: {command_of(pid)}" for pid, name in found.items() if pid not in known),
        ]

    def close(self) -> None:
        self._stack.close()


def _awake(scenario: Scenario) -> Scenario:
    """The scenario in virtual time: with the same models."""
    return Scenario(scenario.name, tuple(setting for setting in scenario.settings if setting not in SLEEPING))


def _folders() -> list[tuple[int, Path]]:
    """Every process, and the folder that it works in."""
    found = []
    for place in Path("/proc").glob("[0-9]*/cwd"):
        try:
            found.append((int(place.parent.name), place.readlink()))
        except OSError:
            continue  # it has ended meanwhile
    return found


def _model(run: Path) -> Mapping[str, NDArray[Any]]:
    """The server's models; some algorithms have none."""
    path = run / "model.npz"
    return read_npz(path) if path.exists() else {}


def _close(one: Mapping[str, NDArray[Any]], other: Mapping[str, NDArray[Any]]) -> bool:
    return one.keys() == other.keys() and all(
        np.allclose(one[name], other[name], rtol=0, atol=TOLERANCE) for name in one
    )
