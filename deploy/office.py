"""The server's own desk: talks to the SuperLink on its loopback, so that the control port is open to nobody else.

    python -m deploy.office VERB [ARGUMENT...]      in the server's home folder; answers in JSON, one value a line

ready       waits until the SuperLink answers
register    public keys by node name (JSON, standard input): registers new ones, strikes out those that are not listed
nodes       who is registered, and since when online
runs        every run: status, times, traffic
start       a Flower app bundle (standard input) -> the number of its run
follow RUN  the ServerApp's output while it runs, a line each; at last its status
stop RUN
"""

import hashlib
import json
import sys
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
from cryptography.hazmat.primitives.serialization import load_ssh_public_key
from flwr.common.serde import fab_to_proto
from flwr.proto.control_pb2 import (
    ListNodesRequest,
    ListRunsRequest,
    RegisterNodeRequest,
    StartRunRequest,
    StopRunRequest,
    StreamLogsRequest,
    UnregisterNodeRequest,
)
from flwr.supercore.control import ControlHttpClient
from flwr.supercore.error import FlowerError
from flwr.supercore.fab import Fab
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
from flwr.supercore.primitives.asymmetric import public_key_to_bytes

from fedsim.errors import FedsimError

PATIENCE = 120.0  # seconds for the SuperLink to come up, or back
Desk = Callable[[ControlHttpClient, list[str]], Iterator[Any]]


def ready(link: ControlHttpClient, arguments: list[str]) -> Iterator[Any]:
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            link.ListNodes(ListNodesRequest())
            yield "ready"
            return
        except httpx.TransportError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def register(link: ControlHttpClient, arguments: list[str]) -> Iterator[Any]:
    wanted = {_key_bytes(text): name for name, text in json.load(sys.stdin).items()}
    known = {node.public_key: node for node in _registered(link)}
    for key, node in known.items():
        if key not in wanted:
            link.UnregisterNode(UnregisterNodeRequest(node_id=node.node_id))
            yield {"struck": node.name}
    for key, name in wanted.items():
        if key not in known:
            link.RegisterNode(RegisterNodeRequest(public_key=key, name=name))
            yield {"registered": name}


def nodes(link: ControlHttpClient, arguments: list[str]) -> Iterator[Any]:
    for node in _registered(link):
        yield {
            "name": node.name,
            "id": str(node.node_id),
            "status": node.status,
            "online-since": _seconds(node.last_activated_at) if node.status == "online" else None,
            "last-seen": node.online_until - 2 * node.heartbeat_interval if node.online_until else None,
        }


def runs(link: ControlHttpClient, arguments: list[str]) -> Iterator[Any]:
    found = link.ListRuns(ListRunsRequest()).run_dict.values()
    for run in sorted(found, key=lambda r: str(r.pending_at)):
        yield {
            "id": str(run.run_id),
            "status": _status(run),
            "started": _seconds(run.running_at),
            "finished": _seconds(run.finished_at),
            "bytes-in": run.bytes_recv,
            "bytes-out": run.bytes_sent,
        }


def start(link: ControlHttpClient, arguments: list[str]) -> Iterator[Any]:
    bundle = sys.stdin.buffer.read()
    fab = Fab(hashlib.sha256(bundle).hexdigest(), bundle, {})
    yield str(link.StartRun(StartRunRequest(fab=fab_to_proto(fab))).run_id)


def follow(link: ControlHttpClient, arguments: list[str]) -> Iterator[Any]:
    """A SuperLink that goes away for a while is waited for: the run may go on meanwhile."""
    number, after, contact = int(arguments[0]), 0.0, time.monotonic()
    while True:
        try:
            for part in link.StreamLogs(StreamLogsRequest(run_id=number, after_timestamp=after)):
                after, contact = max(after, part.latest_timestamp), time.monotonic()
                yield from part.log_output.splitlines()
            status = _status(link.ListRuns(ListRunsRequest(run_id=number)).run_dict[number])
        except httpx.TransportError:
            if time.monotonic() - contact > PATIENCE:
                raise
            time.sleep(1)
            continue
        contact = time.monotonic()
        if status.startswith("finished"):
            yield {"status": status}
            return


def stop(link: ControlHttpClient, arguments: list[str]) -> Iterator[Any]:
    link.StopRun(StopRunRequest(run_id=int(arguments[0])))
    yield "stopped"


DESKS: dict[str, Desk] = {f.__name__: f for f in (ready, register, nodes, runs, start, follow, stop)}


def _registered(link: ControlHttpClient) -> list[Any]:
    return [node for node in link.ListNodes(ListNodesRequest()).nodes_info if node.status != "unregistered"]


def _status(run: Any) -> str:
    found = run.status
    return ":".join(part for part in (found.status, found.sub_status, found.details) if part)


def _seconds(moment: str) -> float | None:
    return datetime.fromisoformat(moment).timestamp() if moment else None


def _key_bytes(text: str) -> bytes:
    return public_key_to_bytes(load_ssh_public_key(text.encode()))  # type: ignore[arg-type]


def main(verb: str, arguments: list[str]) -> int:
    about = json.loads(Path("server.json").read_text())
    link = ControlHttpClient.from_server_address(
        f"127.0.0.1:{about['control-port']}",
        insecure=False,
        root_certificates=str(about["ca"]),
        interceptors=[RuntimeVersionHttpInterceptor(component_name="fedsim")],
    )
    try:
        for answer in DESKS[verb](link, arguments):
            print(json.dumps(answer), flush=True)
    except httpx.TransportError as error:
        print(f"the SuperLink does not answer ({error}): run `fedsim deploy up`", file=sys.stderr)
        return 1
    except (FlowerError, FedsimError, httpx.HTTPError) as error:
        print(f"the SuperLink refused to {verb}: {error}", file=sys.stderr)
        return 1
    finally:
        link.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
