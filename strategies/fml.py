"""FML: federated mutual learning (Shen et al. 2020, arXiv 2006.16765).

Client (1):  L_p = alpha CE(p) + (1 - alpha) KL(g || p),   p_k <- p_k - eta * grad L_p
       (2):  L_g = beta CE(g) + (1 - beta) KL(p || g),     g_k <- g_k - eta * grad L_g, started at g; sends g_k - g
Server (3):  g <- g + sum_{k in S} (n_k / n_S) * (g_k - g), as FedAvg

| symbol  | meaning                                                     | name here                        |
| ------- | ----------------------------------------------------------- | -------------------------------- |
| g       | shared model ("meme")                                       | `GlobalState.model`              |
| p_k     | private model of client k, perhaps of another architecture  | `model` in the client's state    |
| KL      | of the softmax outputs, mean over the mini-batch            | `divergence`                     |

Both models predict on the same mini-batch before either takes its step, and a partner's output gets no gradient. The
personal model is p_k; g is the global one. alpha = beta = 1 separates them: g is FedAvg's model and p_k local
training's, bit for bit. Clients may have different models p_k (`model=mlp,cnn`); `shared` then names the model of g.
Private models of one architecture start from the same weights. Deviations: g is averaged by samples; p_k's optimizer
starts anew in every job, as g's does.
"""

from dataclasses import dataclass

from fedsim.algorithm import Algorithm
from fedsim.config import Fraction
from fedsim.strategies.shared_network import SharedNetwork, SharedParams


@dataclass(frozen=True)
class Params(SharedParams):
    alpha: Fraction = 0.5  # weight of the labels for the private model, 1 - alpha: of the shared model's predictions
    beta: Fraction = 0.5  # weight of the labels for the shared model


class Fml(SharedNetwork):
    """(3); the private models stay with the clients."""


FML = Algorithm(
    name="fml",
    about="a shared and a private model of each client teach each other (Shen et al. 2020)",
    params=Params,
    server=Fml,
    client="fedsim.clients.fml:FmlClient",
    networks={"shared": "params.shared"},
    common="shared",
    targets="classes",
)
