"""A round on gRPC SuperNodes without training: a federation of `fedsim deploy` with TLS and node authentication,
against Flower's SuperLink, SuperNodes and strategy loop with the same app: with its default polling, and tuned."""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from benchmarks.comparison import Comparison, Row
from benchmarks.contenders import NEVER
from benchmarks.process import QUIET
from fedsim.config import RunConfig, parse

LIMIT = 0.25  # of Flower with short polling intervals
NODES, ROUNDS, TIMEOUT = 4, 5, 300.0
BIN = Path(sys.executable).parent
TUNED = {"FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.01"}  # the shortest that Flower allows; 1 s by default
TUNED_POLLING = 0.02
FLOWER_SERVER = '''"""The same strategy in Flower's own loop."""

import time
from pathlib import Path

from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import Strategy

from fedsim.server import app as server_app
from fedsim.transport import wire
from fedsim.config import from_run_config
from fedsim.server.roll_call import roll_call

POLLING = {polling}  # seconds between two looks for replies; 0: what Flower's send_and_receive does
app = ServerApp()


def send_and_receive(grid, messages):
    ids, replies = set(grid.push_messages(messages)), []
    while ids:
        found = list(grid.pull_messages(ids))
        replies += found
        ids -= {{reply.metadata.reply_to_message_id for reply in found}}
        time.sleep(POLLING)
    return replies


@app.main()
def main(grid, context):
    if POLLING:
        grid.send_and_receive = lambda messages, **_: send_and_receive(grid, messages)
    config = from_run_config(context.run_config)
    strategy, moments = server_app.build(config), []
    strategy.configure_evaluate = lambda *_: []
    initial = wire.Encoder().record({"model": roll_call(grid, config).theta})
    Strategy.start(strategy, grid, initial, config.rounds, evaluate_fn=lambda *_: moments.append(time.time()))
    Path(config.out).write_text("\\n".join(map(str, moments)))
'''


def run() -> list[Row]:
    ours, stock, tuned = fedsim(), flower({}, 0.0), flower(TUNED, TUNED_POLLING)
    return [
        Comparison("round of 4 SuperNodes with TLS, vs Flower", ours, stock, "s"),
        Comparison("round of 4 SuperNodes with TLS, vs Flower with tuned polling", ours, tuned, "s", LIMIT),
    ]


def config(out: Path) -> RunConfig:
    keys = {"clients": NODES, "rounds": ROUNDS + 2, "local-epochs": 0, "eval-every": NEVER, "checkpoint-every": 0}
    return parse({**keys, "device": "cpu", "out": str(out)})


def fedsim() -> float:
    """Seconds of a round; the first and the last round, which also evaluate, are left out."""
    from fedsim.deploy.federation import Federation
    from fedsim.deploy.inventory import FILE, read
    from fedsim.deploy.setup import init

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
    return _per_round([float(event["seconds"]) for event in events if event["kind"] == "step"][:-1])


def flower(settings: dict[str, str], polling: float) -> float:
    """The same with Flower's own commands, started as its documentation says, with these environment variables."""
    from fedsim.config import EXTRA_KEY
    from fedsim.flower.app_bundle import app_files, run_settings

    with tempfile.TemporaryDirectory() as home, ExitStack() as stack:
        folder, port, fleet = Path(home), _port(), _port()
        connection = (
            f'[superlink]\ndefault = "bench"\n[superlink.bench]\naddress = "127.0.0.1:{port}"\ninsecure = true\n'
        )
        (folder / "config.toml").write_text(connection)
        for name, content in {
            **app_files(run_settings(config(folder / "moments"))[EXTRA_KEY]),
            "fedsim_run/server.py": FLOWER_SERVER.format(polling=polling).encode(),
        }.items():
            path = folder / "app" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        address = f"127.0.0.1:{fleet}"
        link = ("--insecure", "--port", str(port), "--fleet-api-address", address)
        stack.enter_context(_process(folder, settings, "flower-superlink", *link))
        for number in range(NODES):
            node = ["--insecure", "--superlink", address, "--port", str(_port())]
            node += ["--node-config", f"partition-id={number}"]
            stack.enter_context(_process(folder, settings, "flower-supernode", *node))
        _until(lambda: _listens(port))
        stack.enter_context(_process(folder, settings, "flwr", "run", str(folder / "app"), "bench", "--stream"))
        _until((folder / "moments").exists)
        moments = [float(line) for line in (folder / "moments").read_text().splitlines()]
    return _per_round(moments[2:])  # the first call is before the first round


def _per_round(moments: Sequence[float]) -> float:
    """Seconds per round, from the times at which rounds ended."""
    return (moments[-1] - moments[0]) / (len(moments) - 1)


@contextmanager
def _process(folder: Path, settings: dict[str, str], *command: str) -> Iterator[None]:
    quiet = {**os.environ, **QUIET, "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1"}
    environment = {**quiet, **settings, "PATH": f"{BIN}:{os.environ['PATH']}", "FLWR_HOME": str(folder)}
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
    deadline = time.monotonic() + TIMEOUT
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError(f"Flower did not finish within {TIMEOUT:.0f} s")
        time.sleep(0.2)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
