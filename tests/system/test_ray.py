"""The Ray engine: when workers die, when jobs take too long, and where it listens."""

import logging
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import grpc
import pytest
import ray

from fedsim.config import RunConfig
from fedsim.engine import ray as engine
from fedsim.engine.launch import launch
from fedsim.engine.ray_session import ANY_CALL, check_token, connect, probe
from fedsim.errors import FedsimError
from fedsim.payload import Answer, Downlink, Failure, Job, RunIdentity, SimulatedDelay, Spec
from fedsim.results.record import read_events, read_summary
from fedsim.server.roll_call import roll_call
from fedsim.transport import wire
from fedsim.transport.answer_check import AnswerCheck
from fedsim.transport.direct import DirectMessenger

from .flower import free_port

pytestmark = pytest.mark.system


@pytest.fixture
def kill_worker(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, int], None]:
    """Lets the worker that gets a training job of this client die just before it, so many times."""

    def arrange(client: int, times: int) -> None:
        submit, left = engine.RayGrid._submit, [times]

        def kill_and_submit(self: Any, slot: Any, jobs: Any) -> None:
            if left[0] and client in [c for job in jobs if job.kind == "train" for c in job.clients]:
                left[0] -= 1
                slot.actor.__ray_call__.remote(lambda worker: os._exit(1))
            submit(self, slot, jobs)

        monkeypatch.setattr(engine.RayGrid, "_submit", kill_and_submit)

    return arrange


def run(config: RunConfig, name: str, tmp_path: Path, kind: str = "ray") -> dict[str, Any]:
    launch(config.replace(out=str(tmp_path / name)), kind)
    return read_summary(tmp_path / name)


def test_a_dead_worker_is_replaced_without_a_trace_in_the_results(
    small: Callable[..., RunConfig], kill_worker: Callable[..., None], tmp_path: Path
) -> None:
    config = small("algorithm=local", "workers=2", "rounds=3")
    kill_worker(client=2, times=2)
    survived, reference = run(config, "survived", tmp_path), run(config, "reference", tmp_path, "inline")
    assert survived["weights_sha256"] == reference["weights_sha256"]
    assert survived["accuracy"] == reference["accuracy"]
    assert survived["failures"] == []


def test_the_third_death_is_the_clients_failure_and_the_round_goes_on(
    small: Callable[..., RunConfig], kill_worker: Callable[..., None], tmp_path: Path
) -> None:
    kill_worker(client=2, times=3)
    summary = run(small("workers=2", "rounds=2"), "run", tmp_path)
    (failure,) = summary["failures"]
    assert (failure["client"], failure["round"]) == (2, 1)
    assert "died 3 times" in failure["reason"]


def test_asking_for_gpus_that_are_not_there_is_refused(small: Callable[..., RunConfig], tmp_path: Path) -> None:
    with pytest.raises(FedsimError, match=r"worker-gpus=512.0, but Ray sees"):
        run(small("worker-gpus=512"), "run", tmp_path)


def test_the_next_run_of_a_process_has_the_same_workers(
    small: Callable[..., RunConfig], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They take over what it has changed meanwhile. Workers that ran code of the user's own end with their run."""

    def processes(config: RunConfig) -> tuple[set[int], set[tuple[str, str | None]]]:
        """Of the workers of a run; where they are, and a variable of theirs."""
        grid = engine.RayGrid(config)
        try:
            ask = [slot.actor.__ray_call__.remote(lambda _: _identity()) for slot in grid._slots]
            told = ray.get(ask, timeout=120)
        finally:
            grid.close()
        return {process for process, *_ in told}, {(folder, variable) for _, folder, variable in told}

    first, _ = processes(small("workers=2"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDSIM_DATA", "/elsewhere")
    second, adopted = processes(small("workers=2", "algorithm=scaffold", "seed=2"))
    assert len(first) == 2
    assert second == first
    assert adopted == {(str(tmp_path), "/elsewhere")}
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "own_model.py").write_text("")
    own, _ = processes(small("workers=1", "model=own_model:Net"))
    after, _ = processes(small("workers=1"))
    assert not own & first
    assert not own & after


def _identity() -> tuple[int, str, str | None]:
    return os.getpid(), os.getcwd(), os.environ.get("FEDSIM_DATA")


def test_a_reply_that_nobody_waits_for_is_discarded(
    small: Callable[..., RunConfig], caplog: pytest.LogCaptureFixture
) -> None:
    """One worker answers the first message first; only the second is asked for."""
    caplog.set_level(logging.INFO, "fedsim")
    grid = engine.RayGrid(small("workers=1"))
    try:
        first, second = grid.push_messages([wire.pack_query(node, wire.ROLL_CALL, 60) for node in (2, 3)])
        (reply,) = grid.await_messages([second], 60)
        assert reply.metadata.reply_to_message_id == second
        assert "client 0: a late reply" in caplog.text
        assert grid.await_messages([first], 60) == []
    finally:
        grid.close()


def test_a_job_beyond_its_time_limit_fails_alone_and_its_client_comes_back(
    small: Callable[..., RunConfig], tmp_path: Path
) -> None:
    """Client 0 sleeps for a minute in its first job; client 2 waits behind it for the same worker."""
    trace = tmp_path / "trace.csv"
    trace.write_text("client,time,duration\n0,0,60\n0,4,0\n1,0,0\n2,0,0\n3,0,0\n")
    keys = ["clock=wall", "stragglers=trace", f"stragglers.file={trace}", "timeout=12", "workers=2", "rounds=3"]
    summary = run(small(*keys), "run", tmp_path)
    reason = "its job took longer than timeout=12 seconds"
    assert summary["failures"] == [{"client": 0, "round": 1, "reason": reason}]
    steps = [event for event in read_events(tmp_path / "run") if event["kind"] == "step"]
    assert [sorted(row["id"] for row in step["clients"]) for step in steps] == [[1, 2, 3], [0, 1, 2, 3], [0, 1, 2, 3]]


def test_a_job_beyond_its_time_limit_does_not_fail_those_in_the_same_call(small: Callable[..., RunConfig]) -> None:
    """Jobs 0 and 1 share a call because jobs of their kind were short before; job 1 sleeps for a minute."""
    config = small("workers=1", "timeout=12")
    grid = engine.RayGrid(config)
    try:
        fleet = roll_call(grid, config)
        grid._seconds[wire.TRAIN] = 0.001
        delays = [SimulatedDelay(), SimulatedDelay(60.0, 60.0), SimulatedDelay(), SimulatedDelay()]
        jobs = [Job(c, 0, Downlink({"model": fleet.initial}), simulated_delay=delay) for c, delay in enumerate(delays)]
        messenger = DirectMessenger(grid, RunIdentity("ab"), fleet.classes, sleeps=True)
        messenger.check = AnswerCheck({"delta": Spec.weights(fleet.layout)})
        messenger.send(jobs)
        first = grid._slots[0].current
        assert first is not None
        assert [job.clients for job in first.jobs] == [[0], [1]]
        results = []
        while len(results) < len(jobs):
            results += messenger.receive()
    finally:
        grid.close()
    assert [result.job.client for result in results if isinstance(result, Failure)] == [1]
    assert sorted(result.job.client for result in results if isinstance(result, Answer)) == [0, 2, 3]


def test_a_cluster_that_takes_orders_from_anybody_is_not_joined(
    small: Callable[..., RunConfig], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that answers the call of a stranger stands for a cluster without a token."""
    anybody = grpc.unary_unary_rpc_method_handler(lambda request, context: b"")
    server = grpc.server(ThreadPoolExecutor(1))
    _, service, method = ANY_CALL.split("/")
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {method: anybody}),))
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    try:
        with pytest.raises(FedsimError, match=f"the Ray cluster at {address} asks for no token"):
            connect(0, address)
        monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
        check_token(address)  # it is intended
    finally:
        server.stop(None)


@pytest.mark.usefixtures("without_ray")
def test_an_address_where_nothing_listens_is_named(small: Callable[..., RunConfig], tmp_path: Path) -> None:
    with pytest.raises(FedsimError, match=r"cannot join Ray at 127\.0\.0\.1"):
        launch(small().replace(out=str(tmp_path / "run")), "ray", f"127.0.0.1:{free_port()}")


@pytest.mark.usefixtures("without_ray")
def test_it_listens_on_loopback_alone_and_to_this_process_alone() -> None:
    import psutil  # part of Ray

    connect(workers=0)
    try:
        head = ray.get_runtime_context().gcs_address
        assert probe(head) == grpc.StatusCode.UNAUTHENTICATED  # of another account, which has no token
        with pytest.raises(FedsimError, match="asks for its token: set RAY_AUTH_MODE=token"):
            check_token(head)
        ray.get(ray.remote(lambda: None).remote())  # a worker is there, too
        here = psutil.Process()
        sockets = [c for p in (here, *here.children(recursive=True)) for c in p.net_connections("inet")]
        addresses = {ip_address(c.laddr.ip) for c in sockets if c.status == psutil.CONN_LISTEN}
    finally:
        ray.shutdown()
    assert len(addresses) > 0
    assert all((getattr(address, "ipv4_mapped", None) or address).is_loopback for address in addresses), addresses


@pytest.mark.usefixtures("without_ray")
def test_workers_share_declared_gpus(small: Callable[..., RunConfig], monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray believes what it is told: no GPU is needed to see how they are divided."""
    monkeypatch.setenv("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # without it, Ray warns
    ray.init("local", num_cpus=4, num_gpus=1, include_dashboard=False, log_to_driver=False)
    try:
        grid = engine.RayGrid(small("worker-gpus=0.5", "device=cpu", "clients=10"))
        try:
            ask = [slot.actor.__ray_call__.remote(lambda _: _assigned()) for slot in grid._slots]
            assigned = ray.get(ask, timeout=120)
            assert [share["GPU"] for share in assigned] == [0.5] * 2
            assert ray.available_resources().get("GPU", 0) == 0
        finally:
            grid.close()
    finally:
        ray.shutdown()


def _assigned() -> dict[str, float]:
    found: dict[str, float] = ray.get_runtime_context().get_assigned_resources()
    return found
