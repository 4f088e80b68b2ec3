"""What a client of PACFL tells of its data before the first round; it trains plainly. Needs no torch."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedsim.angles import signatures
from fedsim.partitions.client_data import ClientData
from fedsim.payload import Array


def signature_of_classes(data: ClientData, params: Any) -> Mapping[str, Array]:
    """(1) of `fedsim.strategies.pacfl`: vectors x values, those of the first class first; `params` with `p`."""
    y, one_label = data.y_train, data.classes > 0 and data.y_train.ndim == 1
    groups = [data.x_train[y == label] for label in np.unique(y)] if one_label else [data.x_train]
    found = [signatures([x], min(params.p, len(x), x[0].size))[0].T for x in groups]
    return {"signature": np.concatenate(found).astype(np.float32)}
