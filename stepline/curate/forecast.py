"""How long a run will take, from a random sample of its videos.

The sample is worked on in OUT, so the run that follows finds its results. The time of the other
videos is the mean time of the sample. Stages over all videos, such as training, are not foreseen.
"""

import json
from dataclasses import asdict, dataclass, replace
from itertools import takewhile

import numpy as np

from stepline.curate.driver import RunRequest, collect_items, output_path, run_recipe
from stepline.curate.stage import SourceEntry, resolve_stages
from stepline.curate.store.run_log import read_number, read_timings
from stepline.networks.device import core_count

SECONDS_PER_HOUR = 3600.0


@dataclass(frozen=True)
class Forecast:
    """How long the stages of each video take for all videos.

    Attributes:
        videos: how many the source has.
        sampled: how many of them were worked on.
        seconds_per_video: mean wall seconds of one worker, over the sample.
        workers: processes that work at the same time.
        hours: wall hours of all videos with these workers.
    """

    videos: int
    sampled: int
    seconds_per_video: float
    workers: int
    hours: float


def dry_run(request: RunRequest, source: list[SourceEntry]) -> Forecast:
    """Work on a sample of a source and return how long all of it will take."""
    recipe = request.recipe
    items = collect_items(source, request.limit).items
    sample_size = min(recipe.forecast.sample, len(items))
    rng = np.random.default_rng(recipe.forecast.seed)
    sample = [items[row] for row in rng.choice(len(items), sample_size, replace=False)]
    stages = resolve_stages(recipe, request.stages)
    video_stages = takewhile(lambda stage: stage.kind == "video", stages)
    sample_recipe = recipe.model_copy(update={"stages": tuple(s.name for s in video_stages)})
    run_recipe(replace(request, recipe=sample_recipe, limit=None), sample)

    # What an earlier run did of the sample counts by its own log.
    ids = {item.id for item in sample}
    seconds = {}
    for line in read_timings(output_path(request)):
        if line["event"] == "end" and line["id"] in ids:
            seconds[line["id"], line["stage"]] = read_number(line, "wall")
    seconds_per_video = sum(seconds.values()) / sample_size
    workers = recipe.engine.workers or core_count()
    hours = len(items) * seconds_per_video / workers / SECONDS_PER_HOUR
    return Forecast(len(items), sample_size, seconds_per_video, workers, hours)


def forecast_json(forecast: Forecast) -> str:
    """Return a forecast as JSON: counts, seconds and hours."""
    return json.dumps(asdict(forecast), indent=2)


def format_forecast(forecast: Forecast) -> str:
    """Return a forecast as text for people."""
    seconds = f"{forecast.seconds_per_video:.1f} s per video"
    return (
        f"{forecast.videos:,} videos, {seconds} in a sample of {forecast.sampled}\n"
        f"with {forecast.workers} workers at the same time: {forecast.hours:,.2f} h\n"
        "Stages over all videos, such as training, come on top."
    )
