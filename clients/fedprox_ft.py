"""Client half of FedProx-FT: training with a proximal term; the client uses a copy fine-tuned without it."""

from fedsim.clients.fedavg_ft import FineTuned
from fedsim.clients.fedprox import Proximal


class FineTunedProximal(FineTuned, Proximal):
    """Expects parameters with `epochs` (0: as long as local training)."""
