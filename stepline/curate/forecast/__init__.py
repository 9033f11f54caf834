"""What a run will take, from a sample of its videos: hours, disk, tokens and money, with
intervals."""

from stepline.curate.forecast.dry_run import dry_run, forecast_json, format_forecast
from stepline.curate.forecast.model import Forecast, Interval

__all__ = ["Forecast", "Interval", "dry_run", "forecast_json", "format_forecast"]
