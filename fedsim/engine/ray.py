"""The Ray engine: a Flower grid on Ray actors.

One worker per core (or GPU share) keeps data and models of its clients warm. A client's state is a value in the object
store: it goes into a job and comes out of it, so any worker can serve any client, and a job whose worker died is simply sent
again with the state it had. A vector that many messages share enters the object store once.
"""

import logging
import os
import socket
from collections import deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

import ray
from flwr.app import Error, Message, RecordDict
from ray.exceptions import RayError, RayTaskError

from fedsim import wire
from fedsim.config import RunConfig
from fedsim.engine.freeze import Bytes, freeze, thaw
from fedsim.engine.local import LocalGrid, client_of, state_of
from fedsim.errors import FedsimError
from fedsim.payload import Memory

TRIES = 3  # a job is sent again twice before it counts as its client's failure
DEPTH = 2  # jobs per worker, so that the next one is there when a worker becomes free
SHARED = 64 * 1024  # bytes from which a buffer goes into the object store by itself
CRASHED = 8  # Flower's error code for a ClientApp that died

Frozen = tuple[bytes, list[Bytes]]


class Worker:
    """Runs in an actor. Returns the reply, and the client's new state or None if it did not change."""

    def __init__(self, config: RunConfig) -> None:
        self._config = config

    def handle(self, head: bytes, state: Frozen | None, *buffers: Bytes) -> tuple[Frozen, Frozen | None]:
        from fedsim.engine.inline import execute

        message: Message = thaw(head, list(buffers))
        before = thaw(*state) if state else {}
        after = RecordDict(dict(before))
        reply = execute(message, self._config, client_of(message), after)
        changed = reply.has_content() and any(after[key] is not before.get(key) for key in after)
        return freeze(reply), freeze(after) if changed else None


@dataclass(eq=False)
class _Flight:
    """A message on its way to a worker and back."""

    message: Message
    head: bytes
    buffers: list[Any]  # arrays, or references to shared ones
    tries: int = 0


@dataclass(eq=False)
class _Seat:
    """A place for a worker; whoever dies in it is replaced."""

    actor: Any
    flights: dict[Any, tuple[_Flight, Any]] = field(default_factory=dict)  # reply reference -> flight, state reference

    def takes(self, flight: _Flight) -> bool:
        """A job that has seen a worker die runs alone, so that it cannot take another one down with it."""
        alone = flight.tries > 0 or any(f.tries > 1 for f, _ in self.flights.values())
        return len(self.flights) < (1 if alone else DEPTH)


class RayGrid(LocalGrid):
    """Messages queue here and go to the workers as these become free."""

    engine = "ray"

    def __init__(self, config: RunConfig, address: str | None = None) -> None:
        super().__init__(config)
        self._owns_ray = not ray.is_initialized()
        if self._owns_ray:
            connect(config, address)
        workers, gpus = _seats(config)
        self._factory = ray.remote(Worker).options(num_cpus=1, num_gpus=gpus)
        self._seats = [_Seat(self._factory.remote(config)) for _ in range(workers)]
        self._queue: deque[_Flight] = deque()
        self._states: dict[int, Any] = {}  # client -> reference to its frozen state
        self._ready: list[Message] = []

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        shared: dict[int, Any] = {}  # address of a buffer -> its reference in the object store
        ids = []
        for message in messages:
            ids.append(self._enter(message))
            head, buffers = freeze(message)
            self._queue.append(_Flight(message, head, [_share(b, shared) for b in buffers]))
        self._dispatch()
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        return self.await_messages(list(message_ids), 0.0)

    def await_messages(self, message_ids: Collection[str], timeout: float) -> list[Message]:
        self._collect(timeout)
        found = [m for m in self._ready if m.metadata.reply_to_message_id in message_ids]
        self._ready = [m for m in self._ready if m.metadata.reply_to_message_id not in message_ids]
        return found

    def memories(self) -> dict[int, Memory]:
        return {client: wire.read_memory(thaw(*ray.get(ref))) for client, ref in sorted(self._states.items())}

    def restore(self, memories: dict[int, Memory]) -> None:
        self._states = {client: ray.put(freeze(state_of(memory))) for client, memory in memories.items()}

    def close(self) -> None:
        for seat in self._seats:
            ray.kill(seat.actor)
        if self._owns_ray:
            ray.shutdown()

    def _dispatch(self) -> None:
        """Fills free seats; a client goes back to the worker that has its data warm when that one is free."""
        for index, seat in enumerate(self._seats):
            while self._queue and (flight := self._next_for(index)) is not None:
                self._queue.remove(flight)
                self._board(seat, flight)

    def _next_for(self, index: int) -> _Flight | None:
        seat = self._seats[index]
        fitting = (f for f in self._queue if seat.takes(f))
        first = next(fitting, None)
        if first is None or self._home(first) == index:
            return first
        return next((f for f in fitting if self._home(f) == index), first if not seat.flights else None)

    def _home(self, flight: _Flight) -> int:
        return client_of(flight.message) % len(self._seats)

    def _board(self, seat: _Seat, flight: _Flight) -> None:
        flight.tries += 1
        state = self._states.get(client_of(flight.message))
        reply, after = seat.actor.handle.options(num_returns=2).remote(flight.head, state, *flight.buffers)
        seat.flights[reply] = flight, after

    def _collect(self, timeout: float) -> None:
        seat_of = {reply: seat for seat in self._seats for reply in seat.flights}
        if self._ready or not seat_of:
            return
        references = list(seat_of)
        first, rest = ray.wait(references, num_returns=1, timeout=timeout, fetch_local=True)
        more = ray.wait(rest, num_returns=len(rest), timeout=0)[0] if first and rest else []
        for reply in [*first, *more]:
            seat = seat_of[reply]
            if reply in seat.flights:  # not already swept away with a dead worker
                self._land(seat, reply)
        self._dispatch()

    def _land(self, seat: _Seat, reply: Any) -> None:
        try:
            message: Message = thaw(*ray.get(reply))
        except RayTaskError as error:
            flight, _ = seat.flights.pop(reply)
            self._fail(flight, f"{type(error).__name__}: {error}")
        except RayError as error:
            self._replace(seat, error)
        else:
            flight, after = seat.flights.pop(reply)
            if message.has_content() and ray.get(after) is not None:
                self._states[client_of(flight.message)] = after
            self._ready.append(message)

    def _replace(self, seat: _Seat, error: RayError) -> None:
        """A new worker takes the dead one's seat; its jobs are sent again, or given up after the last try."""
        lost, seat.flights = [flight for flight, _ in seat.flights.values()], {}
        seat.actor = self._factory.remote(self.config)
        for flight in lost:
            if flight.tries < TRIES:
                self._queue.appendleft(flight)
            else:
                self._fail(flight, f"its worker died {TRIES} times: {type(error).__name__}")

    def _fail(self, flight: _Flight, reason: str) -> None:
        self._ready.append(Message(Error(CRASHED, reason), reply_to=flight.message))


def _share(buffer: Bytes, shared: dict[int, Any]) -> Any:
    """Large buffers go into the object store, each only once; small ones travel with the call."""
    if buffer.nbytes < SHARED:
        return buffer
    key = buffer.__array_interface__["data"][0]
    if key not in shared:
        shared[key] = ray.put(buffer)
    return shared[key]


def connect(config: RunConfig, address: str | None = None) -> None:
    """Starts Ray on this machine, or joins a cluster. A grid does it by itself unless somebody did before."""
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # Ray's future default; without it, it warns
    if address is not None:
        _knock(address)
    own: dict[str, Any] = {"num_cpus": max(config.workers, os.cpu_count() or 1), "include_dashboard": False}
    try:
        ray.init(address or "local", log_to_driver=False, logging_level=logging.ERROR, **({} if address else own))
    except (RayError, ConnectionError, ValueError, RuntimeError) as error:
        raise FedsimError(f"cannot join Ray at {address or 'this machine'}: {error}") from error


def _knock(address: str) -> None:
    """Ray itself takes minutes to find out that nobody listens at HOST:PORT."""
    host, _, port = address.rpartition(":")
    if host and "//" not in host and port.isdigit():
        try:
            socket.create_connection((host, int(port)), timeout=5).close()
        except OSError as error:
            raise FedsimError(f"cannot join Ray at {address}: {error}") from error


def _seats(config: RunConfig) -> tuple[int, float]:
    """How many workers, and which share of a GPU each asks for."""
    resources: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
    cpus, gpus = int(resources.get("CPU", 1)), resources.get("GPU", 0.0)
    if config.worker_gpus > gpus:
        raise FedsimError(f"worker-gpus={config.worker_gpus}, but Ray sees {gpus:g} GPUs")
    most = int(gpus / config.worker_gpus) if config.worker_gpus else cpus
    workers = min(config.workers or min(most, cpus), config.clients)
    share = config.worker_gpus or (gpus / workers if config.device != "cpu" else 0.0)
    return workers, share
