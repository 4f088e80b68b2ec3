"""What a model is trained for and measured by. The data names its objective; the training loop knows none by itself.

Torch is imported inside the methods: the server reads the names and directions of the metrics without it.
"""

from collections.abc import Mapping
from math import exp, inf
from typing import TYPE_CHECKING, ClassVar, Literal, Protocol

if TYPE_CHECKING:
    from torch import Tensor

Direction = Literal["max", "min"]  # whether more or less is better
PADDING = 0  # the token id that fills up texts
LARGEST = 700.0  # a mean loss whose exponential is still a number


class Objective(Protocol):
    """A loss, and metrics by name; the first metric is the main one, which curves and tables show."""

    metrics: ClassVar[Mapping[str, Direction]]
    # The least and the greatest value of metrics, by name; the server refuses others. A metric whose name ends in
    # "accuracy" is from 0 to 1 unless it is listed; others may have any value.
    ranges: ClassVar[Mapping[str, tuple[float, float]]] = {}

    def loss(self, output: "Tensor", target: "Tensor") -> "Tensor":
        """The mean loss of a mini-batch, to be differentiated."""

    def measure(self, output: "Tensor", target: "Tensor") -> tuple[dict[str, float], int]:
        """The sum of every metric over the samples of a batch, and their number. A metric that is no mean over samples is
        left out; a method `derived(means) -> metrics` then makes it of the means of the others."""


class Classification:
    """cross-entropy of logits; accuracy"""

    metrics: ClassVar[Mapping[str, Direction]] = {"accuracy": "max", "loss": "min"}
    ranges: ClassVar[Mapping[str, tuple[float, float]]] = {"accuracy": (0, 1), "loss": (0, inf)}

    def loss(self, output: "Tensor", target: "Tensor") -> "Tensor":
        from torch.nn.functional import cross_entropy

        return cross_entropy(output, target)

    def measure(self, output: "Tensor", target: "Tensor") -> tuple[dict[str, float], int]:
        from torch.nn.functional import cross_entropy

        correct = int((output.argmax(1) == target).sum())
        return {"accuracy": correct, "loss": float(cross_entropy(output, target, reduction="sum"))}, len(target)


class NextToken(Classification):
    """cross-entropy, accuracy and perplexity of tokens: logits N x T x V for targets N x T, or N x V for targets N.

    Targets per position are padded with 0 where a text has ended, and padding does not count; a single target per
    window is never padding.
    """

    metrics: ClassVar[Mapping[str, Direction]] = {"accuracy": "max", "loss": "min", "perplexity": "min"}
    ranges: ClassVar[Mapping[str, tuple[float, float]]] = {**Classification.ranges, "perplexity": (0, inf)}

    def loss(self, output: "Tensor", target: "Tensor") -> "Tensor":
        logits, tokens = self._tokens(output, target)
        return super().loss(logits, tokens) if len(tokens) else 0 * output.sum()  # nothing but padding

    def measure(self, output: "Tensor", target: "Tensor") -> tuple[dict[str, float], int]:
        return super().measure(*self._tokens(output, target))

    def derived(self, means: Mapping[str, float]) -> dict[str, float]:
        return {"perplexity": exp(min(means["loss"], LARGEST))}

    @staticmethod
    def _tokens(output: "Tensor", target: "Tensor") -> tuple["Tensor", "Tensor"]:
        """Logits and targets that count, a row per token."""
        if target.ndim == 1:
            return output, target
        real = target.flatten() != PADDING
        return output.flatten(0, 1)[real], target.flatten()[real]


class Regression:
    """mean squared error; mean absolute error"""

    metrics: ClassVar[Mapping[str, Direction]] = {"mse": "min", "mae": "min"}
    ranges: ClassVar[Mapping[str, tuple[float, float]]] = {"mse": (0, inf), "mae": (0, inf)}

    def loss(self, output: "Tensor", target: "Tensor") -> "Tensor":
        from torch.nn.functional import mse_loss

        return mse_loss(output.reshape(target.shape), target)

    def measure(self, output: "Tensor", target: "Tensor") -> tuple[dict[str, float], int]:
        error = output.reshape(target.shape) - target
        return {"mse": float(error.square().sum()), "mae": float(error.abs().sum())}, target.numel()
