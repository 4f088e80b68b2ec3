"""The discount s(u) of a result with staleness u (Xie et al. 2019, section 5.2).

constant:    s(u) = 1
polynomial:  s(u) = (u + 1)^(-a)
hinge:       s(u) = 1 if u <= b, else 1 / (a * (u - b) + 1)
"""

from typing import Literal

Discount = Literal["constant", "polynomial", "hinge"]


def discount(rule: Discount, staleness: int, a: float, b: float) -> float:
    """s(u) by one of the three rules."""
    if rule == "constant":
        return 1.0
    if rule == "polynomial":
        return float((staleness + 1.0) ** -a)
    return 1.0 if staleness <= b else 1.0 / (a * (staleness - b) + 1.0)
