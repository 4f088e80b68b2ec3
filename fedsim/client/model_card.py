"""The model card of a personal model: Markdown beside its `.safetensors` file that tells its origin and how to load it."""

from collections.abc import Mapping
from datetime import date

from fedsim import registry
from fedsim.config import RunConfig
from fedsim.distribution import installed_version
from fedsim.payload import Metrics

CARD = """\
# Personal model of client {client}

`{file}` holds the model that client {client} uses at the end of a federated run of `{algorithm}`, by tensor name.

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
The model expects float32 images, channels first, {inputs}.
"""

INPUTS = {
    "normalized": "normalized to mean 0 and standard deviation 1 per channel of the dataset",
    "raw": "with pixels as stored: 0 to 255 for 8-bit images",
}


def facts(
    config: RunConfig, run: str, client: int, samples: tuple[int, int], metrics: Metrics | None
) -> dict[str, str]:
    """The rows of the card by name; they are also the metadata of the `.safetensors` file.

    `samples`: numbers of the client's training and test samples. `metrics`: on its own test data, None without any.
    """
    parameters = ", ".join(f"{k}={v}" for k, v in vars(config.params(config.algorithm)).items())
    return {
        "run": run,
        "client": str(client),
        "algorithm": f"{config.algorithm} ({parameters})" if parameters else config.algorithm,
        "dataset": config.dataset,
        "partition": config.partition,
        "training samples": str(samples[0]),
        "test samples": str(samples[1]),
        **_tested(metrics),
        "model": config.model,
        "rounds": str(config.rounds),
        "seed": str(config.seed),
        "date": date.today().isoformat(),
        "fedsim": installed_version(),
    }


def card(
    told: Mapping[str, str], config: RunConfig, file: str, shape: tuple[int, ...], classes: int, buffers: bool
) -> str:
    """The card as Markdown. `told`: the result of `facts`; `file`: name of the model file; `shape`: of one input.

    `buffers`: whether the model has buffers. torch also counts batches in integer buffers, which the file does not
    contain, so such a model is loaded with `strict=False`.
    """
    module, _, name = registry.providers("model")[config.model].partition(":")
    rows = "\n".join(f"| {key} | {value} |" for key, value in told.items())
    names = {"client": told["client"], "algorithm": config.algorithm, "module": module, "name": name}
    strict, inputs = ", strict=False" if buffers else "", INPUTS[config.inputs]
    return CARD.format(rows=rows, file=file, shape=shape, classes=classes, strict=strict, inputs=inputs, **names)


def _tested(metrics: Metrics | None) -> dict[str, str]:
    if metrics is None:
        return {"tested": "no: the client has no test samples"}
    return {f"{name} on its own tests": f"{value:.4f}" for name, value in metrics.items()}
