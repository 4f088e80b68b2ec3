"""pFedHN: a hypernetwork on the server makes every client's model (Shamsian et al. 2021, arXiv 2103.04628).

Server (1):  theta_i = h(v_i; H): z_i = MLP(v_i), a ReLU between its layers; theta_i = A z_i + b
Client (2):  trains theta~_i from theta_i, sends delta_i = theta~_i - theta_i
Server (3):  H <- H + a sum_{i in S} (d theta_i / d H)^T delta_i
       (4):  v_i <- v_i + a (d theta_i / d v_i)^T delta_i, for i in S

| symbol  | meaning                                    | name here                                             |
| ------- | ------------------------------------------ | ----------------------------------------------------- |
| v_i     | embedding of client i                      | `State.embeddings[i]`                                 |
| H       | weights of the hypernetwork                | `State.layers`; the last of them is (A, b)            |
| theta_i | model of client i                          | `shared` of the downlink                              |
| a       | learning rate of the server                | `Params.lr`, with momentum, weight decay and clipping |

There is no global model. Buffers (BatchNorm) stay with the clients. `local-head` is pFedHN-PC: h makes the base, and
each client keeps a head of its own. The authors take one client per step; a round here takes the sum over its arrivals,
which moves H about as far as one step for each of them. Each client's gradient is clipped as theirs is.
Deviations: A starts at 0 and b at the common initial model, so that every client starts from it as with any other
algorithm; theirs starts at random models. The Jacobian is that of the present H, also for stale results. Embeddings of
absent clients rest; with the authors' optimizer momentum and decay go on moving them. Clients are not clipped.
A is `hidden` times as large as the model, and so is its momentum: models above 1,000,000 parameters are refused.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fedsim.algorithm import Algorithm, ServerStrategy
from fedsim.config import FractionBelowOne, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt
from fedsim.errors import ConfigError
from fedsim.layout import Part
from fedsim.payload import Array, Arrival, Downlink, Spec
from fedsim.rng import stream
from fedsim.server.fleet import Fleet
from fedsim.weights import Weights, blocks

LARGEST = 1_000_000  # parameters of a model


@dataclass(frozen=True)
class Params:
    local_head: bool = False  # pFedHN-PC: clients keep their heads
    embedding: NonNegativeInt = 0  # entries of a client's embedding v_i; 0: 1 + clients / 4
    hidden: PositiveInt = 100  # units of each layer of the hypernetwork
    layers: NonNegativeInt = 3  # hidden layers after the first one
    lr: PositiveFloat = 0.01  # learning rate of the hypernetwork
    momentum: FractionBelowOne = 0.9  # of the hypernetwork
    weight_decay: NonNegativeFloat = 0.001  # of the hypernetwork
    clip: PositiveFloat = 50.0  # largest norm of a client's gradient


@dataclass
class State:
    embeddings: Array  # clients x entries
    embedding_velocities: Array  # their momenta
    layers: list[Array]  # affine maps, outputs x (inputs + 1): the last column is the bias
    layer_velocities: list[Array]


class PFedHN(ServerStrategy[Params, State]):
    """Sends every client the model that the hypernetwork makes of its embedding, and trains both."""

    no_newcomers = "the embedding of a client is learned over many rounds"

    @property
    def private(self) -> Sequence[str]:
        """What stays with the clients."""
        return ["buffers", "head"] if self.params.local_head else ["buffers"]

    @cached_property
    def part(self) -> Part:
        """What the hypernetwork makes."""
        return ~self.fleet.layout.part(*self.private)

    def init(self, model: Weights, fleet: Fleet) -> State:
        params, start = self.params, model.only(self.part).parameters
        if start.size > LARGEST:
            raise ConfigError(
                f"pfedhn makes models of at most {LARGEST:,} parameters, not {start.size:,}: the last layer of its "
                f"hypernetwork is {params.hidden + 1} times as large. Use a smaller model or pfedhn.local-head=true"
            )
        rng, width = stream(self.config.seed, "hypernetwork"), params.embedding or 1 + len(fleet) // 4
        embeddings = rng.standard_normal((len(fleet), width)).astype(np.float32)
        inputs = [width, *[params.hidden] * params.layers]
        random = [rng.uniform(-1, 1, (params.hidden, n + 1)) / np.sqrt(n) for n in inputs]
        last = np.zeros((start.size, params.hidden + 1), np.float32)
        last[:, -1] = start
        layers = [*(layer.astype(np.float32) for layer in random), last]
        return State(embeddings, np.zeros_like(embeddings), layers, [np.zeros_like(layer) for layer in layers])

    def instruct(self, state: State, client: int, train: bool) -> Downlink:
        row = self.fleet.row(client)
        theta = state.layers[-1] @ inputs_of(state.layers, state.embeddings[row, None])[-1][0]  # (1)
        return Downlink({"shared": Weights(theta)}, numbers={"private": ",".join(self.private)}, shared=False)

    def update(self, state: State, arrivals: Sequence[Arrival]) -> State:
        rows = [self.fleet.row(a.client) for a in arrivals]
        inputs = inputs_of(state.layers, state.embeddings[rows])
        deltas = np.stack([a.uplink.weights["delta"].parameters for a in arrivals])
        moves, errors = backward(state.layers, inputs, deltas, self.params.clip)
        for layer, velocity, error, x in zip(state.layers, state.layer_velocities, errors, inputs, strict=True):
            for block in blocks(len(layer)):
                self._descend(layer[block], velocity[block], -error[:, block].T @ x)  # (3)
        for row, move in zip(rows, moves, strict=True):  # of two results of one client both count
            self._descend(state.embeddings[row], state.embedding_velocities[row], -move)  # (4)
        return state

    def expects(self) -> Mapping[str, Spec]:
        return {"delta": Spec.weights(self.fleet.layout, part=self.part)}

    def _descend(self, values: Array, velocity: Array, gradient: Array) -> None:
        """A step of SGD with momentum and weight decay, in place."""
        params = self.params
        velocity *= np.float32(params.momentum)
        velocity += gradient + np.float32(params.weight_decay) * values
        values -= np.float32(params.lr) * velocity


def inputs_of(layers: Sequence[Array], embeddings: Array) -> list[Array]:
    """The inputs of every layer, with a 1 for the bias, a row per client. No ReLU before the first and the last."""
    x, inputs = embeddings, list[Array]()
    for place, layer in enumerate(layers):
        if place > 0:
            x = inputs[-1] @ layers[place - 1].T
            x = x if layer is layers[-1] else np.maximum(x, 0)
        inputs.append(np.column_stack([x, np.ones(len(x), np.float32)]))
    return inputs


def backward(
    layers: Sequence[Array], inputs: Sequence[Array], deltas: Array, clip: float = np.inf
) -> tuple[Array, list[Array]]:
    """deltas^T J, a row per client: with respect to the embeddings, and to the outputs of every layer."""
    error, errors = deltas, list[Array]()
    for layer, x in zip(reversed(layers), reversed(inputs), strict=True):
        errors.append(error)
        error = (error @ layer)[:, :-1]
        if layer is not layers[-1] and layer is not layers[0]:
            error = error * (x[:, :-1] > 0)
    squares = np.square(error).sum(axis=1)
    for output, x in zip(reversed(errors), inputs, strict=True):
        squares = squares + np.square(output).sum(axis=1) * np.square(x).sum(axis=1)  # of an outer product
    scale = np.float32(1) / np.maximum(np.sqrt(squares) / np.float32(clip), 1)[:, None]
    return error * scale, [output * scale for output in reversed(errors)]


PFEDHN = Algorithm(
    name="pfedhn",
    about="a hypernetwork on the server makes every client's model (Shamsian et al. 2021)",
    params=Params,
    server=PFedHN,
    client="fedsim.clients.fedper:PartlyPrivate",
)
