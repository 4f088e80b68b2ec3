"""The Ray engine: a Flower grid on Ray actors.

One worker per core (or GPU share) keeps data and models of its clients warm. A client's state is a value in the object
store: it goes into a job and comes out of it, so any worker can serve any client, and a job whose worker died is simply sent
again with the state it had. A vector that many messages share enters the object store once.
"""

import logging
import os
import socket
import time
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
BUNDLE, BUNDLE_SECONDS = 8, 0.02  # short jobs travel together: at most so many in a call, and about so much work
Frozen = tuple[bytes, list[Bytes]]
Ticket = tuple[bytes, list[int], int | None]  # a message's head; where its buffers and its state lie in the call


class Worker:
    """Runs in an actor. Serves one or several jobs per call: a call costs Ray more than a short job costs its client."""

    def __init__(self, config: RunConfig) -> None:
        self._config = config

    def handle(self, jobs: list[Ticket], *things: Any) -> Any:
        """First the replies, each with whether its client's state changed and how long it took; then the new states."""
        replies, states = [], []
        for head, buffers, state in jobs:
            began = time.perf_counter()
            reply, after = self._serve(head, [things[i] for i in buffers], None if state is None else things[state])
            replies.append((reply, after is not None, time.perf_counter() - began))
            states.append(after)
        return replies, *states

    def _serve(self, head: bytes, buffers: list[Bytes], state: Frozen | None) -> tuple[Frozen, Frozen | None]:
        from fedsim.engine.inline import execute

        message: Message = thaw(head, buffers)
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
class _Call:
    """Flights that travel together, and the references to their clients' new states."""

    flights: list[_Flight]
    states: list[Any]


@dataclass(eq=False)
class _Seat:
    """A place for a worker; whoever dies in it is replaced."""

    actor: Any
    calls: dict[Any, _Call] = field(default_factory=dict)  # reference to the replies -> call
    queue: deque[_Flight] = field(default_factory=deque)  # messages of the clients whose data is warm here

    def room(self) -> bool:
        return len(self.calls) < (1 if any(f.tries > 1 for c in self.calls.values() for f in c.flights) else DEPTH)


class RayGrid(LocalGrid):
    """Messages queue here and go to the workers as these become free."""

    engine = "ray"

    def __init__(self, config: RunConfig, address: str | None = None) -> None:
        super().__init__(config)
        self._owns_ray = not ray.is_initialized()
        if self._owns_ray:
            connect(config, address)
        try:
            workers, cpus, gpus = _seats(config)
        except FedsimError:
            self._disconnect()
            raise
        self._factory = ray.remote(Worker).options(num_cpus=cpus, num_gpus=gpus)
        self._seats = [_Seat(self._factory.remote(config)) for _ in range(workers)]
        self._seconds: dict[str, float] = {}  # message type -> how long such a job took last
        self._states: dict[int, Any] = {}  # client -> reference to its frozen state
        self._ready: list[Message] = []

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        shared: dict[int, Any] = {}  # address of a buffer -> its reference in the object store
        ids = []
        for message in messages:
            ids.append(self._enter(message))
            head, buffers = freeze(message)
            self._home(message).queue.append(_Flight(message, head, [_share(b, shared) for b in buffers]))
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
        self._disconnect()

    def _disconnect(self) -> None:
        if self._owns_ray:
            ray.shutdown()

    def _dispatch(self) -> None:
        """Fills free seats. A client goes to the worker that has its data warm; an idle worker helps the busiest."""
        for seat in self._seats:
            while seat.room():
                source = seat if seat.queue or seat.calls else max(self._seats, key=lambda s: len(s.queue))
                if not (flights := self._bundle(seat, source.queue)):
                    break
                self._board(seat, flights)

    def _bundle(self, seat: _Seat, queue: deque[_Flight]) -> list[_Flight]:
        """The next flights of a queue. A job that has seen a worker die runs alone, and takes nobody down with it."""
        if not queue or (queue[0].tries and seat.calls):
            return []
        first = queue.popleft()
        seconds = self._seconds.get(first.message.metadata.message_type, BUNDLE_SECONDS)
        most = 1 if first.tries else min(BUNDLE, int(BUNDLE_SECONDS / max(seconds, 1e-6)), 1 + len(queue) // DEPTH)
        flights = [first]
        while len(flights) < most and queue and not queue[0].tries:
            flights.append(queue.popleft())
        return flights

    def _home(self, message: Message) -> _Seat:
        return self._seats[client_of(message) % len(self._seats)]

    def _board(self, seat: _Seat, flights: list[_Flight]) -> None:
        things: dict[int, tuple[int, Any]] = {}  # by identity: what several flights share is passed once

        def place(thing: Any) -> int:
            return things.setdefault(id(thing), (len(things), thing))[0]

        tickets = []
        for flight in flights:
            flight.tries += 1
            state = self._states.get(client_of(flight.message))
            tickets.append((flight.head, [place(b) for b in flight.buffers], None if state is None else place(state)))
        call = seat.actor.handle.options(num_returns=1 + len(flights))
        replies, *states = call.remote(tickets, *(thing for _, thing in things.values()))
        seat.calls[replies] = _Call(flights, states)

    def _collect(self, timeout: float) -> None:
        seat_of = {replies: seat for seat in self._seats for replies in seat.calls}
        if self._ready or not seat_of:
            return
        references = list(seat_of)
        first, rest = ray.wait(references, num_returns=1, timeout=timeout, fetch_local=True)
        more = ray.wait(rest, num_returns=len(rest), timeout=0)[0] if first and rest else []
        for replies in [*first, *more]:
            seat = seat_of[replies]
            if replies in seat.calls:  # not already swept away with a dead worker
                self._land(seat, replies)
        self._dispatch()

    def _land(self, seat: _Seat, replies: Any) -> None:
        try:
            landed = ray.get(replies)
        except RayTaskError as error:
            flights = seat.calls.pop(replies).flights
            for flight in flights:
                if len(flights) == 1:
                    self._fail(flight, f"{type(error).__name__}: {error}")
                else:
                    self._home(flight.message).queue.appendleft(flight)
        except RayError as error:
            self._replace(seat, error)
        else:
            call = seat.calls.pop(replies)
            for flight, after, (frozen, changed, seconds) in zip(call.flights, call.states, landed, strict=True):
                message: Message = thaw(*frozen)
                if changed:
                    self._states[client_of(flight.message)] = after
                self._seconds[flight.message.metadata.message_type] = seconds
                self._ready.append(message)

    def _replace(self, seat: _Seat, error: RayError) -> None:
        """A new worker takes the dead one's seat; its jobs are sent again, or given up after the last try."""
        lost, seat.calls = [flight for call in seat.calls.values() for flight in call.flights], {}
        seat.actor = self._factory.remote(self.config)
        for flight in lost:
            if flight.tries < TRIES:
                seat.queue.appendleft(flight)
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


def check_gpus(config: RunConfig) -> None:
    """Ray would wait forever for a GPU that is not there."""
    gpus = ray.cluster_resources().get("GPU", 0.0)  # type: ignore[no-untyped-call]
    if config.worker_gpus > gpus:
        raise FedsimError(f"worker-gpus={config.worker_gpus}, but Ray sees {gpus:g} GPUs")


def _seats(config: RunConfig) -> tuple[int, float, float]:
    """How many workers, and which share of the cores and of a GPU each asks for.

    On the wall clock every client gets a worker of its own: one that sleeps an injected delay must not keep others waiting.
    """
    resources: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
    cpus, gpus = int(resources.get("CPU", 1)), resources.get("GPU", 0.0)
    check_gpus(config)
    most = int(gpus / config.worker_gpus) if config.worker_gpus else cpus
    usual = config.clients if config.clock == "wall" else min(most, cpus)
    workers = min(config.workers or usual, config.clients)
    share = config.worker_gpus or (gpus / workers if config.device != "cpu" else 0.0)
    return workers, min(1.0, cpus / workers), share
