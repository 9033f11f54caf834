"""What a run will take, from a sample of its videos: hours, disk, tokens and money, with intervals."""

from stepline.curate.forecast.dry_run import dry_run
from stepline.curate.forecast.model import Forecast, Interval
from stepline.curate.forecast.written import written

__all__ = ["Forecast", "Interval", "dry_run", "written"]
