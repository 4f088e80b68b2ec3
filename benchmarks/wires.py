"""What a round costs on real gRPC SuperNodes without any training: a federation of `fedsim deploy` with TLS and node
authentication, against stock Flower (its SuperLink and SuperNodes, its loop, its `send_and_receive`) with the same app."""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from benchmarks.process import QUIET
from benchmarks.row import Row
from benchmarks.sides import NEVER, per_round
from fedsim.config import RunConfig, parse

NAME = "wires"
LIMIT = 1.0  # lower than stock Flower
NODES, ROUNDS, PATIENCE = 4, 5, 300.0
BIN = Path(sys.executable).parent
STOCK = '''"""The same strategy in Flower's own loop."""

import time
from pathlib import Path

from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import Strategy

from fedsim import server_app, wire
from fedsim.config import from_run_config
from fedsim.fleet import roll_call

app = ServerApp()


@app.main()
def main(grid, context):
    config = from_run_config(context.run_config)
    strategy, moments = server_app.build(config), []
    strategy.configure_evaluate = lambda *_: []
    initial = wire.Encoder().record({"model": roll_call(grid, config).theta})
    Strategy.start(strategy, grid, initial, config.rounds, evaluate_fn=lambda *_: moments.append(time.time()))
    Path(config.out).write_text("\\n".join(map(str, moments)))
'''


def run() -> list[Row]:
    ours, stock = per_round(fedsim()), per_round(flower())
    return [Row.of("round of 4 SuperNodes, vs stock Flower", [(ours, stock)], "s", LIMIT)]


def config(out: Path) -> RunConfig:
    keys = {"clients": NODES, "rounds": ROUNDS + 2, "local-epochs": 0, "eval-every": NEVER, "checkpoint-every": 0}
    return parse({**keys, "device": "cpu", "out": str(out)})


def fedsim() -> list[float]:
    """Moments at which rounds ended; the first and the last round also evaluate and are left out."""
    from deploy.federation import Federation
    from deploy.inventory import FILE, read
    from deploy.setup import init

    with tempfile.TemporaryDirectory() as home:
        folder = Path(home)
        text = f"[server]\nfleet-port = {_port()}\ncontrol-port = {_port()}\n"
        nodes = "".join(f'[[node]]\nname = "node-{i}"\nport = {_port()}\n' for i in range(NODES))
        (folder / FILE).write_text(text + nodes)
        list(init(folder, "bench", "127.0.0.1", NODES, [], False))
        federation = Federation(read(folder / FILE), lambda line: None)
        try:
            federation.up()
            federation.run(config(folder / "run"), folder / "run")
        finally:
            federation.down()
        events = [json.loads(line) for line in (folder / "run" / "events.jsonl").read_text().splitlines()]
    return [float(event["seconds"]) for event in events if event["kind"] == "step"][:-1]


def flower() -> list[float]:
    """The same with Flower's own commands, as its documentation starts them."""
    from deploy.bundle import files

    with tempfile.TemporaryDirectory() as home, ExitStack() as stack:
        folder, port, fleet = Path(home), _port(), _port()
        connection = (
            f'[superlink]\ndefault = "bench"\n[superlink.bench]\naddress = "127.0.0.1:{port}"\ninsecure = true\n'
        )
        (folder / "config.toml").write_text(connection)
        for name, content in {**files(config(folder / "moments")), "fedsim_run/server.py": STOCK.encode()}.items():
            path = folder / "app" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        address = f"127.0.0.1:{fleet}"
        link = ("--insecure", "--port", str(port), "--fleet-api-address", address)
        stack.enter_context(_process(folder, "flower-superlink", *link))
        for number in range(NODES):
            node = ["--insecure", "--superlink", address, "--port", str(_port())]
            node += ["--node-config", f"partition-id={number}"]
            stack.enter_context(_process(folder, "flower-supernode", *node))
        _until(lambda: _listens(port))
        stack.enter_context(_process(folder, "flwr", "run", str(folder / "app"), "bench", "--stream"))
        _until((folder / "moments").exists)
        moments = [float(line) for line in (folder / "moments").read_text().splitlines()]
    return moments[2:]  # the first is from before the first round


@contextmanager
def _process(folder: Path, *command: str) -> Iterator[None]:
    quiet = {**os.environ, **QUIET, "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1"}
    environment = {**quiet, "PATH": f"{BIN}:{os.environ['PATH']}", "FLWR_HOME": str(folder)}
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(
            [str(BIN / command[0]), *command[1:]], stdout=log, stderr=log, env=environment, start_new_session=True
        )
        try:
            yield
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError("stock Flower did not get there")
        time.sleep(0.2)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
