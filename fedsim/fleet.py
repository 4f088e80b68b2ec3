"""The roll call: who takes part, under which stable client id, with which data and model."""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf

from flwr.app import Message
from flwr.serverapp import Grid

from fedsim import wire
from fedsim.config import RunConfig
from fedsim.courier import exchange
from fedsim.errors import ConfigError, FedsimError
from fedsim.vector import Layout, Vec


@dataclass(frozen=True)
class Client:
    """What a node said of itself. `id` is stable across runs and engines; `node` is Flower's random handle."""

    id: int
    node: int
    train: int  # training samples
    test: int
    labels: tuple[int, ...]  # training samples per class
    shape: tuple[int, ...] = ()  # of a sample: channels, height, width
    lasting: bool = False  # it keeps its memory on disk

    def differs(self, other: "Client") -> str:
        """What another node that says it is this client holds instead; empty if the data are the same."""
        if (other.train, other.test) != (self.train, self.test):
            return f"{other.train} training and {other.test} test samples instead of {self.train} and {self.test}"
        return "" if other.labels == self.labels else f"labels {other.labels} instead of {self.labels}"


@dataclass
class Fleet:
    """Every client of the run, the model they start from, and who is busy or lost."""

    clients: Sequence[Client]
    layout: Layout
    theta: Vec
    buffers: Vec
    busy: dict[int, int] = field(default_factory=dict)  # client -> the step its training job started from
    away: dict[int, float] = field(default_factory=dict)  # client -> when it comes back; infinity: nobody knows

    def __post_init__(self) -> None:
        self._by_id = {c.id: c for c in self.clients}

    def __len__(self) -> int:
        return len(self.clients)

    def __getitem__(self, client: int) -> Client:
        return self._by_id[client]

    def __contains__(self, client: int) -> bool:
        return client in self._by_id

    def welcome(self, client: Client) -> None:
        """A client that was lost is back, perhaps on another node."""
        self._by_id[client.id] = client
        self.clients = [self._by_id[c.id] for c in self.clients]
        self.away.pop(client.id, None)

    @property
    def classes(self) -> int:
        return max(len(c.labels) for c in self.clients)

    def idle(self, now: float = 0.0) -> list[int]:
        return [c.id for c in self.clients if c.id not in self.busy and self.away.get(c.id, now) <= now]

    def next_return(self, now: float) -> float | None:
        """When the next absent client comes back, if one does."""
        return min((t for t in self.away.values() if now < t < inf), default=None)


def roll_call(grid: Grid, config: RunConfig) -> Fleet:
    """Ask every node who it is, and one of them for the common initial model: the server itself holds no data."""
    clients = muster(_answers(grid, config.clients, config.timeout), config.clients)
    classes, first = max(len(c.labels) for c in clients), clients[0].node
    order = wire.pack_query(first, wire.INITIAL, config.timeout, classes)
    layout, theta, buffers = wire.unpack_initial(exchange(grid, [order], config.timeout)[first])
    return Fleet(clients, layout, theta, buffers)


def muster(found: Iterable[Client], expected: int) -> list[Client]:
    """The answers of a roll call in client order, or what is wrong with them."""
    clients = sorted(found, key=lambda c: c.id)
    ids = [c.id for c in clients]
    if beyond := [i for i in ids if not 0 <= i < expected]:
        raise ConfigError(f"a node says it is client {beyond[-1]}, but clients={expected} allows 0 to {expected - 1}")
    if twice := [i for i, j in pairwise(ids) if i == j]:
        raise ConfigError(f"client id {twice[0]} is claimed by two nodes: give every node its own partition-id")
    if missing := sorted(set(range(expected)) - set(ids)):
        raise FedsimError(f"clients={expected}, but no node answered for client {', '.join(map(str, missing))}")
    if empty := [c.id for c in clients if c.train == 0]:
        raise ConfigError(f"client {empty[0]} has no training samples: use fewer clients or another partition")
    if other := [c for c in clients if c.shape != clients[0].shape]:
        told = " but ".join(f"client {c.id} has samples of shape {c.shape}" for c in (clients[0], other[0]))
        raise ConfigError(f"{told} (channels, height, width): one model needs one shape")
    return clients


def client_of(node: int, reply: Message) -> Client:
    said = wire.unpack_presence(reply)
    sizes, labels, shape = (said["train"], said["test"]), tuple(said["labels"]), tuple(said["shape"])
    return Client(said["client"], node, *sizes, labels, shape, said["lasting"])


def _answers(grid: Grid, expected: int, timeout: float) -> list[Client]:
    """What every node says of itself. One that died just now still seems to be connected: then it is asked again who is."""
    found: dict[int, Client] = {}
    while silent := set(nodes := _await_nodes(grid, expected, timeout)) - set(found):
        queries = [wire.pack_query(node, wire.ROLL_CALL, timeout) for node in sorted(silent)]
        replies = exchange(grid, queries, timeout, all_must_answer=False)
        found |= {node: client_of(node, reply) for node, reply in replies.items()}
        if len(replies) == len(queries):
            break
    return [client for node, client in found.items() if node in nodes]


def _await_nodes(grid: Grid, expected: int, timeout: float) -> list[int]:
    """Node handles, once as many as expected are connected."""
    deadline, seen = time.monotonic() + timeout, -1
    while len(found := list(grid.get_node_ids())) < expected:
        if time.monotonic() > deadline:
            raise FedsimError(f"only {len(found)} of {expected} nodes connected within {timeout:.0f} s")
        if len(found) != seen:
            print(f"waiting for nodes: {len(found)} of {expected} are connected (clients={expected})", flush=True)
            seen = len(found)
        time.sleep(0.2)
    return found
