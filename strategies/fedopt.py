"""FedAvgM, FedAdam, FedYogi and FedAdagrad: FedAvg with another step of the server (Hsu et al. 2019, arXiv 1909.06335;
Reddi et al. 2021, arXiv 2003.00295).

Client:  FedAvg, equation (2) of `fedsim.strategies.fedavg`
Server:  equations (2) to (7) of `fedsim.server_optimizers` along the mean update

Each is FedAvg with that `server-optimizer`, whose parameters are set as `server-optimizer.lr` and so on. The other way
round, every algorithm that takes a step along a mean can have such an optimizer. Defaults: FedAvgM lr 1, beta 0.9; the
others lr 0.1, tau 0.001, beta1 0.9 (FedAdagrad 0), beta2 0.99. The step sizes that the paper finds lie between 0.01 and
1.
"""

from fedsim.algorithm import Algorithm
from fedsim.config import NoParams
from fedsim.strategies.fedavg import FedAvg


def with_optimizer(name: str, optimizer: str, about: str) -> Algorithm[NoParams]:
    return Algorithm(name, about, NoParams, FedAvg, server_optimizer=optimizer, vectorizes=True)


FEDAVGM = with_optimizer("fedavgm", "momentum", "FedAvg with momentum on the server (Hsu et al. 2019)")
FEDADAM = with_optimizer("fedadam", "adam", "FedAvg with Adam on the server (Reddi et al. 2021)")
FEDYOGI = with_optimizer("fedyogi", "yogi", "FedAvg with Yogi on the server (Reddi et al. 2021)")
FEDADAGRAD = with_optimizer("fedadagrad", "adagrad", "FedAvg with Adagrad on the server (Reddi et al. 2021)")
