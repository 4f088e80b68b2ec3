"""The Flower App Bundle (FAB) of every run of one version of fedsim: two modules that import fedsim's apps.

It is constant: the configuration of a run travels beside it, as Flower's run config (key `set`). fedsim and its plug-ins are
installed in the same version on every machine, so their code is not part of the bundle, and machines can refuse any other
bundle by its hash.

Private part of Flower: the function behind `flwr build`, which reads no project folder.
"""

import hashlib
import json
import tomllib
import zipfile
import zlib
from functools import cache
from io import BytesIO

from flwr.cli.build import build_fab_from_files

from fedsim.config import EXTRA_KEY, RunConfig
from fedsim.distribution import installed_version
from fedsim.errors import FedsimError

NAME = "fedsim-run"
APP = '"""A run of fedsim."""\n\nfrom fedsim.{side} import app as installed\n\napp = installed.app\n'
PROJECT = f"""\
[project]
name = "{NAME}"
version = "{{version}}"
dependencies = []

[tool.flwr.app]
publisher = "fedsim"

[tool.flwr.app.components]
serverapp = "fedsim_run.server:app"
clientapp = "fedsim_run.client:app"

[tool.flwr.app.config]
{EXTRA_KEY} = {{settings}}
"""
MANIFEST = "pyproject.toml"
LONGEST_MANIFEST = 100_000  # bytes; what is read of a bundle that is refused


class BundleRefused(FedsimError):
    """A bundle is not the one of this version of fedsim."""


@cache
def app_bundle() -> bytes:
    """The content of the FAB file, the same for every run of this version."""
    return build_fab_from_files(app_files())[0]


def app_files(settings: str = "") -> dict[str, bytes]:
    """The files of the app by path. `settings`: what its run config holds if a run brings none; the bundle has nothing."""
    return {
        MANIFEST: PROJECT.format(version=installed_version(), settings=json.dumps(settings)).encode(),
        "fedsim_run/__init__.py": b'"""A run of fedsim."""\n',
        "fedsim_run/server.py": APP.format(side="server").encode(),
        "fedsim_run/client.py": APP.format(side="client").encode(),
    }


def run_settings(config: RunConfig) -> dict[str, str]:
    """Flower's run config of a run: what `fedsim.config.from_run_config` reads back."""
    return {EXTRA_KEY: json.dumps(config.flat())}


def bundle_hash(bundle: bytes) -> str:
    """A hash of names and contents in a bundle; that of its bytes would depend on how a machine compresses."""
    return _hash(_contents(bundle))


def check_bundle(bundle: bytes) -> None:
    """Raises BundleRefused, with the reason, for any other bundle than that of the installed fedsim."""
    try:
        with zipfile.ZipFile(BytesIO(bundle)) as archive:
            sizes = sorted((entry.filename, entry.file_size) for entry in archive.infolist())
        expected = _contents(app_bundle())
        same = sizes == sorted(
            (name, len(content)) for name, content in expected.items()
        )  # before anything is unpacked
        if same and _contents(bundle) == expected:
            return
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError, NotImplementedError) as error:
        raise BundleRefused(f"the bundle cannot be read: {error}") from error
    raise BundleRefused(
        f"{_description(bundle)} is not the bundle of the installed fedsim {installed_version()} "
        f"({_hash(expected)[:12]}), and no other code is run here"
    )


def _description(bundle: bytes) -> str:
    """Names a foreign bundle by what it calls itself, if it can be read, and by its hash."""
    called = "a bundle"
    try:
        with zipfile.ZipFile(BytesIO(bundle)) as archive, archive.open(MANIFEST) as file:
            project = tomllib.loads(file.read(LONGEST_MANIFEST).decode())["project"]
            called = f"{str(project['name'])[:40]!r} {str(project['version'])[:20]}"
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError, NotImplementedError, KeyError, TypeError):
        pass  # the hash names it
    return f"{called} ({hashlib.sha256(bundle).hexdigest()[:12]})"


def _contents(bundle: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(BytesIO(bundle)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def _hash(contents: dict[str, bytes]) -> str:
    lines = [f"{hashlib.sha256(content).hexdigest()} {name}\n" for name, content in sorted(contents.items())]
    return hashlib.sha256("".join(lines).encode()).hexdigest()
