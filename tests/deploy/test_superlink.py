"""The guard before the Control API, as a real HTTP application: who may call what, and what the log says of it."""

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from fedsim import config as configs
from fedsim.deploy import audit, machine_config, operators
from fedsim.deploy.machine_config import ServerConfig
from fedsim.deploy.operators import VERBS
from fedsim.deploy.superlink import OperatorGuard
from fedsim.flower.control_api import start_request
from fedsim.flower.superlink import ControlGate, StartRunRequest, StartRunResponse

ALL = {*operators.ADMIN, "add-app", "get-login-details", "begin-connector-oauth"}
START = start_request(configs.read(None, ["rounds=2"]))


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A server's home folder, with an operator of each role."""
    about = ServerConfig("wards", "127.0.0.1", 1, 2, Path("ca.crt"), Path("server.crt"), Path("server.key"), {})
    (tmp_path / machine_config.SERVER).write_text(machine_config.to_json(about))
    operators.create_key(tmp_path / operators.SERVICE_KEY)
    for role in operators.ROLES:
        operators.add(tmp_path, f"{role}er", role, operators.create_key(tmp_path / "keys" / f"{role}er.key"))
    (tmp_path / "operators.json").write_text(operators.to_json(operators.read(tmp_path)))
    return tmp_path


class Calls:
    """Calls of an application, each over a connection of its own."""

    def __init__(self, app: Starlette) -> None:
        self._app = app

    def request(self, verb: str, path: str, **rest: Any) -> httpx.Response:
        async def one() -> httpx.Response:
            transport = httpx.ASGITransport(self._app)
            async with httpx.AsyncClient(transport=transport, base_url="http://server") as client:
                return await client.request(verb, httpx.URL("http://server").copy_with(raw_path=path.encode()), **rest)

        return asyncio.run(one())

    def post(self, path: str, **rest: Any) -> httpx.Response:
        return self.request("POST", path, **rest)

    def get(self, path: str) -> httpx.Response:
        return self.request("GET", path)


@pytest.fixture
def server(home: Path) -> Calls:
    """Answers every call that passes the guard."""

    async def answer(request: Request) -> Response:
        assert await request.body() == START or "start-run" not in request.url.path
        return Response(StartRunResponse(run_id=7).SerializeToString())

    gate = Middleware(ControlGate, guard=OperatorGuard(home))
    return Calls(Starlette(routes=[Route("/{path:path}", answer, methods=["POST", "GET"])], middleware=[gate]))


def key(home: Path, name: str) -> Path:
    return home / operators.SERVICE_KEY if name == operators.SERVICE else home / "keys" / f"{name}.key"


def call(server: Calls, home: Path, who: str, method: str, content: bytes = b"", token: str = "") -> Any:
    verb = next((verb for verb, methods in VERBS.items() if method in methods), "nodes")
    signed = token or operators.token(key(home, who), "wards", verb, content)
    return server.post(f"/v1/control/{method}", content=content, headers={"Authorization": f"Bearer {signed}"})


def log(home: Path) -> list[dict[str, Any]]:
    audit.verify(home / audit.FILE)
    return [json.loads(line) for line in (home / audit.FILE).read_text().splitlines()]


@pytest.mark.parametrize(
    ("who", "methods"),
    [
        ("reader", operators.READ),
        ("runer", operators.RUN),
        ("adminer", operators.ADMIN),
        (operators.SERVICE, operators.OF_SERVICE),
    ],
)
def test_a_role_allows_its_methods_and_no_others(who: str, methods: tuple[str, ...], server: Calls, home: Path) -> None:
    allowed = {m for m in ALL if call(server, home, who, m, START if m == "start-run" else b"").status_code == 200}
    assert allowed == set(methods)
    refused = call(server, home, who, "add-app")
    assert refused.status_code == 403
    assert f"{who} has the role" in refused.json()["detail"]
    assert "may not add-app" in refused.json()["detail"]


def test_without_a_token_nothing_is_reached_but_the_runtime_api(server: Calls, home: Path) -> None:
    for path in (
        "/v1/control/list-runs",
        "/v1/control/get-login-details",
        "/docs",
        "/openapi.json",
        "/",
        "//v1/control/x",
    ):
        assert server.post(path).status_code == 403, path
    assert server.get("/health").status_code == 200
    assert server.post("/v1/runtime/acquire-task").status_code == 200  # which has secrets of its own
    (line,) = log(home)  # one a second at most
    assert (line["what"], line["operator"], line["call"]) == ("refused", "nobody", "list-runs")


def test_a_token_serves_its_verb_only(server: Calls, home: Path) -> None:
    token = operators.token(key(home, "adminer"), "wards", "nodes")
    assert call(server, home, "adminer", "list-nodes", token=token).status_code == 200
    refused = call(server, home, "adminer", "stop-run", token=token)
    assert refused.json()["detail"] == "the token is for `nodes`, not for stop-run"


def test_the_start_of_a_run_is_signed_with_its_content_and_happens_once(server: Calls, home: Path) -> None:
    token = operators.token(key(home, "runer"), "wards", "start", START)
    other = start_request(configs.read(None, ["rounds=3"]))
    changed = call(server, home, "runer", "start-run", other, token)
    assert changed.json()["detail"] == "the run is not the one that was signed"
    assert call(server, home, "runer", "start-run", START, token).status_code == 200
    assert call(server, home, "runer", "start-run", START, token).json()["detail"] == "the token was used before"
    asked, answered = (line for line in log(home) if line["what"].startswith("start-run"))
    assert (asked["operator"], asked["settings"]["rounds"]) == ("runer", 2)
    assert (answered["run"], answered["status"]) == ("7", 200)


def test_only_runs_of_fedsim_can_be_started(server: Calls, home: Path) -> None:
    request = StartRunRequest.FromString(START)
    request.app_spec = "@somebody/app"
    refused = call(server, home, "adminer", "start-run", request.SerializeToString(deterministic=True))
    assert refused.json()["detail"] == "runs of fedsim have no app_spec"
    request = StartRunRequest.FromString(START)
    request.fab.content = b"import os"
    refused = call(server, home, "adminer", "start-run", request.SerializeToString(deterministic=True))
    assert "the bundle cannot be read" in refused.json()["detail"]
    refused = call(server, home, "adminer", "start-run", b"\xff\xff")
    assert (refused.status_code, refused.json()["detail"]) == (403, "the request cannot be read")


def test_a_removed_operator_is_refused_at_once(server: Calls, home: Path) -> None:
    assert call(server, home, "reader", "list-runs").status_code == 200
    operators.remove(home, "reader")
    (home / "operators.json").write_text(operators.to_json(operators.read(home)))
    assert "'reader' is not an operator" in call(server, home, "reader", "list-runs").json()["detail"]


def test_a_command_that_asks_again_and_again_is_noted_once(server: Calls, home: Path) -> None:
    token = operators.token(key(home, "reader"), "wards", "nodes")
    for _ in range(5):
        call(server, home, "reader", "list-nodes", token=token)
    assert [(line["what"], line["operator"]) for line in log(home)] == [("list-nodes", "reader")]
