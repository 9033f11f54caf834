"""The version of Stepline that runs, which every record and every run folder names, and those of
its libraries."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("stepline")
except PackageNotFoundError:  # run from a source tree that was never installed
    __version__ = "0.0.0"


def package_version(package: str) -> str:
    """Return the version of an installed package, "" where it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def minor_version(package: str) -> str:
    """Return the first two numbers of a package's version, "" where it is not installed."""
    return ".".join(package_version(package).split(".")[:2])
