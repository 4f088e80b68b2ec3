"""Flower's SuperLink as a function, with a guard before its Control API.

Flower 1.39 lets every account of the machine use the Control API: its own authentication (OIDC) and event logs are plug-ins
of another distribution. Private parts of Flower: the entry point of `flower-superlink`; the hook by which extensions add
middleware before everything else; the paths of its HTTP APIs; the messages that start, stop and register.
"""

from typing import Any, Protocol

from flwr.common.serde import user_config_from_proto
from flwr.proto.control_pb2 import (
    RegisterNodeRequest,
    StartRunRequest,
    StartRunResponse,
    StopRunRequest,
    UnregisterNodeRequest,
)
from flwr.supercore.error import ApiErrorCode
from flwr.superlink import extensions
from flwr.superlink.cli.flower_superlink import flower_superlink
from google.protobuf.message import DecodeError
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp

from fedsim.config import flat_run_config
from fedsim.errors import FedsimError
from fedsim.flower.app_bundle import bundle_hash, check_bundle

CONTROL = "/v1/control/"
OPEN = ("/v1/runtime/", "/health")  # the Runtime API has secrets of its own: see `--superexec-auth-secret-file`
FORBIDDEN = 403


class Guard(Protocol):
    """Decides about each call; `method` is its name in the API: "start-run". Refusals are FedsimErrors."""

    def identify(self, method: str, token: str) -> Any:
        """Who makes the call, by the token it brings; before its content is read."""

    def admit(self, caller: Any, method: str, content: bytes) -> None:
        """Returns if this call is allowed."""

    def answered(self, caller: Any, method: str, status: int, content: bytes) -> None:
        """The SuperLink's answer: HTTP status, and the content of an answer to "start-run"."""


class ControlGate(BaseHTTPMiddleware):
    """Asks the guard about every call that is not to the Runtime API."""

    def __init__(self, app: ASGIApp, guard: Guard) -> None:
        super().__init__(app)
        self._guard = guard

    async def dispatch(self, request: Request, call_next: RequestResponseEndpoint) -> Response:
        path = str(request.scope["path"])
        if path.startswith(OPEN):
            return await call_next(request)
        method, token = path.removeprefix(CONTROL), request.headers.get("authorization", "").removeprefix("Bearer ")
        try:
            caller = await run_in_threadpool(self._guard.identify, method, token)
            await run_in_threadpool(self._guard.admit, caller, method, await request.body())
        except FedsimError as refusal:
            told = {"code": int(ApiErrorCode.NO_PERMISSIONS), "detail": str(refusal)}
            return JSONResponse(told, FORBIDDEN)
        response = await call_next(request)
        content = b""
        if method == "start-run":
            content = b"".join([chunk async for chunk in response.body_iterator])  # type: ignore[attr-defined]
            response = Response(content, response.status_code, dict(response.headers))
        await run_in_threadpool(self._guard.answered, caller, method, response.status_code, content)
        return response


def run_superlink(guard: Guard) -> None:
    """Runs the SuperLink with the options of `sys.argv`, those of `flower-superlink`."""
    vars(extensions)["get_middleware"] = lambda: (Middleware(ControlGate, guard=guard),)
    flower_superlink()


def about_call(method: str, content: bytes) -> dict[str, Any]:
    """What a call asks for, to be noted; raises FedsimError for a run of anything but fedsim's constant bundle."""
    try:
        return _about(method, content)
    except DecodeError:
        raise FedsimError("the request cannot be read") from None


def _about(method: str, content: bytes) -> dict[str, Any]:
    if method == "start-run":
        request = StartRunRequest.FromString(content)
        if other := {field.name for field, _ in request.ListFields()} - {"fab", "override_config"}:
            raise FedsimError(f"runs of fedsim have no {min(other)}")
        check_bundle(request.fab.content)
        settings = flat_run_config(user_config_from_proto(request.override_config))
        return {"bundle": bundle_hash(request.fab.content), "settings": settings}
    if method == "stop-run":
        return {"run": str(StopRunRequest.FromString(content).run_id)}
    if method == "register-node":
        return {"node": RegisterNodeRequest.FromString(content).name}
    if method == "unregister-node":
        return {"node-id": str(UnregisterNodeRequest.FromString(content).node_id)}
    return {}


def started_run(content: bytes) -> str:
    """The run id in the answer to "start-run"."""
    return str(StartRunResponse.FromString(content).run_id)
