"""A model's start from a local checkpoint (`model.pretrained`): a torch state_dict, a safetensors or an npz file."""

from collections.abc import Collection, Mapping
from pathlib import Path
from pickle import UnpicklingError

import torch
from torch import Tensor, nn

from fedsim.errors import ConfigError
from fedsim.files import read_npz

BASE, HEAD = "base.", "head."
NAMED = 4  # tensors that a message names


def load_pretrained(network: nn.Module, file: str, head: bool = True) -> str:
    """Copies the tensors of a checkpoint into a network head(base(x)); returns in words what was left out, if anything.

    Names are those of the network (`base.0.weight`, `head.weight`), or those of the network before base and head were told
    apart, as torchvision's files have them. A head of another size, or one that the file does not hold, keeps its initial
    values; so does every head if `head` is False. Raises ConfigError if the file cannot be read, or if its base is not the
    network's.
    """
    found, own = _read(Path(file).expanduser(), f"model.pretrained={file}"), network.state_dict()
    held = list(found)
    if any(n.startswith((BASE, HEAD)) for n in own) and not any(n.startswith((BASE, HEAD)) for n in found):
        found = _with_parts(found, getattr(network, "head_name", ""))
    heads = {name: tensor for name, tensor in own.items() if name.startswith(HEAD)}
    needed = [n for n, t in own.items() if n not in heads and t.is_floating_point()]  # the rest are counters of batches
    missing = [name for name in needed if name not in found]
    other = [
        f"{n} {_size(found[n])} instead of {_size(own[n])}" for n in needed if n in found and _differs(n, found, own)
    ]
    if missing or other:
        raise ConfigError(
            f"model.pretrained={file} does not fit the model: "
            + "; ".join(
                f"{what} {_named(names)}" for what, names in (("it lacks", missing), ("it has", other)) if names
            )
            + f". The file holds: {_named(held)}"
        )
    fits = head and all(name in found and not _differs(name, found, own) for name in heads)
    used = {n: t for n, t in found.items() if n in own and (fits or n not in heads) and not _differs(n, found, own)}
    network.load_state_dict({**own, **used})
    unused = [name.removeprefix(BASE) for name in found if name not in own]
    notes = [f"the head keeps its initial values ({_told(heads, found)})"] if head and heads and not fits else []
    notes += [f"not used: {_named(unused)}"] if unused else []
    return f"model.pretrained={file}: {'; '.join(notes)}" if notes else ""


def _read(path: Path, what: str) -> Mapping[str, Tensor]:
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            return load_file(path)
        if path.suffix == ".npz":
            return {name: torch.from_numpy(array) for name, array in read_npz(path).items()}
        found = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError as error:
        raise ConfigError(f"{what}: there is no such file on this machine") from error
    except UnpicklingError as error:
        raise ConfigError(
            f"{what} is no file of plain tensors, and others could run code. Save the weights alone: "
            "torch.save(model.state_dict(), PATH)"
        ) from error
    except Exception as error:  # each of the three formats has its own errors
        raise ConfigError(f"{what} cannot be read: {type(error).__name__}: {error}") from error
    found = found.get("state_dict", found) if isinstance(found, Mapping) else found
    if not isinstance(found, Mapping) or not all(isinstance(value, Tensor) for value in found.values()):
        raise ConfigError(f"{what} is not a state_dict, tensors by name: save model.state_dict()")
    return found


def _with_parts(found: Mapping[str, Tensor], head: str) -> Mapping[str, Tensor]:
    """The tensors by the names of a network head(base(x)); `head`: the name of the head in the file, if it is known."""
    own = f"{head}." if head else ""

    def name_of(name: str) -> str:
        return HEAD + name.removeprefix(own) if own and name.startswith(own) else BASE + name

    return {name_of(name): tensor for name, tensor in found.items()}


def _differs(name: str, found: Mapping[str, Tensor], own: Mapping[str, Tensor]) -> bool:
    return found[name].shape != own[name].shape


def _told(heads: Mapping[str, Tensor], found: Mapping[str, Tensor]) -> str:
    """What a file has in the place of a head."""
    other = [f"{n} {_size(found[n])} instead of {_size(t)}" for n, t in heads.items() if n in found]
    return f"the file has {_named(other)}" if other else "the file has none"


def _size(tensor: Tensor) -> str:
    return " x ".join(map(str, tensor.shape)) or "1"


def _named(names: Collection[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(list(names)[:NAMED]) + more
