"""What malicious clients do: the run's `attack`, independent of its algorithm.

A name stands for a subclass of `Attack` whose `params` are set as `attack.KEY`. Which clients are malicious in which round
follows from the configuration alone, so server and clients agree on it without a message.
"""

from fedsim.attacks.base import SUCCESS, Attack, Attackers, attack_of, malicious_clients

ATTACKS = {
    "none": "fedsim.attacks.base:NoAttack",
    "scale": "fedsim.attacks.uplinks:Scale",
    "sign-flip": "fedsim.attacks.uplinks:SignFlip",
    "noise": "fedsim.attacks.uplinks:Noise",
    "nan": "fedsim.attacks.uplinks:NotANumber",
    "label-flip": "fedsim.attacks.data:LabelFlip",
    "backdoor": "fedsim.attacks.data:Backdoor",
    "alie": "fedsim.attacks.omniscient:Alie",
    "ipm": "fedsim.attacks.omniscient:InnerProduct",
}

__all__ = ["ATTACKS", "SUCCESS", "Attack", "Attackers", "attack_of", "malicious_clients"]
