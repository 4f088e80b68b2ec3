"""The configuration keys of a run as keyword arguments: editors complete and check them. A test keeps them equal to
`fedsim.config.RunConfig`."""

from typing import Literal, TypedDict


class Settings(TypedDict, total=False):
    """See docs/configuration.md for what each key means."""

    inputs: Literal["normalized", "raw"]
    clients: int
    rounds: int
    seed: int
    participation: float
    local_epochs: int
    local_steps: int
    batch_size: int
    batches: Literal["shuffled", "in-order"]
    optimizer: Literal["sgd", "adam", "adamw"]
    lr: float
    lr_schedule: str
    momentum: float
    weight_decay: float
    eval_every: int
    eval_training: bool
    target: float
    validation: float
    public: int
    pace: str
    stragglers: str
    aggregator: str
    server_optimizer: str
    finetune: str | int
    attack: str
    filters: str
    clock: Literal["virtual", "wall"]
    device: str
    data_root: str
    workers: int
    worker_gpus: float
    vectorize: str | int
    precision: Literal["float32", "bf16"]
    compile: bool
    threads: int
    server_memory: int
    checkpoint_every: int
    timeout: float
    refusals: int
    nodes: str
    metrics: int
    log: str | list[str]
    log_format: Literal["text", "json"]
