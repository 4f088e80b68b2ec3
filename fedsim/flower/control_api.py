"""A client of the SuperLink's Control API: nodes and their keys, runs and their output.

Private parts of Flower: the HTTP client that the `flwr` command uses, its protobuf messages and its errors. `flwr` itself
needs a connection profile in `$FLWR_HOME` and prints for people; here every answer is data.
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import httpx
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.serialization import load_ssh_public_key
from flwr.common.serde import fab_to_proto, user_config_to_proto
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
from flwr.supercore.protobuf.client import ProtobufCall, ProtobufRequestContext

from fedsim.config import RunConfig
from fedsim.errors import FedsimError
from fedsim.flower.app_bundle import app_bundle, run_settings


class SuperLinkUnreachable(FedsimError):
    """The SuperLink does not answer; it may be starting, restarting or stopped."""


class SuperLinkRefused(FedsimError):
    """The SuperLink answered with an error."""


class _Bearer:
    """Adds a token to every request."""

    def __init__(self, token: str) -> None:
        self._token = token

    def intercept(self, context: ProtobufRequestContext, call_next: ProtobufCall) -> httpx.Response:
        if self._token:
            context.request.headers["Authorization"] = f"Bearer {self._token}"
        return call_next(context)


class ControlClient:
    """Calls raise SuperLinkUnreachable or SuperLinkRefused."""

    def __init__(self, address: str, ca: str, token: str = "") -> None:
        """`address` is HOST:PORT of the Control API, `ca` the file of the CA certificate that vouches for it, `token` what
        says who asks."""
        self._client = ControlHttpClient.from_server_address(
            address,
            insecure=False,
            root_certificates=ca,
            interceptors=[RuntimeVersionHttpInterceptor(component_name="fedsim"), _Bearer(token)],
        )

    def close(self) -> None:
        self._client.close()

    def nodes(self) -> list[dict[str, Any]]:
        """The registered nodes: name, id, status, online-since and last-seen (Unix time or None), and key (PEM)."""
        with _errors():
            found = self._client.ListNodes(ListNodesRequest()).nodes_info
        return [_node(node) for node in found if node.status != "unregistered"]

    def register(self, key: bytes, name: str) -> None:
        """Registers a node's public key (PEM)."""
        with _errors():
            self._client.RegisterNode(RegisterNodeRequest(public_key=key, name=name))

    def unregister(self, node_id: int) -> None:
        with _errors():
            self._client.UnregisterNode(UnregisterNodeRequest(node_id=node_id))

    def runs(self) -> list[dict[str, Any]]:
        """Every run, oldest first: id, status, started and finished (Unix time or None), bytes-in, bytes-out."""
        with _errors():
            found = self._client.ListRuns(ListRunsRequest()).run_dict.values()
        return [_run(run) for run in sorted(found, key=lambda run: str(run.pending_at))]

    def status(self, run_id: int) -> str:
        """The status of a run: "running", "finished:completed", "finished:failed:REASON", ..."""
        with _errors():
            return _status(self._client.ListRuns(ListRunsRequest(run_id=run_id)).run_dict[run_id])

    def start_run(self, request: bytes) -> int:
        """Starts a run, as `start_request` asks for it; returns the run id."""
        with _errors():
            return int(self._client.StartRun(StartRunRequest.FromString(request)).run_id)

    def stop_run(self, run_id: int) -> None:
        with _errors():
            self._client.StopRun(StopRunRequest(run_id=run_id))

    def stream_logs(self, run_id: int, after: float) -> Iterator[tuple[float, str]]:
        """(timestamp, text) of what the ServerApp printed after this timestamp, while the run goes on."""
        with _errors():
            for part in self._client.StreamLogs(StreamLogsRequest(run_id=run_id, after_timestamp=after)):
                yield part.latest_timestamp, part.log_output


def start_request(config: RunConfig) -> bytes:
    """The request to run a configuration: fedsim's constant bundle, and the configuration beside it."""
    bundle, settings = app_bundle(), run_settings(config)
    fab = Fab(hashlib.sha256(bundle).hexdigest(), bundle, {})
    request = StartRunRequest(fab=fab_to_proto(fab), override_config=user_config_to_proto({**settings}))
    return bytes(request.SerializeToString(deterministic=True))


def to_pem(openssh: str) -> bytes:
    """A node's public key in OpenSSH format -> as the SuperLink stores it."""
    key = load_ssh_public_key(openssh.encode())
    if not isinstance(key, EllipticCurvePublicKey):
        raise FedsimError("the public key of a node must be of an elliptic curve")
    return public_key_to_bytes(key)


@contextmanager
def _errors() -> Iterator[None]:
    try:
        yield
    except httpx.TransportError as error:
        raise SuperLinkUnreachable(str(error)) from error
    except httpx.HTTPStatusError as error:
        raise SuperLinkRefused(_detail(error.response) or str(error)) from error
    except (FlowerError, httpx.HTTPError) as error:
        raise SuperLinkRefused(str(error)) from error


def _detail(response: httpx.Response) -> str:
    """The reason in an error of the SuperLink; empty if it gives none."""
    try:
        return str(response.json()["detail"])
    except (ValueError, KeyError, TypeError):
        return ""


def _node(node: Any) -> dict[str, Any]:
    return {
        "name": node.name,
        "id": str(node.node_id),
        "status": node.status,
        "online-since": _seconds(node.last_activated_at) if node.status == "online" else None,
        "last-seen": node.online_until - 2 * node.heartbeat_interval if node.online_until else None,
        "key": node.public_key,
    }


def _run(run: Any) -> dict[str, Any]:
    return {
        "id": str(run.run_id),
        "status": _status(run),
        "started": _seconds(run.running_at),
        "finished": _seconds(run.finished_at),
        "bytes-in": run.bytes_recv,
        "bytes-out": run.bytes_sent,
    }


def _status(run: Any) -> str:
    found = run.status
    return ":".join(part for part in (found.status, found.sub_status, found.details) if part)


def _seconds(moment: str) -> float | None:
    return datetime.fromisoformat(moment).timestamp() if moment else None
