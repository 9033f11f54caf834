"""The versions of Stepline and of its libraries, which records and run folders name."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("stepline")
except PackageNotFoundError:  # run from a source tree that was never installed
    __version__ = "0.0.0"


def package_version(package: str) -> str:
    """Return the version of an installed Python package, "" if it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def minor_version(package: str) -> str:
    """Return "major.minor" of the version of an installed Python package, "" if not installed."""
    return ".".join(package_version(package).split(".")[:2])
