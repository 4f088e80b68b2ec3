"""The model card of a personal model: Markdown beside its `.safetensors` file that tells its origin and how to load it."""

from collections.abc import Mapping
from datetime import date

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
from fedsim.clients.building import build_model
from safetensors.torch import load_file

model = build_model("{model}", {shape}, {outputs}{vocabulary})  # shape of an input, number of outputs
model.load_state_dict(load_file("{file}"){strict})
model.eval()
```
The model expects {inputs}.
"""

IMAGES = {
    "normalized": "float32 images, channels first, normalized to mean 0 and standard deviation 1 per channel of the dataset",
    "raw": "float32 images, channels first, with pixels as stored: 0 to 255 for 8-bit images",
}
TOKENS, NUMBERS = "token ids (int64), padded on the right with 0", "samples as the dataset has them"


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
    told: Mapping[str, str],
    config: RunConfig,
    file: str,
    shape: tuple[int, ...],
    outputs: int,
    buffers: bool,
    vocabulary: int = 0,
) -> str:
    """The card as Markdown. `told`: the result of `facts`; `file`: name of the model file; `shape`: of one input;
    `vocabulary`: number of token ids, 0 if inputs are no tokens.

    `buffers`: whether the model has buffers. torch also counts batches in integer buffers, which the file does not
    contain, so such a model is loaded with `strict=False`.
    """
    inputs = TOKENS if vocabulary else IMAGES[config.inputs] if len(shape) == 3 else NUMBERS
    return CARD.format(
        client=told["client"],
        algorithm=config.algorithm,
        rows="\n".join(f"| {key} | {value} |" for key, value in told.items()),
        file=file,
        model=config.model,
        shape=shape,
        outputs=outputs,
        vocabulary=f", vocabulary={vocabulary}" if vocabulary else "",
        strict=", strict=False" if buffers else "",
        inputs=inputs,
    )


def _tested(metrics: Metrics | None) -> dict[str, str]:
    if metrics is None:
        return {"tested": "no: the client has no test samples"}
    return {f"{name} on its own tests": f"{value:.4f}" for name, value in metrics.items()}
