"""Batch steps that several client halves share."""

import torch
from torch import Tensor

from fedsim.clients.training import Batch, BatchStep, Loss, Trainer, one_step


def repeated(times: int) -> BatchStep:
    """So many steps of the optimizer on each mini-batch; the loss is the one before them."""
    once = one_step()

    def step(trainer: Trainer, batch: Batch) -> Tensor:
        loss = once(trainer, batch)
        for _ in range(times - 1):
            once(trainer, batch)
        return loss

    return step


def descend(trainer: Trainer, loss: Tensor) -> Tensor:
    """One step of the trainer's optimizer along the gradient of a loss that was computed already; returns the loss."""
    trainer.optimizer.zero_grad()
    torch.autograd.backward(loss)
    trainer.optimizer.step()
    return loss


def joint(other: Trainer, loss: Loss) -> BatchStep:
    """One step each of the trainer and of another one along the gradients of one loss, which both networks enter."""

    def step(trainer: Trainer, batch: Batch) -> Tensor:
        other.optimizer.zero_grad()
        value = trainer.backward(batch, loss)
        trainer.optimizer.step()
        other.optimizer.step()
        return value

    return step


def at_rate(lr: float, samples: int = 0) -> BatchStep:
    """One step at another learning rate than the run's, on the first `samples` of each mini-batch (0: all)."""
    once = one_step()

    def step(trainer: Trainer, batch: Batch) -> Tensor:
        trainer.optimizer.lr = lr
        return once(trainer, (batch[0][:samples], batch[1][:samples]) if samples else batch)

    return step
