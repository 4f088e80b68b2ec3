"""A table of the models that clients sent last: what FedMTL, FedFomo, APPLE and FedAMP have in common.

Server (1):  t_k <- the model in the result of client k; an absent client keeps its last one

Clients send whole models, not updates, because the table holds models whatever they were trained from. All rows are the
initial model at first. A row is a model's parameters, with its buffers behind them if the method exchanges buffers.
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np

from fedsim.algorithm import P, S, ServerStrategy
from fedsim.client_table import ClientTable, client_table
from fedsim.payload import Arrival, Spec
from fedsim.weights import Weights


class SentModels(ServerStrategy[P, S]):
    """Helpers around such a table, which is part of the subclass's state."""

    with_buffers: ClassVar[bool] = False
    _views: tuple[ClientTable, list[Weights]] | None = None

    def table(self, model: Weights, of: int = 1) -> ClientTable:
        """One of so many tables of the strategy, with this model in every row."""
        row = np.concatenate([model.parameters, model.buffers]) if self.with_buffers else model.parameters
        return client_table(self.config, row, len(self.fleet), tables=of)

    def sent(self, table: ClientTable, row: int) -> Weights:
        """The model in a row, as one object however many clients it is sent to: engines copy an object once."""
        if self._views is None or self._views[0] is not table:
            size = self.fleet.layout.size
            self._views = table, [Weights(values[:size], values[size:]) for values in table]
        return self._views[1][row]

    def store(self, table: ClientTable, arrivals: Sequence[Arrival]) -> None:
        """(1)."""
        for arrival in arrivals:
            model, row = arrival.uplink.weights["model"], table[self.fleet.row(arrival.client)]
            row[: model.parameters.size], row[model.parameters.size :] = model.parameters, model.buffers

    def expects(self) -> Mapping[str, Spec]:
        buffers = self.fleet.layout.buffer_size if self.with_buffers else 0
        return {"model": Spec((self.fleet.layout.size,), role="model", buffers=buffers)}
