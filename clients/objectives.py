"""What a model is trained for and measured by. The data names its objective; the training loop knows none by itself.

Torch is imported inside the methods: the server reads the names and directions of the metrics without it.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Literal, Protocol

if TYPE_CHECKING:
    from torch import Tensor

Direction = Literal["max", "min"]  # whether more or less is better


class Objective(Protocol):
    """A loss, and metrics by name; the first metric is the main one, which curves and tables show."""

    metrics: ClassVar[Mapping[str, Direction]]

    def loss(self, output: "Tensor", target: "Tensor") -> "Tensor":
        """The mean loss of a mini-batch, to be differentiated."""

    def measure(self, output: "Tensor", target: "Tensor") -> tuple[dict[str, float], int]:
        """The sum of every metric over the samples of a batch, and their number."""


class Classification:
    """cross-entropy of logits; accuracy"""

    metrics: ClassVar[Mapping[str, Direction]] = {"accuracy": "max", "loss": "min"}

    def loss(self, output: "Tensor", target: "Tensor") -> "Tensor":
        from torch.nn.functional import cross_entropy

        return cross_entropy(output, target)

    def measure(self, output: "Tensor", target: "Tensor") -> tuple[dict[str, float], int]:
        from torch.nn.functional import cross_entropy

        correct = int((output.argmax(1) == target).sum())
        return {"accuracy": correct, "loss": float(cross_entropy(output, target, reduction="sum"))}, len(target)


class NextToken(Classification):
    """cross-entropy and accuracy of every token: logits N x T x V, targets N x T"""

    def loss(self, output: "Tensor", target: "Tensor") -> "Tensor":
        return super().loss(output.flatten(0, 1), target.flatten())

    def measure(self, output: "Tensor", target: "Tensor") -> tuple[dict[str, float], int]:
        return super().measure(output.flatten(0, 1), target.flatten())


class Regression:
    """mean squared error; mean absolute error"""

    metrics: ClassVar[Mapping[str, Direction]] = {"mse": "min", "mae": "min"}

    def loss(self, output: "Tensor", target: "Tensor") -> "Tensor":
        from torch.nn.functional import mse_loss

        return mse_loss(output.reshape(target.shape), target)

    def measure(self, output: "Tensor", target: "Tensor") -> tuple[dict[str, float], int]:
        error = output.reshape(target.shape) - target
        return {"mse": float(error.square().sum()), "mae": float(error.abs().sum())}, target.numel()
