"""The table of the configuration's keys in docs/configuration.md, from the fields of `RunConfig` and the comments behind
them. `python -m docsite.keys` writes it."""

import re
from collections.abc import Iterator
from pathlib import Path

from docsite.tables import table
from fedsim import registry
from fedsim.config import RunConfig
from fedsim.parameters import parameters

PAGE = Path(__file__).parent.parent / "docs" / "configuration.md"
TABLE = re.compile(r"(?<=\n)\| key \| type and range \|.*?\n(?=\n)", re.DOTALL)
SEE = {  # where a key is explained
    "dataset": "data.md",
    "partition": "data.md#partitions",
    "model": "models.md",
    "target": "experiments.md#rounds-to-a-target",
    "public": "data.md#public-data",
    "pace": "stragglers.md#paces",
    "stragglers": "stragglers.md#straggler-models",
    "aggregator": "adversaries.md#aggregators",
    "attack": "adversaries.md#attacks",
    "server-optimizer": "#options-of-every-algorithm",
    "finetune": "#options-of-every-algorithm",
    "metrics": "reliability.md#watching-a-run",
    "log": "watch.md#trackers",
    "refusals": "reliability.md#what-the-server-believes",
    "nodes": "security.md#who-is-who",
}


def keys() -> str:
    """The table."""
    return table(["key", "type and range", "default", "meaning"], list(_rows())) + "\n"


def _rows() -> Iterator[list[str]]:
    for parameter in parameters(RunConfig):
        values = "name" if parameter.key in registry.KINDS else parameter.allowed
        default = "empty" if parameter.default == "" else f"`{parameter.shown_default}`"
        see = f" ([more]({SEE[parameter.key]}))" if parameter.key in SEE else ""
        yield [f"`{parameter.key}`", values, default, parameter.meaning + see]


if __name__ == "__main__":
    PAGE.write_text(TABLE.sub(lambda _: keys(), PAGE.read_text()))
