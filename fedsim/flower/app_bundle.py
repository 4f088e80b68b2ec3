"""The Flower App Bundle (FAB) of one run: two modules that import fedsim's apps, and the run's configuration.

fedsim and its plug-ins are installed in the same version on every machine, so their code is not part of the bundle.

Private part of Flower: the function behind `flwr build`, which reads no project folder.
"""

import json

from flwr.cli.build import build_fab_from_files

from fedsim.config import RunConfig
from fedsim.distribution import installed_version

APP = '"""A run of fedsim."""\n\nfrom fedsim.{side} import app as installed\n\napp = installed.app\n'
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


def app_bundle(config: RunConfig) -> bytes:
    """The content of the FAB file that runs this configuration."""
    return build_fab_from_files(app_files(config))[0]


def app_files(config: RunConfig) -> dict[str, bytes]:
    """The files of the app by path. TOML writes strings, numbers and booleans as JSON does; a quoted key may hold a dot."""
    lines = "\n".join(f"{json.dumps(key)} = {json.dumps(value)}" for key, value in config.flat().items())
    return {
        "pyproject.toml": PROJECT.format(version=installed_version(), config=lines).encode(),
        "fedsim_run/__init__.py": b'"""A run of fedsim."""\n',
        "fedsim_run/server.py": APP.format(side="server").encode(),
        "fedsim_run/client.py": APP.format(side="client").encode(),
    }
