"""How much a stale result still counts: s(u) for u server steps of staleness (Xie et al. 2019, section 5.2).

constant:    s(u) = 1
polynomial:  s(u) = (u + 1)^(-a)
hinge:       s(u) = 1 if u <= b, else 1 / (a * (u - b) + 1)
"""

from collections.abc import Callable, Mapping

Discount = Callable[[int, float, float], float]

DISCOUNTS: Mapping[str, Discount] = {
    "constant": lambda u, a, b: 1.0,
    "polynomial": lambda u, a, b: (u + 1.0) ** -a,
    "hinge": lambda u, a, b: 1.0 if u <= b else 1.0 / (a * (u - b) + 1.0),
}
