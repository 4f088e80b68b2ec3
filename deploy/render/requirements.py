"""The hashes of everything that fedsim needs, for images and services that install nothing else.

    python -m fedsim.deploy.render.requirements > deploy/render/templates/requirements.txt

in an environment of constraints.txt, whenever that has changed. The versions are those that are installed here; the index
that pip uses tells the hashes of their wheels for Linux, which pip compares with what it downloads (`--require-hashes`).
"""

import re
import sys
from collections.abc import Iterator
from importlib.metadata import distribution, requires
from urllib.parse import unquote
from urllib.request import urlopen

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name, parse_wheel_filename

from fedsim.distribution import NAME

HEADER = "# Made by `python -m fedsim.deploy.render.requirements`: what fedsim needs on Linux, by hash.\n"
MACHINES = ("x86_64", "aarch64")
WHEEL = re.compile(r">([^<>]+\.whl)<")
DIGEST = re.compile(r"#sha256=([0-9a-f]{64})")
PYTHONS = ("3.11", "3.12", "3.13")
INTERPRETERS = {"py3", *(f"cp{version.replace('.', '')}" for version in PYTHONS)}
PLATFORMS = re.compile(rf"any|(manylinux|linux).*({'|'.join(MACHINES)})")


def needed() -> dict[str, str]:
    """What fedsim needs to run on one of MACHINES with one of PYTHONS, by name, with the installed version."""
    found: dict[str, str] = {}
    waiting = [Requirement(NAME)]
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        key = f"{name}[{','.join(sorted(requirement.extras))}]"
        if key in found:
            continue
        found[key] = distribution(name).version
        waiting += _requirements(name, requirement.extras)
    versions = {key.partition("[")[0]: version for key, version in found.items()}
    return {name: versions[name] for name in sorted(versions) if name != canonicalize_name(NAME)}


def _requirements(name: str, extras: set[str]) -> Iterator[Requirement]:
    for text in requires(name) or []:
        requirement = Requirement(text)
        places = [
            {
                "platform_machine": machine,
                "sys_platform": "linux",
                "platform_system": "Linux",
                "python_version": python,
                "python_full_version": f"{python}.0",
                "extra": extra,
            }
            for machine in MACHINES
            for python in PYTHONS
            for extra in (*extras, "")
        ]
        if requirement.marker is None or any(requirement.marker.evaluate(place) for place in places):
            yield requirement


def hashes(index: str, name: str, version: str) -> list[str]:
    """The SHA-256 hashes of the wheels of this version for Linux, which the page of a package index lists; raises
    LookupError if there is none."""
    with urlopen(f"{index.rstrip('/')}/{name}/", timeout=60) as answer:
        page = answer.read().decode()
    found = set[str]()
    for link in page.split("<a ")[1:]:
        wheel, digest = WHEEL.search(link), DIGEST.search(link)
        if wheel and digest and _fits(unquote(wheel[1]), version):
            found.add(digest[1])
    if not found:
        raise LookupError(f"the index has no wheel of {name} {version} for Linux")
    return sorted(found)


def _fits(filename: str, version: str) -> bool:
    if not filename.endswith(".whl"):
        return False
    _, found, _, tags = parse_wheel_filename(filename)
    if str(found) != version.partition("+")[0]:
        return False
    return any((t.interpreter in INTERPRETERS or t.abi == "abi3") and PLATFORMS.fullmatch(t.platform) for t in tags)


def main() -> int:
    from pip._internal.models.index import PyPI

    print(HEADER, end="")
    for name, version in needed().items():
        found = [f"--hash=sha256:{digest}" for digest in hashes(PyPI.simple_url, name, version)]
        print(" \\\n    ".join([f"{name}=={version.partition('+')[0]}", *found]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
