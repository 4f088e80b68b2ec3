"""How the network of a model is made: with the arguments that it asks for, and as head(base(x)).

A model is registered under a name or is any class of the user's own, "module:class". Arguments are given by name
(`shape` of a sample, `classes` or `num_classes`: the number of outputs, `vocabulary`: of token ids, 0 if samples are no
tokens), or, to two required arguments of other names, as shape and number of outputs.

A network without children `base` and `head` is split at the linear layer that makes its output, if there is one: this
layer is the head, everything before it the base. A network that cannot be split stays whole; algorithms that need its
head refuse it.
"""

from collections.abc import Callable, Iterator
from inspect import Parameter, signature
from math import prod
from typing import Any

import torch
from torch import Tensor, nn

from fedsim import registry
from fedsim.clients.models import HeadOnBase, Shape, check_fits
from fedsim.errors import ConfigError

OUTPUTS = ("classes", "num_classes")  # names of the argument that gets the number of outputs


def build_model(name: str, shape: Shape, outputs: int, vocabulary: int = 0) -> nn.Module:
    """The network of a model, with random weights.

    Raises ConfigError if the name stands for no network, or for one that cannot take such samples or has other outputs.
    """
    make = registry.find("model", name)
    check_fits(make, name, shape, vocabulary)
    try:
        network = _call(make, name, shape, outputs, vocabulary)
    except ConfigError:
        raise
    except Exception as error:  # the code of others
        raise ConfigError(
            f"model {name!r} cannot be made for samples of shape {shape} and {outputs} outputs: {_told(error)}"
        ) from error
    if not isinstance(network, nn.Module):
        raise ConfigError(f"model {name!r} is {type(network).__name__}, not a network (torch.nn.Module)")
    if isinstance(network, HeadOnBase) and type(network).__module__.startswith("fedsim."):
        return network
    return _checked(network, name, shape, outputs, vocabulary)


def _call(make: Callable[..., Any], name: str, shape: Shape, outputs: int, vocabulary: int) -> Any:
    parameters = signature(make).parameters.values()
    known = {"shape": shape, "vocabulary": vocabulary, **dict.fromkeys(OUTPUTS, outputs)}
    asked = {p.name: known[p.name] for p in parameters if p.name in known}
    variadic = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
    others = [p.name for p in parameters if p.default is p.empty and p.kind not in variadic and p.name not in known]
    if not others:
        return make(**asked)
    if len(others) == 2 and not {"shape", *OUTPUTS} & asked.keys():
        return make(shape, outputs, **asked)
    raise ConfigError(
        f"model {name!r} asks for {', '.join(others)}, which the run does not know. A model is made with the arguments "
        f"that it has of shape, {', '.join(OUTPUTS)} and vocabulary"
    )


def _checked(network: nn.Module, name: str, shape: Shape, outputs: int, vocabulary: int) -> nn.Module:
    """The network as head(base(x)) if it can be split, after a pass that shows that it fits the data."""
    network.eval()
    problem: Exception | None = None
    with torch.no_grad():
        for x in _examples(shape, vocabulary):
            try:
                output = network(x)
            except Exception as error:
                problem = problem or error
                continue
            if not isinstance(output, Tensor) or outputs not in (output.shape[-1], output[0].numel()):
                made = (
                    f"an output of shape {tuple(output.shape)}" if isinstance(output, Tensor) else type(output).__name__
                )
                raise ConfigError(f"model {name!r} makes {made} of 2 samples, where {outputs} per sample are needed")
            whole = hasattr(network, "base") and hasattr(network, "head")
            return (network if whole else _split(network, x, output)).train()
    raise ConfigError(f"model {name!r} cannot take samples of shape {shape}: {_told(problem)}") from problem


def _examples(shape: Shape, vocabulary: int) -> Iterator[Tensor]:
    """Two samples as a network might take them: token ids, or real numbers, else whole ones."""
    count = torch.arange(2 * prod(shape)).reshape(2, *shape)
    if vocabulary:
        yield 1 + count % max(1, vocabulary - 1)
    else:
        yield count / count.numel()
        yield torch.zeros_like(count)


def _split(network: nn.Module, x: Tensor, output: Tensor) -> nn.Module:
    """The network with the linear layer that makes its output as the head; itself if there is no such layer."""
    for name, layer in reversed(list(network.named_modules())):
        if not isinstance(layer, nn.Linear):
            continue
        if layer is network:
            return BaseAndHead(nn.Identity(), layer, name)
        owner, _, child = name.rpartition(".")
        parent = network.get_submodule(owner)
        setattr(parent, child, nn.Identity())
        if _makes(layer, network, x, output):
            return BaseAndHead(network, layer, name)
        setattr(parent, child, layer)
    return network


def _makes(layer: nn.Linear, network: nn.Module, x: Tensor, output: Tensor) -> bool:
    """Whether the layer makes the output of what the network without it makes of x."""
    try:
        return torch.equal(layer(network(x)), output)
    except Exception:  # what an inner layer gets need not fit anywhere else
        return False


class BaseAndHead(HeadOnBase):
    """A network whose last linear layer was taken out, and this layer."""

    def __init__(self, base: nn.Module, head: nn.Module, head_name: str) -> None:
        super().__init__()
        self.base, self.head, self.head_name = base, head, head_name


def _told(error: Exception | None) -> str:
    return f"{type(error).__name__}: {error}"
