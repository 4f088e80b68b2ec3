"""Lessons that several client halves share: what is done with one mini-batch."""

from torch import Tensor

from clients.local_sgd import Batch, Lesson, Trainer, one_step


def repeated(steps: int) -> Lesson:
    """So many steps of SGD on each mini-batch; the loss is the one before them."""
    step = one_step()

    def lesson(trainer: Trainer, batch: Batch) -> Tensor:
        loss = step(trainer, batch)
        for _ in range(steps - 1):
            step(trainer, batch)
        return loss

    return lesson


def at_rate(lr: float, most: int = 0) -> Lesson:
    """One step of SGD at another rate than the run's, on at most so many samples of each mini-batch (0: all)."""
    step = one_step()

    def lesson(trainer: Trainer, batch: Batch) -> Tensor:
        trainer.optimizer.lr = lr
        return step(trainer, (batch[0][:most], batch[1][:most]) if most else batch)

    return lesson
