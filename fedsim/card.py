"""The card of a personal model: what the file beside it is, in plain words."""

from collections.abc import Mapping
from datetime import date
from importlib.metadata import PackageNotFoundError, version

from fedsim import registry
from fedsim.config import RunConfig

CARD = """\
# Personal model of client {client}

The model that client {client} uses at the end of a federated run of `{algorithm}`, by tensor name in `{file}`.

| | |
|---|---|
{rows}

## Load it
```python
from {module} import {name}
from safetensors.torch import load_file

model = {name}({shape}, {classes})  # input shape (channels, height, width), classes
model.load_state_dict(load_file("{file}"){strict})
model.eval()
```
It expects images as fedsim prepares them: float32, channels first, normalised per channel of the dataset.
"""


def facts(config: RunConfig, run: str, client: int, samples: tuple[int, int], accuracy: float | None) -> dict[str, str]:
    """What is to be known of the model, by name; `samples` for training and for testing."""
    parameters = ", ".join(f"{k}={v}" for k, v in vars(config.params(config.algorithm)).items())
    return {
        "run": run,
        "client": str(client),
        "algorithm": f"{config.algorithm} ({parameters})" if parameters else config.algorithm,
        "dataset": config.dataset,
        "partition": config.partition,
        "training samples": str(samples[0]),
        "test samples": str(samples[1]),
        "accuracy on its own tests": "unknown: it has none" if accuracy is None else f"{accuracy:.4f}",
        "model": config.model,
        "rounds": str(config.rounds),
        "seed": str(config.seed),
        "date": date.today().isoformat(),
        "fedsim": _own_version(),
    }


def card(
    told: Mapping[str, str], config: RunConfig, file: str, shape: tuple[int, ...], classes: int, buffers: bool
) -> str:
    """`buffers`: the model has statistics besides its parameters, and torch counts them by integers that are not kept."""
    module, _, name = registry.providers("model")[config.model].partition(":")
    rows = "\n".join(f"| {key} | {value} |" for key, value in told.items())
    names = {"client": told["client"], "algorithm": config.algorithm, "module": module, "name": name}
    strict = ", strict=False" if buffers else ""
    return CARD.format(rows=rows, file=file, shape=shape, classes=classes, strict=strict, **names)


def _own_version() -> str:
    try:
        return version("fedsim")
    except PackageNotFoundError:
        return "not installed as a package"
