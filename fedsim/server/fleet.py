"""The clients of a run, what they said of themselves in the roll call, and who of them is idle, busy, absent or benched."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsim.errors import ConfigError
from fedsim.layout import Layout
from fedsim.weights import Weights

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
    name: str = ""  # that the key of its node is registered under; empty: the node has none

    def differs(self, other: "Client") -> str:
        """In words, what `other` has instead of this client's data and model; empty if they are the same."""
        if (other.train, other.test) != (self.train, self.test):
            return f"{other.train} training and {other.test} test samples instead of {self.train} and {self.test}"
        if other.labels != self.labels:
            return f"labels {other.labels} instead of {self.labels}"
        if other.model != self.model:
            return f"model {other.model} instead of {self.model}"
        if (other.shape, other.classes) != (self.shape, self.classes):
            return f"samples of shape {other.shape} and {other.classes} classes, not {self.shape} and {self.classes}"
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

    def note_refusal(self, client: int, limit: int) -> bool:
        """Counts a refused answer; returns whether the client is benched now, after `limit` of them in a row (0: never)."""
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
