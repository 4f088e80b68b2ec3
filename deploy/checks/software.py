"""Checks of Python and the installed packages against what fedsim requires, or what a federation runs."""

import platform
import sys
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, metadata, requires, version

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from fedsim import distribution
from fedsim.deploy.finding import Finding, ok, problem

# The remedy is no `pip install NAME`: only the source or wheel of the federation itself is sure to be the right one.
FEDSIM = (
    "run `fedsim deploy up --install` where federation.toml is, "
    f"or install its wheel {distribution.NAME.replace('-', '_')}-*.whl by hand"
)


def python() -> Finding:
    """The Python version against fedsim's own metadata."""
    here, wanted = platform.python_version(), _requires_python()
    if here in SpecifierSet(wanted):
        return ok("python", f"{here} at {sys.executable}")
    return problem("python", f"{here} at {sys.executable}, but fedsim needs {wanted}", f"use Python {wanted}")


def packages() -> list[Finding]:
    """Every package that fedsim requires; torch and torchvision must also belong together."""
    try:
        needs = [Requirement(text) for text in requires(distribution.NAME) or []]
    except PackageNotFoundError:
        return [problem("fedsim", f"it is not installed for {sys.executable}", FEDSIM)]
    return [
        ok("fedsim", version(distribution.NAME)),
        *(_satisfies(need, "fedsim") for need in needs if need.marker is None or need.marker.evaluate()),
        *_torch_pair(),
    ]


def exact_versions(wanted: Mapping[str, str]) -> list[Finding]:
    """Packages that must have the same version on all machines of a federation."""
    return [_exact(name, str(expected)) for name, expected in wanted.items()]


def _exact(name: str, expected: str) -> Finding:
    found = _version(name)
    if found == expected:
        return ok(name, found)
    told = f"{found} is installed" if found else "it is not installed"
    return problem(
        name,
        f"{told} for {sys.executable}, but the federation runs {name} {expected}",
        FEDSIM if name == distribution.NAME else _install(f"{name}=={expected}"),
    )


def _satisfies(need: Requirement, by: str) -> Finding:
    found = _version(need.name)
    if found and need.specifier.contains(found, prereleases=True):
        return ok(need.name, found)
    told = f"{found} is installed" if found else "it is not installed"
    return problem(need.name, f"{told}, but {by} needs {need.name} {need.specifier}", _install(str(need)))


def _torch_pair() -> list[Finding]:
    """torchvision is built for one version of torch; with another one its import fails."""
    try:
        needs = [Requirement(text) for text in requires("torchvision") or []]
    except PackageNotFoundError:
        return []
    wrong = [_satisfies(need, f"torchvision {version('torchvision')}") for need in needs if need.name == "torch"]
    return [finding for finding in wrong if finding.level != "ok"]


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def _requires_python() -> str:
    try:
        return metadata(distribution.NAME)["Requires-Python"]
    except PackageNotFoundError:
        return ""  # not installed, which `packages` reports


def _install(what: str) -> str:
    return f"{sys.executable} -m pip install '{what}'"
