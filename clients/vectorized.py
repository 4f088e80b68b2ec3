"""Local SGD of many small clients at once: what `TorchTask.fit` does for each of them, up to rounding.

Each tensor of the network is stacked over the G clients of a group, and a layer is one batched product for all of them.
The gradients of linear layers, ReLU and cross-entropy are written out, because the product that yields the gradient of
a weight can then add the step to the weight itself: gradients are stored only if momentum or a hook needs them.

Clients that start from one model W and take few steps need no stack at all. The gradient of a weight is S^T X, from the
layer's inputs X and the slopes S of its outputs. So after steps of plain SGD a client's weight is W - lr sum_j S_j^T X_j,
and the product of x with it is x W^T - lr sum_j (x X_j^T) S_j: one large product with W for the whole group, and small
ones with what was kept of earlier steps.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import linear

from fedsim.algorithm import Fit
from fedsim.clients.models import FlatSequential, HeadOnBase
from fedsim.clients.objectives import Classification
from fedsim.clients.task import TorchTask
from fedsim.clients.training import GradientHook, Samples, batches, steps_of
from fedsim.layout import Layout
from fedsim.payload import Uplink
from fedsim.weights import Vec, Weights, weighted_sum

Stack = list[Tensor]  # every parameter of the network, of G clients: the first dimension is the client
Past = Sequence[tuple[Tensor, Tensor]]  # of a layer: the inputs and slopes of earlier steps, G x B x inputs and outputs


@dataclass
class Member:
    """One client of a group: the arguments of its `TorchTask.fit`."""

    task: TorchTask
    start: Weights
    rng: np.random.Generator
    gradient: GradientHook | None = None


def can_vectorize(task: TorchTask) -> bool:
    """Whether `fit_group` can train this client: SGD on the cross-entropy of a dense network, in float32."""
    config = task.config
    if type(task.objective) is not Classification or config.optimizer != "sgd" or config.precision != "float32":
        return False
    layers = dense_layers(task.network("model").module)
    return layers is not None and layers[0].inputs == prod(task.shape)


def fit_group(members: Sequence[Member]) -> "Group":
    """Trains all members at once; `can_vectorize` must hold, and they must have the same network, configuration and
    learning rate."""
    group = Group(members)
    for step in range(group.steps.max()):
        group.step(int((group.steps > step).sum()))
    for member, taken in zip(members, group.steps[group.rows].tolist(), strict=True):
        member.task.batches_read += taken
    return group


@dataclass(frozen=True)
class Dense:
    """A linear layer: which of the parameters are its own, and whether a ReLU follows."""

    weight: int
    bias: int | None
    inputs: int
    outputs: int
    relu: bool = False

    def forward(self, models: Stack, x: Tensor, past: Past = (), scale: float = 0.0) -> Tensor:
        """G x B x outputs from G x B x inputs. The models are those given plus scale * the gradients of the `past`."""
        weight, bias = models[self.weight], None if self.bias is None else models[self.bias]
        if is_shared(weight):
            output = linear(x, weight[0], None if bias is None else bias[0])
        else:
            output = x @ weight.mT if bias is None else torch.baddbmm(bias.unsqueeze(1), x, weight.mT)
        for before, slope in past:
            factors = x @ before[: len(x)].mT
            output.baddbmm_(factors if bias is None else factors.add_(1.0), slope[: len(x)], alpha=scale)
        return output.relu_() if self.relu else output

    def backward(self, models: Stack, slope: Tensor, past: Past = (), scale: float = 0.0) -> Tensor:
        """The gradient of its input, from that of its output; models as in `forward`."""
        weight = models[self.weight]
        if not is_shared(weight):
            return slope @ weight
        found = (slope.flatten(0, 1) @ weight[0]).view(*slope.shape[:2], -1)
        for x, before in past:
            found.baddbmm_(slope @ before[: len(slope)].mT, x[: len(slope)], alpha=scale)
        return found

    def add_gradient(self, to: Stack, x: Tensor, slope: Tensor, keep: float, scale: float) -> None:
        """to = keep * to + scale * gradient in this layer's tensors; `slope` is the gradient of its output."""
        to[self.weight].baddbmm_(slope.mT, x, beta=keep, alpha=scale)  # with beta=0 the old values do not matter
        if self.bias is not None:
            kept = to[self.bias].mul_(keep) if keep else to[self.bias].zero_()
            kept.add_(slope.sum(1), alpha=scale)


@lru_cache(maxsize=8)
def dense_layers(network: nn.Module) -> tuple[Dense, ...] | None:
    """The layers of a network head(base(x)) made of linear layers, ReLU and flattening alone; None for any other."""
    if not isinstance(network, HeadOnBase) or type(network).forward is not HeadOnBase.forward:
        return None
    places = {id(parameter): place for place, parameter in enumerate(network.parameters())}
    layers: list[Dense] = []
    for module in (*_modules(network.base), *_modules(network.head)):
        if type(module) is nn.Linear and all(id(p) in places for p in module.parameters()):  # not one used twice
            bias = None if module.bias is None else places.pop(id(module.bias))
            layers.append(Dense(places.pop(id(module.weight)), bias, module.in_features, module.out_features))
        elif type(module) is nn.ReLU and layers:
            layers[-1] = replace(layers[-1], relu=True)
        elif not (type(module) is nn.Flatten and (module.start_dim, module.end_dim) == (1, -1)):
            return None
    return tuple(layers) if layers and not places and not list(network.buffers()) else None


def _modules(module: nn.Module) -> Iterator[nn.Module]:
    """The modules that plain containers call one after the other."""
    if type(module) in (nn.Sequential, FlatSequential):
        for child in cast(nn.Sequential, module):
            yield from _modules(child)
    else:
        yield module


class Group:
    """The models of a group in training. Its rows are the members, those that take most steps first: then the members that
    still train are always the first rows."""

    def __init__(self, members: Sequence[Member]) -> None:
        steps = np.array([steps_of(m.task.examples, m.task.config) for m in members])
        order = np.argsort(-steps, kind="stable")
        self.steps, self.rows = steps[order], np.argsort(order)  # of each row; the row of each member
        self._members = members = [members[i] for i in order]
        task = members[0].task
        self._config, self._lr = task.config, task.lr
        self._layers = dense_layers(task.network("model").module) or ()
        self._losses = torch.zeros(len(members), device=task.device)  # the sums over the steps so far
        self._samples = Samples.joined([m.task.samples("train") for m in members])
        self._sizes = np.array([m.task.examples for m in members])
        self._begins = np.cumsum([0, *self._sizes[:-1]])  # of the members in the joined samples
        self._batches = [_batches(m) for m in members]
        self._start = _stack([m.start.parameters for m in members], task.layout, task.device)
        hooked = any(m.gradient for m in members)
        plain = not hooked and not task.config.momentum and not task.config.weight_decay
        rows = int(self.steps.max()) * int(min(task.config.batch_size or self._sizes.max(), self._sizes.max()))
        self._keeps_past = plain and is_shared(self._start[0]) and pays_to_keep(self._layers, rows)
        self._past: list[list[tuple[Tensor, Tensor]]] = [[] for _ in self._layers]
        self._models = [] if self._keeps_past else [t.contiguous() for t in self._start]
        self._gradients = [torch.empty_like(t) for t in self._models] if hooked else []
        self._velocities = [torch.zeros_like(t) for t in self._models] if task.config.momentum else []
        self._hooks = [self._hook(row, m.gradient) for row, m in enumerate(members)] if hooked else []
        self._step = 0

    def fits(self) -> list[Fit]:
        """[m.task.fit(m.start, m.rng, gradient=m.gradient) for m in members], up to rounding. The weights are the rows of
        one matrix."""
        if self._keeps_past:
            self._models = [t.contiguous() for t in self._start]
            self._add_past(self._models)
        models: Vec = torch.cat([t.flatten(1) for t in self._models], 1).cpu().numpy()
        losses, steps = self._mean_losses(), self.steps.tolist()
        return [Fit(Weights(models[row]), losses[row], steps[row]) for row in self.rows.tolist()]

    def averaged_uplinks(self) -> list[Uplink]:
        """What `LocalSGD.uplink` makes of these fits; the mean of the updates, by samples, is in the last one."""
        mean, losses, sizes = Weights(self._mean_update()), self._mean_losses(), self._sizes.tolist()
        uplinks = [
            Uplink(sizes[row], {}, metrics={"loss": losses[row]}, averaged=0, averaged_bytes=mean.nbytes)
            for row in self.rows.tolist()
        ]
        uplinks[-1] = replace(uplinks[-1], weights={"delta": mean}, averaged=sum(sizes), averaged_bytes=0)
        return uplinks

    def _mean_update(self) -> Vec:
        shares = (self._sizes / self._sizes.sum()).astype(np.float32)
        if self._keeps_past:
            update = [torch.zeros_like(t[:1]) for t in self._start]
            self._add_past(update, torch.from_numpy(shares).to(self._losses.device).view(-1, 1, 1))
            whole: Vec = torch.cat([t.flatten() for t in update]).cpu().numpy()
            return whole
        after: Vec = torch.cat([torch.from_numpy(shares) @ t.flatten(1).cpu() for t in self._models]).numpy()
        starts = {id(m.start.parameters): m.start.parameters for m in self._members}
        before = weighted_sum([m.start.parameters for m in self._members], shares.tolist()) if len(starts) > 1 else None
        return after - (self._members[0].start.parameters if before is None else before)

    def _add_past(self, to: Stack, shares: Tensor | None = None) -> None:
        """Adds all steps to the models, or their sums by the members' shares to the one model in `to`."""
        for layer, past in zip(self._layers, self._past, strict=True):
            for x, slope in past:
                if shares is None:
                    layer.add_gradient([t[: len(x)] for t in to], x, slope, 1.0, -self._lr)
                else:
                    weighted = (slope * shares[: len(x)]).flatten(0, 1).unsqueeze(0)
                    layer.add_gradient(to, x.flatten(0, 1).unsqueeze(0), weighted, 1.0, -self._lr)

    def _mean_losses(self) -> list[float]:
        """Over the steps of each row."""
        means: list[float] = (self._losses.cpu().numpy() / np.maximum(self.steps, 1)).tolist()
        return means

    def step(self, active: int) -> None:
        """One step of SGD of the first `active` members, each on its next mini-batch."""
        models, gradients, velocities = (
            [t[:active] for t in stack] for stack in (self._models, self._gradients, self._velocities)
        )
        lr, momentum, decay = self._lr, self._config.momentum, self._config.weight_decay
        from_start = self._keeps_past or not self._step  # before the first step the models are all the same
        present = [t[:active] for t in self._start] if from_start else models
        self._step += 1
        values, slope = self._forward(present, active)
        slopes = self._backward(present, values, slope)
        if self._keeps_past:
            for past, x, own in zip(self._past, values, slopes, strict=False):
                past.append((x, own))
            return
        if not gradients and not velocities:
            self._add_gradients(values, slopes, to=models, keep=1 - lr * decay, scale=-lr)
            return
        if gradients:
            self._add_gradients(values, slopes, to=gradients, keep=0.0, scale=1.0)
            for hook in self._hooks[:active]:
                hook()
            if velocities:
                torch._foreach_mul_(velocities, momentum)
                torch._foreach_add_(velocities, gradients)
        else:
            self._add_gradients(values, slopes, to=velocities, keep=momentum, scale=1.0)
        direction = velocities or gradients
        if decay:
            torch._foreach_add_(direction, models, alpha=decay)
        torch._foreach_add_(models, direction, alpha=-lr)

    def _forward(self, models: Stack, active: int) -> tuple[list[Tensor], Tensor]:
        """Adds to the losses; returns the inputs of all layers with the output, and the gradient of the output."""
        x, y, share = self._next_batches(active)
        values = [x]
        for layer, past in zip(self._layers, self._past, strict=True):
            values.append(layer.forward(models, values[-1], past, -self._lr))
        log_probabilities = values[-1].log_softmax(2)
        self._losses[:active] -= (log_probabilities.gather(2, y) * share).sum((1, 2))
        return values, log_probabilities.exp_().scatter_(2, y, -1.0, reduce="add").mul_(share)

    def _backward(self, models: Stack, values: Sequence[Tensor], slope: Tensor) -> list[Tensor]:
        """The slopes of all layers: the gradients of their outputs, before the ReLU."""
        slopes = []
        for number in reversed(range(len(self._layers))):
            layer = self._layers[number]
            if layer.relu:
                slope = torch.ops.aten.threshold_backward(slope, values[number + 1], 0)
            slopes.append(slope)
            slope = layer.backward(models, slope, self._past[number], -self._lr) if number else slope
        return slopes[::-1]

    def _add_gradients(
        self, values: Sequence[Tensor], slopes: Sequence[Tensor], *, to: Stack, keep: float, scale: float
    ) -> None:
        """to = keep * to + scale * gradients."""
        for layer, x, slope in zip(self._layers, values, slopes, strict=False):
            layer.add_gradient(to, x, slope, keep, scale)

    def _next_batches(self, active: int) -> tuple[Tensor, Tensor, Tensor]:
        """Inputs G x B x features, targets G x B x 1, and the share G x B x 1 of each sample in its member's mean loss.

        A shorter batch is filled up with samples whose share is 0.
        """
        chosen = [next(batch) for batch in self._batches[:active]]
        sizes = np.array([len(batch) for batch in chosen])[:, None]
        real = np.arange(sizes.max()) < sizes
        indices = np.zeros(real.shape, np.int64)
        indices[real] = np.concatenate(chosen)
        indices += self._begins[:active, None]
        x, y = self._samples.at(indices.reshape(-1))
        share = torch.from_numpy((real / sizes).astype(np.float32)).to(x.device)
        return x.reshape(*real.shape, -1), y.view(*real.shape, 1), share.unsqueeze(2)

    def _hook(self, row: int, hook: GradientHook | None) -> Callable[[], None]:
        """Calls a member's gradient hook, if there is one, with views of its own parameters and gradients."""
        parameters = [t[row].detach().requires_grad_() for t in self._models]
        gradients = [t[row] for t in self._gradients]

        def call() -> None:
            if hook is None:
                return
            for parameter, own in zip(parameters, gradients, strict=True):
                parameter.grad = own
            hook(parameters)
            for parameter, own in zip(parameters, gradients, strict=True):
                if parameter.grad is None:
                    raise ValueError("a gradient hook must not remove the gradient of a parameter")
                if parameter.grad is not own:  # a new tensor instead of a changed one
                    own.copy_(parameter.grad)

        return call


def pays_to_keep(layers: Sequence[Dense], rows: int) -> bool:
    """Whether keeping the inputs and slopes of so many samples per client is faster than changing weights. Measured: up to
    half as many rows as make the products with them as large as those with the weights."""
    kept, weights = sum(n.inputs + n.outputs for n in layers), sum(n.inputs * n.outputs for n in layers)
    return 2 * rows * kept <= weights


def _stack(vectors: Sequence[Vec], layout: Layout, device: torch.device) -> Stack:
    """Flat vectors as stacked tensors, in torch's aligned memory: the rounding of products may depend on that. Vectors that
    are all the same object are stored once."""
    rows = len(vectors)
    vectors = vectors[:1] if len({id(vector) for vector in vectors}) == 1 else vectors  # most often the global model
    stack = [torch.empty(len(vectors), tensor.size) for tensor in layout.parameters]
    for tensor, values in zip(layout.parameters, stack, strict=True):
        place = layout.slices[tensor.name]
        np.stack([vector[place] for vector in vectors], out=values.numpy())
    made = [v.view(-1, *t.shape).to(device) for t, v in zip(layout.parameters, stack, strict=True)]
    return [tensor.expand(rows, *tensor.shape[1:]) for tensor in made]


def is_shared(stack: Tensor) -> bool:
    """Whether all rows of a stacked tensor are the same memory: then a product for all clients is one of matrices, which is
    faster than many small ones."""
    return stack.stride(0) == 0


def _batches(member: Member) -> Iterator[NDArray[np.int64]]:
    """The mini-batches of a member's training, as indices into its own samples."""
    task = member.task
    start = task.batches_read if task.config.batches == "in-order" else None
    return batches(task.examples, task.config.batch_size, steps_of(task.examples, task.config), member.rng, start)
