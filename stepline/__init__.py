"""Stepline: narrated how-to videos into clean, time-aligned steps."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("stepline")
except PackageNotFoundError:  # run from a source tree that was never installed
    __version__ = "0.0.0"
