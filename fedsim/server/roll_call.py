"""The roll call: which node is which client, what data it has, and the initial model. The server itself holds no data.

Whatever nodes say is checked. A node that talks nonsense, or that claims to be a client which another node is, is left out
and named; the run begins as long as every client is there.
"""

import logging
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from flwr.app import Message
from flwr.serverapp import Grid

from fedsim import registry
from fedsim.config import RunConfig
from fedsim.errors import ConfigError, FedsimError, WireError
from fedsim.layout import Layout
from fedsim.payload import Spec
from fedsim.server.fleet import DRAW, Client, Fleet
from fedsim.transport import wire
from fedsim.transport.answer_check import LETTERS, check_array
from fedsim.transport.grid import AwaitingGrid, await_replies, call_superlink, exchange, push, time_limit
from fedsim.weights import Weights, no_buffers

log = logging.getLogger(__name__)
MOST_SAMPLES, MOST_CLASSES, MOST_AXES = 10**10, 100_000, 8  # that a client may claim to have
MOST_BYTES = 64_000_000  # of what a client tells of its data for the run's algorithm
LONGEST_LAYOUT = 50_000_000  # letters
LATE_SECONDS = 5.0  # for nodes that nobody has to wait for, once every client is there


def roll_call(grid: Grid, config: RunConfig) -> Fleet:
    """Asks every node which client it is, and one or two of them for the initial model.

    Raises FedsimError or ConfigError if clients are missing or their answers do not fit together.
    """
    if config.nodes and isinstance(grid, AwaitingGrid):
        config = config.replace(nodes="")  # its nodes have no keys
    everyone = check_clients(_answers(grid, config), config.clients)
    clients, unseen = ([c for c in everyone if (c.id in config.unseen) is out] for out in (False, True))
    classes = max(max(c.classes, len(c.labels)) for c in everyone)
    algorithm = registry.find("algorithm", config.algorithm)
    common = algorithm.common

    def ask(client: Client, network: str) -> tuple[Layout, Weights]:
        query = wire.pack_query(client.node, wire.INITIAL, config.timeout, classes, network)
        reply = exchange(grid, [query], config.timeout)[client.node]
        layout, initial, note = initial_of(client, reply)
        if note:
            log.info("%s", note)
        return layout, initial

    def ask_two(owners: list[Client], network: str) -> tuple[Layout, Weights]:
        """The first one's answer; on other grids than fedsim's own a second client must tell the same tensors."""
        found = ask(owners[0], network)
        if not isinstance(grid, AwaitingGrid) and len(owners) > 1 and ask(owners[1], network)[0] != found[0]:
            first, second = (f"client {client.id} (node {client.node})" for client in owners[:2])
            raise FedsimError(f"{first} and {second} have models of other tensors for {network}: one of them is wrong")
        return found

    owners: dict[str, list[Client]] = {}
    for client in everyone:
        owners.setdefault(client.model, []).append(client)
    check_models(config, owners)
    found = {name: ask_two(own, "model") for name, own in owners.items()}
    layouts = {name: layout for name, (layout, _) in found.items()}
    if common not in (None, "model"):
        return Fleet(clients, *ask_two(clients, str(common)), layouts=layouts, unseen=unseen)
    none = Layout(()), Weights(no_buffers())
    start = none if len(found) > 1 else found[clients[0].model]
    count = algorithm.draws(config.params(config.algorithm))
    draws = [ask(clients[0], f"{DRAW}{number}")[1] for number in range(1, count)]
    for draw in draws:
        start[0].check(draw, f"another draw of the initial model, of client {clients[0].id},")
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
    if other := [c for c in clients if c.statistics.keys() != clients[0].statistics.keys()]:
        told = " but ".join(
            f"client {c.id} tells {', '.join(c.statistics) or 'nothing'}" for c in (clients[0], other[0])
        )
        raise ConfigError(f"{told} of its data: one of them is wrong")
    if other := [c for c in clients if c.shape != clients[0].shape]:
        told = " but ".join(f"client {c.id} has samples of shape {c.shape}" for c in (clients[0], other[0]))
        raise ConfigError(f"{told}: one model needs one shape")
    return clients


def client_of(node: int, reply: Message, config: RunConfig, name: str = "") -> Client:
    """The client that a node's answer to the roll call describes; raises WireError if it cannot be. `name`: that the key of
    the node is registered under."""
    try:
        said, statistics = wire.unpack_presence(reply)
        told = registry.find("algorithm", config.algorithm).statistics
        if statistics and not told:
            raise WireError(f"{next(iter(statistics))!r} was not asked for")
        if (size := sum(array.nbytes for array in statistics.values())) > MOST_BYTES:
            raise WireError(f"{', '.join(statistics)[:LETTERS]}: {size} bytes, and {MOST_BYTES} are the most")
        for key, array in statistics.items():
            check_array(key, array, Spec(dtype=str(array.dtype)))
        client = Client(
            id=_count("client", said["client"], MOST_SAMPLES),
            node=node,
            train=_count("train", said["train"], MOST_SAMPLES),
            test=_count("test", said["test"], MOST_SAMPLES),
            labels=_counts("labels", said["labels"], MOST_CLASSES),
            shape=_counts("shape", said["shape"], MOST_AXES),
            lasting=said["lasting"] is True,
            objective=_text("objective", said["objective"]),
            model=_text("model", said["model"]),
            public=_text("public", said["public"]),
            classes=_count("classes", said["classes"], MOST_CLASSES),
            statistics=statistics,
            name=name,
        )
        registry.check("objective", client.objective)
    except (*wire.MALFORMED, ConfigError) as problem:
        what = f"{problem} is missing" if isinstance(problem, KeyError) else problem
        raise WireError(f"the answer of node {node} to the roll call was refused: {what}") from problem
    if client.id >= config.clients:
        raise WireError(
            f"node {node} says it is client {client.id}, but clients={config.clients} allows 0 to {config.clients - 1}"
        )
    if (wanted := config.node_of(client.id)) not in ("", name):
        raise WireError(
            f"node {node} ({name or 'without a registered key'}) says it is client {client.id}, which is {wanted}"
        )
    return client


def initial_of(client: Client, reply: Message) -> tuple[Layout, Weights, str]:
    """Layout and initial weights of a network, and a note for the user, as a client told them; raises FedsimError if they
    cannot be."""
    try:
        layout, initial, note = wire.unpack_initial(reply, LONGEST_LAYOUT)
        layout.check(initial, "its initial model")
        for name, values in (("model", initial.parameters), ("model buffers", initial.buffers)):
            check_array(name, values, Spec())
    except (*wire.MALFORMED, ConfigError) as problem:
        what = f"{problem} is missing" if isinstance(problem, KeyError) else problem
        raise FedsimError(
            f"the initial model of client {client.id} (node {client.node}) was refused: {what}"
        ) from problem
    return layout, initial, note


def names_of(grid: Grid, timeout: float) -> Mapping[int, str]:
    """The names that the keys of connected nodes are registered under; fedsim's own grids have none."""
    if isinstance(grid, AwaitingGrid):
        return {}
    return {node.node_id: node.name for node in call_superlink(grid.get_nodes, timeout)}


def _answers(grid: Grid, config: RunConfig) -> list[Client]:
    """The client of every node that counts. A node that just died still seems to be connected: without its answer the nodes
    are listed again. Raises FedsimError if nodes that cannot take part leave too few."""
    found: dict[int, Client] = {}  # by node
    refused: dict[int, str] = {}  # node -> why it cannot take part
    while True:
        nodes = _await_nodes(grid, config.clients, config.timeout)
        names = names_of(grid, config.timeout)
        found = {node: client for node, client in found.items() if node in nodes}
        gone = _ask(grid, config, sorted(nodes), names, found, refused)
        chosen = {client.id: client for client in reversed(list(found.values()))}  # the first one that answered
        problems = [refused[node] for node in sorted(set(refused) & set(nodes))]
        complete = len(chosen) == config.clients
        if complete or not gone:
            break
    twice = [c for c in found.values() if chosen[c.id] is not c]
    problems += [
        f"client id {c.id} is claimed by two nodes ({chosen[c.id].node} and {c.node}): give every node its own partition-id"
        for c in twice
    ]
    if not complete and problems:
        more = [f"and {len(problems) - 3} more nodes cannot take part"] if len(problems) > 3 else []
        raise FedsimError("; ".join([*problems[:3], *more]))
    for problem in problems:
        log.warning("%s. It is left out", problem)
    return list(chosen.values())


def _ask(
    grid: Grid,
    config: RunConfig,
    nodes: Sequence[int],
    names: Mapping[int, str],
    found: dict[int, Client],
    refused: dict[int, str],
) -> bool:
    """Asks those of these nodes who they are that did not answer before; returns whether one of them is gone.

    It ends when all have answered, a moment after every client is there, or when too few nodes are left for that.
    """
    asked = [node for node in nodes if node not in found and node not in refused]
    queries = [wire.pack_query(node, wire.ROLL_CALL, config.timeout) for node in asked]
    waiting = dict(zip(push(grid, queries, config.timeout), asked, strict=True)) if queries else {}
    gone, deadline = waiting.pop("", None) is not None, time.monotonic() + time_limit(grid, config.timeout)
    while waiting and len(set(nodes) - set(refused)) >= config.clients:
        complete = len({client.id for client in found.values()}) == config.clients
        deadline = min(deadline, time.monotonic() + LATE_SECONDS) if complete else deadline
        if (left := deadline - time.monotonic()) <= 0:
            if complete:
                break
            silent = f"{', '.join(map(str, sorted(waiting.values())))} ({len(waiting)} of {len(nodes)})"
            raise FedsimError(f"nodes {silent} did not answer within {config.timeout:.0f} s")
        for reply in await_replies(grid, waiting, left, config.timeout)[0]:
            node = waiting.pop(reply.metadata.reply_to_message_id)
            if wire.is_offline(reply):
                gone = True
            elif reply.has_error():
                refused[node] = f"node {node} answered with an error: {wire.reason_of(reply)}"
            else:
                try:
                    found[node] = client_of(node, reply, config, names.get(node, ""))
                except WireError as problem:
                    refused[node] = str(problem)
    return gone


def _count(key: str, value: Any, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        raise WireError(f"{key} is {str(value)[:LETTERS]}, which must be an integer from 0 to {most}")
    return value


def _counts(key: str, value: Any, most: int) -> tuple[int, ...]:
    if not isinstance(value, list) or len(value) > most:
        raise WireError(f"{key} must be a list of at most {most} integers")
    return tuple(_count(key, number, MOST_SAMPLES) for number in value)


def _text(key: str, value: Any) -> str:
    if not isinstance(value, str) or len(value) > LETTERS:
        raise WireError(f"{key} must be a text of at most {LETTERS} letters")
    return value


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
