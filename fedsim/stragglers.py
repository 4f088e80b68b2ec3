"""How long each job takes in virtual time, drawn at dispatch from (seed, client, step)."""

from typing import Any, ClassVar, Protocol

from fedsim.config import NoParams, RunConfig

STRAGGLERS = {"none": "fedsim.stragglers:NoStragglers"}


class Stragglers(Protocol):
    """A delay model, made from its parameters and the run's configuration."""

    params: ClassVar[type[Any]]

    def __init__(self, params: Any, config: RunConfig) -> None: ...

    def duration(self, client: int, step: int) -> float:
        """Seconds from dispatch to arrival for this client's job of this step."""


class NoStragglers:
    """Everyone is equally fast: a job takes one virtual second."""

    params: ClassVar[type[Any]] = NoParams

    def __init__(self, params: NoParams, config: RunConfig) -> None:
        pass

    def duration(self, client: int, step: int) -> float:
        return 1.0
