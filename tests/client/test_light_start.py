"""A client of a real federation is a new process for every message: its imports are part of every message's time."""

import subprocess
import sys
from collections.abc import Callable

import pytest

from fedsim.config import RunConfig
from fedsim.partitions.client_data import shares

HEAVY = {
    "datasets",
    "flwr_datasets",
    "matplotlib",
    "pandas",
    "PIL",
    "ray",
    "safetensors",
    "scipy",
    "sklearn",
    "sympy",
    "threadpoolctl",
    "torch",
    "torch._dynamo",
    "torchvision",
}
SCRIPT = """
import sys
from flwr.app import Context, RecordDict
from fedsim.transport import wire
from fedsim.client.app import app
from fedsim.config import parse
from fedsim.engine.inline import InlineGrid
from fedsim.payload import Downlink, Job, RunIdentity

config = parse({config!r})
loaded = [set(sys.modules)]
InlineGrid(config)

def serve(message):
    reply = app(message, Context(1, 2, {{"partition-id": 1}}, RecordDict(), dict(config.flat())))
    loaded.append(set(sys.modules))
    return reply

serve(wire.pack_query(2, wire.ROLL_CALL, 60))
_, initial, _ = wire.unpack_initial(serve(wire.pack_query(2, wire.INITIAL, 60, 10)), 10**6)
job = Job(1, 0, Downlink({{"model": initial}}), test_received=True, test_personal=True, test_local=True)
serve(wire.pack_job(job, 2, RunIdentity("ab"), 10, 60, wire.Encoder()))
for names in loaded:
    print(*sorted(names & {heavy!r}))
"""


@pytest.mark.parametrize("partition", ["dirichlet", "c-niid"])
def test_only_training_and_the_initial_model_load_torch(partition: str, small: Callable[..., RunConfig]) -> None:
    config = small(f"partition={partition}", "clients=10")
    shares(config)  # data are prepared and split once, not by every message
    script = SCRIPT.format(config=config.flat(), heavy=HEAVY)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    start, roll_call, initial, training = done.stdout.split("\n")[:4]
    assert (start, roll_call) == ("", "")
    assert initial == training == "torch"
