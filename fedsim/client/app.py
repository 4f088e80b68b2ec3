"""The ClientApp: one handler per message type. Its imports are light: in a deployment every message is a new process."""

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import numpy as np
from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp

from fedsim import registry
from fedsim.client.jobs import (
    ClientJob,
    Stopwatch,
    behaviour_of,
    check_targets,
    data_of,
    poisons_data,
    sleep_delay,
    statistics_of,
    task_of,
)
from fedsim.client.state_store import StateStore
from fedsim.config import RunConfig, from_run_config
from fedsim.errors import ConfigError, FedsimError
from fedsim.transport import wire


def straggle(message: Message, context: Context, call_next: Callable[[Message, Context], Message]) -> Message:
    """Sleeps a delay that the server injects on the wall clock, before the message is handled."""
    sleep_delay(*wire.injected(message))
    return call_next(message, context)


app = ClientApp(mods=[straggle])
STATE_DIR = "state-dir"  # node config: where the node keeps its client's state
NODES = 128  # configurations of nodes that are kept
LABEL_COUNTS = "label-counts"  # node config: whether the server learns how many samples of each class there are
OWN = "own"  # the partition of silos that each bring their own data


@app.query()
def roll_call(message: Message, context: Context) -> Message:
    """Who this node is and what it holds. Errors of its data are raised here, under the client's name."""
    client = _client_id(context)
    try:
        config = _config(context)
        data = data_of(config, client)
        check_targets(config, data)
    except (FedsimError, OSError) as error:
        raise ConfigError(f"client {client}: {error}") from error
    tells = data.classes and _tells_label_counts(context)
    about = {
        "client": client,
        "train": len(data.y_train),
        "test": len(data.y_test),
        "labels": np.bincount(data.y_train.reshape(-1), minlength=data.classes).tolist() if tells else [],
        "classes": data.classes,
        "shape": list(data.x_train.shape[1:]),
        "lasting": STATE_DIR in context.node_config,
        "objective": data.objective,
        "model": config.model_of(client),
        "public": "" if data.public is None else data.public.fingerprint,
    }
    return wire.pack_presence(about, statistics_of(config, data), message)


@app.query("alive")
def alive(message: Message, context: Context) -> Message:
    """Answers at once. A node answers in order, so it has finished with every message that was sent before this one."""
    return Message(RecordDict(), reply_to=message)


@app.query("initial")
def initial(message: Message, context: Context) -> Message:
    """Layout and initial weights of a network, for a server that has neither data nor torch."""
    task, _ = task_of(_config(context), _client_id(context), wire.classes_of(message))
    network = task.network(wire.network_of(message))
    return wire.pack_initial(network.layout, network.initial, message, network.note)


@app.train()
def train(message: Message, context: Context) -> Message:
    """Runs a training job and keeps the client's new state, on disk if the node has a state directory."""
    work, store = _client_job(message, context)
    answer = work.run()
    if store is not None:
        store.write(work.job, work.state)
    else:
        wire.write_state(context.state, work.state)
    return wire.pack_answer(answer, message)


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    """Evaluates only; at the end of a run a node with a state directory also stores the personal model."""
    work, store = _client_job(message, context)
    answer = work.run()
    if work.job.keep and store is not None:
        work.keep(store, wire.run_of(message).id, answer.report.personal)
    return wire.pack_answer(answer, message)


def _client_job(message: Message, context: Context) -> tuple[ClientJob, StateStore | None]:
    """The job of a message, and where its client's state is kept on disk, if it is."""
    watch, job, config = Stopwatch(), wire.unpack_job(message), _config(context)
    if job.client != _client_id(context):
        raise ConfigError(f"a job for client {job.client} reached client {_client_id(context)}")
    task, warm = task_of(config, job.client, wire.classes_of(message), poisons_data(config, job))
    store = _store(message, context, job.client)
    state = wire.read_state(context.state) if store is None else store.read(job if job.train else None)
    return ClientJob(job, config, task, behaviour_of(config), state, warm, wire.roles_of(message), watch), store


def _store(message: Message, context: Context, client: int) -> StateStore | None:
    root = context.node_config.get(STATE_DIR)
    return None if root is None else StateStore(Path(str(root)), wire.run_of(message), client)


def _client_id(context: Context) -> int:
    """The stable id: the node's own configuration says it, on every engine."""
    try:
        return int(context.node_config["partition-id"])
    except KeyError:
        raise ConfigError('the node has no partition-id: start it with --node-config "partition-id=0 ..."') from None


def _tells_label_counts(context: Context) -> bool:
    """Those of its own data a node tells only if it is told to."""
    return bool(context.node_config.get(LABEL_COUNTS, "data" not in context.node_config))


def _config(context: Context) -> RunConfig:
    """The run's configuration as this node carries it out: it may bring its own data, and choose device and model."""
    config, node = from_run_config(context.run_config), context.node_config
    if not _tells_label_counts(context) and registry.find("algorithm", config.algorithm).label_counts:
        known = [name for name in registry.names("algorithm") if not registry.find("algorithm", name).label_counts]
        raise ConfigError(
            f"{config.algorithm} needs to know how many samples of each class a client has, and the client's site does "
            f"not allow it ({LABEL_COUNTS}=false). Algorithms that do not: {', '.join(known)}"
        )
    own = {key: str(node[key]) for key in ("data", "device", "model") if key in node}
    return _adapted(config, **own) if own else config


@lru_cache(maxsize=NODES)
def _adapted(config: RunConfig, data: str = "", device: str = "", model: str = "") -> RunConfig:
    if data and not Path(data).is_absolute():
        raise ConfigError(f"the node's data={data} must be an absolute path")
    if data and config.partition != OWN:
        raise ConfigError(
            f"the node brings its own data ({data}), which partition={config.partition} cannot split: "
            f"run with partition={OWN}, or start the node without data"
        )
    config = config.with_model(model) if model else config
    return config.replace(dataset=data or config.dataset, device=device or config.device)
