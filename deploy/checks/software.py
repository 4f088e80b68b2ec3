"""Python and the installed packages, against the ranges of this package or the versions a federation agreed on."""

import platform
import sys
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, metadata, requires, version

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from deploy.finding import Finding, ok, problem


def python() -> Finding:
    here, wanted = platform.python_version(), _meta_python()
    if here in SpecifierSet(wanted):
        return ok("python", f"{here} at {sys.executable}")
    return problem("python", f"{here} at {sys.executable}, but fedsim needs {wanted}", f"use Python {wanted}")


def packages() -> list[Finding]:
    """Everything fedsim requires; torch and torchvision must also be of one build."""
    try:
        needs = [Requirement(text) for text in requires("fedsim") or []]
    except PackageNotFoundError:
        return [problem("fedsim", f"it is not installed for {sys.executable}", _install("fedsim"))]
    return [
        ok("fedsim", version("fedsim")),
        *(_fits(need, "fedsim") for need in needs if need.marker is None or need.marker.evaluate()),
        *_pair(),
    ]


def exactly(wanted: Mapping[str, str]) -> list[Finding]:
    """A federation speaks one version: whatever differs is refused before it starts."""
    return [_is(name, str(expected)) for name, expected in wanted.items()]


def _is(name: str, expected: str) -> Finding:
    found = _version(name)
    if found == expected:
        return ok(name, found)
    told = f"{found} is installed" if found else "it is not installed"
    return problem(
        name,
        f"{told} for {sys.executable}, but the federation runs {name} {expected}",
        _install(f"{name}=={expected}"),
    )


def _fits(need: Requirement, asker: str) -> Finding:
    found = _version(need.name)
    if found and need.specifier.contains(found, prereleases=True):
        return ok(need.name, found)
    told = f"{found} is installed" if found else "it is not installed"
    return problem(need.name, f"{told}, but {asker} needs {need.name} {need.specifier}", _install(str(need)))


def _pair() -> list[Finding]:
    """torchvision is built against one torch; beside another it fails at import."""
    try:
        needs = [Requirement(text) for text in requires("torchvision") or []]
    except PackageNotFoundError:
        return []
    wrong = [_fits(need, f"torchvision {version('torchvision')}") for need in needs if need.name == "torch"]
    return [finding for finding in wrong if finding.level != "ok"]


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def _meta_python() -> str:
    try:
        return metadata("fedsim")["Requires-Python"]
    except PackageNotFoundError:
        return ""  # `packages` says so


def _install(what: str) -> str:
    return f"{sys.executable} -m pip install '{what}'"
