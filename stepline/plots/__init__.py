"""Plots as SVG text, drawn from counts: no library, no script, nothing fetched. style.css gives them their colours."""

from importlib.resources import files

from stepline.plots.bars import grouped, histogram, ranked
from stepline.plots.cloud import cloud
from stepline.plots.fall import Level, fall
from stepline.plots.scatter import scatter

__all__ = ["Level", "cloud", "fall", "grouped", "histogram", "plot_style", "ranked", "scatter"]


def plot_style() -> str:
    """Return the style sheet of the plots, for light and dark pages."""
    return files("stepline.plots").joinpath("style.css").read_text(encoding="utf-8")
