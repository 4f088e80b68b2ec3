"""The model that a client uses: its algorithm's, or in a run with `finetune` a tuned copy of the global model.

Personal (1):  v_k = LocalSGD(w; D_k): `finetune` epochs (or steps) from the global model w, on all of it or on a part

Where models are common to a cluster, or in parts, w is the model that the client would use without `finetune`. v_k is
evaluated as `personal`. It is never sent and never trained further, so the global model is as without it. Tuning has
the optimizer of local training, without the algorithm's own loss or gradient terms.
"""

from typing import Any

import numpy as np

from fedsim.algorithm import ClientBehaviour, Task
from fedsim.clients.batch_steps import at_rate
from fedsim.config import FineTuning
from fedsim.errors import FedsimError
from fedsim.payload import ClientState, Downlink, PersonalModel
from fedsim.weights import Weights


def personal_model(
    behaviour: ClientBehaviour[Any],
    tuning: FineTuning,
    task: Task,
    down: Downlink,
    state: ClientState,
    rng: np.random.Generator,
) -> Weights | PersonalModel:
    """What is evaluated as `personal`; does not change `state`."""
    if tuning.length == 0:
        return behaviour.personalize(task, down, state, rng)
    start = behaviour.global_model(task, down)
    if start is None:
        own = behaviour.personalize(task, down, state, rng)
        if not isinstance(own, Weights):
            raise FedsimError("the model that a client uses is more than its weights, so it cannot be fine-tuned")
        start = own
    part = None if tuning.part == "all" else task.layout.part(tuning.part)
    step = at_rate(tuning.lr) if tuning.lr else None
    length = {} if tuning.length is None else {tuning.unit: tuning.length}
    return task.fit(start, rng, train=part, step=step, **length).weights  # (1)
