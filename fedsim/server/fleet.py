"""The clients of a run. The roll call finds out which node is which client, their data, and the initial model."""

import logging
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf
from typing import Any

import numpy as np
from flwr.app import Message
from flwr.serverapp import Grid
from numpy.typing import NDArray

from fedsim import registry
from fedsim.config import RunConfig
from fedsim.errors import ConfigError, FedsimError
from fedsim.layout import Layout
from fedsim.transport import wire
from fedsim.transport.grid import exchange
from fedsim.weights import Weights, no_buffers

log = logging.getLogger(__name__)
DRAW = "model:"  # begins the name of a further draw of the initial model, as a network


@dataclass(frozen=True)
class Client:
    """A client and its data. `id` is stable across runs and engines; `node` is Flower's random id of its node."""

    id: int
    node: int
    train: int  # training samples
    test: int
    labels: tuple[int, ...]  # training samples per class; empty if there are no classes or its site does not tell them
    shape: tuple[int, ...] = ()  # of a sample; images: channels, height, width
    lasting: bool = False  # its node keeps its state on disk
    objective: str = "classification"
    model: str = ""  # the name of its model
    public: str = ""  # a fingerprint of its public data
    classes: int = 0  # known without the counts; 0: as many as `labels` has
    statistics: Mapping[str, NDArray[Any]] = field(default_factory=dict, compare=False)  # see `Algorithm.statistics`

    def differs(self, other: "Client") -> str:
        """In words, what `other` has instead of this client's data and model; empty if they are the same."""
        if (other.train, other.test) != (self.train, self.test):
            return f"{other.train} training and {other.test} test samples instead of {self.train} and {self.test}"
        if other.labels != self.labels:
            return f"labels {other.labels} instead of {self.labels}"
        if other.model != self.model:
            return f"model {other.model} instead of {self.model}"
        return "" if other.public == self.public else "other public samples"


@dataclass
class Fleet:
    """Every client of the run, the initial model, and which clients are busy or absent.

    `layout` and `initial` are those of the network that all clients have in common (`Algorithm.common`); they are empty
    if there is none, because the clients' models differ. `layouts` are those of the clients' own models.
    """

    clients: Sequence[Client]
    layout: Layout
    initial: Weights
    busy: dict[int, int] = field(default_factory=dict)  # client -> the step its training job started from
    absent_until: dict[int, float] = field(default_factory=dict)  # client -> when it is back; infinity: unknown
    layouts: Mapping[str, Layout] = field(default_factory=dict)  # by name of the model
    draws: Sequence[Weights] = ()  # further draws of the initial model, if the algorithm asks for them
    unseen: Sequence[Client] = ()  # clients that never train; they are no part of `clients`
    refused: dict[int, int] = field(default_factory=dict)  # client -> how many of its answers were refused in a row
    benched: set[int] = field(default_factory=set)  # clients that get no more jobs, because too many were

    def __post_init__(self) -> None:
        self._by_id = {c.id: c for c in self.everyone}
        self._rows = {c.id: row for row, c in enumerate(self.clients)}

    @property
    def everyone(self) -> list[Client]:
        """Those that train, and those that do not."""
        return [*self.clients, *self.unseen]

    def row(self, client: int) -> int:
        """The row of this client in tables with a row per client that trains."""
        return self._rows[client]

    def __len__(self) -> int:
        return len(self.clients)

    def __getitem__(self, client: int) -> Client:
        return self._by_id[client]

    def __contains__(self, client: int) -> bool:
        return client in self._by_id

    def rejoin(self, client: Client) -> None:
        """Makes a lost client available again, perhaps on another node."""
        self._by_id[client.id] = client
        self.clients = [self._by_id[c.id] for c in self.clients]
        self.unseen = [self._by_id[c.id] for c in self.unseen]
        self.absent_until.pop(client.id, None)

    @property
    def classes(self) -> int:
        """The number of classes the model tells apart: the most that any client has."""
        return max(max(c.classes, len(c.labels)) for c in self.everyone)

    @property
    def labels(self) -> NDArray[np.int64]:
        """Training samples per class, a row per client; raises ConfigError if a client does not tell them."""
        if hidden := [c.id for c in self.clients if len(c.labels) < c.classes]:
            raise ConfigError(f"the site of client {hidden[0]} does not tell how many samples of each class it has")
        table = np.zeros((len(self), self.classes), np.int64)
        for row, client in enumerate(self.clients):
            table[row, : len(client.labels)] = client.labels
        return table

    def layout_of(self, client: int) -> Layout:
        """The layout of a client's own model."""
        return self.layouts.get(self[client].model, self.layout)

    @property
    def features(self) -> int:
        """The width of the head's input in all clients' models; raises ConfigError if the models differ in it."""
        widths = {name: layout.features for name, layout in (self.layouts or {"": self.layout}).items()}
        if len(set(widths.values())) > 1:
            told = ", ".join(f"{name} has {width}" for name, width in widths.items())
            raise ConfigError(f"the clients exchange features, so their models must have equally many: {told}")
        return next(iter(widths.values()))

    def idle(self, now: float = 0.0) -> list[int]:
        """Clients that can get a job now."""
        away = self.absent_until
        return [
            c.id
            for c in self.clients
            if c.id not in self.busy and away.get(c.id, now) <= now and c.id not in self.benched
        ]

    def note_answer(self, client: int, refused: bool, limit: int) -> bool:
        """Counts an answer; returns whether the client is benched now, after `limit` refused ones in a row (0: never)."""
        if not refused:
            self.refused.pop(client, None)
            return False
        self.refused[client] = self.refused.get(client, 0) + 1
        if self.refused[client] != limit:
            return False
        self.benched.add(client)
        return True

    def next_return(self, now: float) -> float | None:
        """When the next absent client is back; None if no return is known."""
        if not self.absent_until:  # asked for every result
            return None
        return min((t for t in self.absent_until.values() if now < t < inf), default=None)


def roll_call(grid: Grid, config: RunConfig) -> Fleet:
    """Asks every node which client it is, and one of them for the initial model: the server itself holds no data.

    Raises FedsimError or ConfigError if nodes are missing or their answers do not fit together.
    """
    everyone = check_clients(_answers(grid, config.clients, config.timeout), config.clients)
    clients, unseen = ([c for c in everyone if (c.id in config.unseen) is out] for out in (False, True))
    classes = max(max(c.classes, len(c.labels)) for c in everyone)
    algorithm = registry.find("algorithm", config.algorithm)
    common = algorithm.common

    def ask(client: Client, network: str) -> tuple[Layout, Weights]:
        query = wire.pack_query(client.node, wire.INITIAL, config.timeout, classes, network)
        layout, initial, note = wire.unpack_initial(exchange(grid, [query], config.timeout)[client.node])
        if note:
            log.info("%s", note)
        return layout, initial

    owners = {client.model: client for client in reversed(everyone)}  # the first client with each model
    check_models(config, owners)
    found = {name: ask(client, "model") for name, client in owners.items()}
    layouts = {name: layout for name, (layout, _) in found.items()}
    if common not in (None, "model"):
        return Fleet(clients, *ask(clients[0], str(common)), layouts=layouts, unseen=unseen)
    none = Layout(()), Weights(no_buffers())
    count = algorithm.draws(config.params(config.algorithm))
    draws = [ask(clients[0], f"{DRAW}{number}")[1] for number in range(1, count)]
    start = none if len(found) > 1 else found[clients[0].model]
    return Fleet(clients, *start, layouts=layouts, draws=draws, unseen=unseen)


def check_models(config: RunConfig, models: Collection[str]) -> None:
    """Raises ConfigError if clients have these models and the algorithm needs one model for all of them."""
    if len(models) > 1 and registry.find("algorithm", config.algorithm).common == "model":
        known = [name for name in registry.names("algorithm") if registry.find("algorithm", name).common != "model"]
        raise ConfigError(
            f"the clients have the models {', '.join(sorted(models))}, but {config.algorithm} exchanges weights, which "
            f"needs one model for all. Algorithms for different models: {', '.join(known)}"
        )


def check_clients(found: Iterable[Client], expected: int) -> list[Client]:
    """The clients of a roll call in order of their ids; raises FedsimError or ConfigError if they cannot form a run."""
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
    if other := [c for c in clients if c.objective != clients[0].objective]:
        told = " but ".join(f"client {c.id} has data for {c.objective}" for c in (clients[0], other[0]))
        raise ConfigError(f"{told}: one run needs one objective")
    if other := [c for c in clients if c.public != clients[0].public]:
        raise ConfigError(f"client {other[0].id} has other public samples than client {clients[0].id}")
    if other := [c for c in clients if c.shape != clients[0].shape]:
        told = " but ".join(f"client {c.id} has samples of shape {c.shape}" for c in (clients[0], other[0]))
        raise ConfigError(f"{told}: one model needs one shape")
    return clients


def client_of(node: int, reply: Message) -> Client:
    """The client that a node's answer to the roll call describes."""
    said, statistics = wire.unpack_presence(reply)
    sizes, labels, shape = (said["train"], said["test"]), tuple(said["labels"]), tuple(said["shape"])
    rest = {name: said[name] for name in ("lasting", "objective", "model", "public", "classes")}
    return Client(said["client"], node, *sizes, labels, shape, statistics=statistics, **rest)


def _answers(grid: Grid, expected: int, timeout: float) -> list[Client]:
    """The client of every node. A node that just died still seems to be connected: without its answer the nodes are
    listed again."""
    found: dict[int, Client] = {}
    while silent := set(nodes := _await_nodes(grid, expected, timeout)) - set(found):
        queries = [wire.pack_query(node, wire.ROLL_CALL, timeout) for node in sorted(silent)]
        replies = exchange(grid, queries, timeout, all_must_answer=False)
        found |= {node: client_of(node, reply) for node, reply in replies.items()}
        if len(replies) == len(queries):
            break
    return [client for node, client in found.items() if node in nodes]


def _await_nodes(grid: Grid, expected: int, timeout: float) -> list[int]:
    """Waits until the expected number of nodes is connected; returns the nodes."""
    deadline, seen = time.monotonic() + timeout, -1
    while len(found := list(grid.get_node_ids())) < expected:
        if time.monotonic() > deadline:
            raise FedsimError(f"only {len(found)} of {expected} nodes connected within {timeout:.0f} s")
        if len(found) != seen:
            log.info("waiting for nodes: %d of %d are connected (clients=%d)", len(found), expected, expected)
            seen = len(found)
        time.sleep(0.2)
    return found
