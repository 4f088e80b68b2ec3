"""The distribution's name, which differs from the import name: `fedsim` on PyPI is another project."""

from importlib.metadata import PackageNotFoundError, version

NAME = "fedsim-flower"


def installed_version() -> str:
    """The version of the installed distribution; "unknown" if fedsim runs from a folder that was never installed."""
    try:
        return version(NAME)
    except PackageNotFoundError:
        return "unknown"
