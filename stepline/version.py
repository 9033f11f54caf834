"""The version of Stepline that runs, which every record and every run folder names."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("stepline")
except PackageNotFoundError:  # run from a source tree that was never installed
    __version__ = "0.0.0"
