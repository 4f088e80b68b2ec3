"""The Flower app bundle of one run: two lines of code and the run's configuration.

fedsim is installed on every machine in the same version, so its code need not travel; what does is which algorithm runs,
with which parameters. A plug-in's algorithm, too, is found where it is installed.
"""

import json
from importlib.metadata import version

from flwr.cli.build import build_fab_from_files

from fedsim.config import RunConfig

APP = '"""A run of fedsim."""\n\nfrom fedsim import {module}\n\napp = {module}.app\n'
PROJECT = """\
[project]
name = "fedsim-run"
version = "{version}"
dependencies = []

[tool.flwr.app]
publisher = "fedsim"

[tool.flwr.app.components]
serverapp = "fedsim_run.server:app"
clientapp = "fedsim_run.client:app"

[tool.flwr.app.config]
{config}
"""


def bundle(config: RunConfig) -> bytes:
    return build_fab_from_files(files(config))[0]


def files(config: RunConfig) -> dict[str, bytes]:
    """The app's files. TOML writes text, numbers and truth as JSON does; a quoted key may hold a dot."""
    lines = "\n".join(f"{json.dumps(key)} = {json.dumps(value)}" for key, value in config.flat().items())
    return {
        "pyproject.toml": PROJECT.format(version=version("fedsim"), config=lines).encode(),
        "fedsim_run/__init__.py": b'"""A run of fedsim."""\n',
        "fedsim_run/server.py": APP.format(module="server_app").encode(),
        "fedsim_run/client.py": APP.format(module="client_app").encode(),
    }
