"""The first half of a workflow: what the run will take, and the run itself with what it made."""

import hashlib
import json
import logging
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path

from pydantic import JsonValue

from stepline.curate.driver import RunRequest, curate, source_items
from stepline.curate.forecast.dry_run import FORECAST_FOLDER, dry_run, format_bytes, format_seconds
from stepline.curate.stage import StageFailure, VideoItem
from stepline.curate.stages.gather import FEATURES_FOLDER, RECORDS_FILE, read_left_out
from stepline.curate.store.results import StageFolders
from stepline.curate.store.run_log import log_totals, read_items
from stepline.errors import SettingsError, StoreError
from stepline.features import FeatureStore
from stepline.files.atomic_files import write_atomic
from stepline.files.remote import RemotePath
from stepline.files.storage import read_parquet
from stepline.limits import parse_json
from stepline.networks.device import core_count
from stepline.records import Record

log = logging.getLogger(__name__)

SECONDS_PER_HOUR = 3600.0
FORECAST_FILE = "forecast.json"
WITHOUT_COST = {"export", "report"}  # sections of a recipe that hardly change what a run takes


@dataclass(frozen=True)
class RunForecast:
    """What a run will take: CPU and wall seconds, bytes below OUT at most, from `sampled` of its
    videos.

    source: a sha256 of the videos and settings that it is of. low, high: the 95 % interval of CPU.
    """

    source: str
    videos: int
    sampled: int
    cpu: float
    low: float
    high: float
    wall: float
    workers: int
    disk: float

    def __str__(self) -> str:
        """Return it in one line."""
        interval = f"[{format_seconds(self.low)}, {format_seconds(self.high)}]"
        work = f"{format_seconds(self.cpu)} {interval} of CPU, {format_seconds(self.wall)}"
        workers = f"{self.workers} worker{'s' if self.workers > 1 else ''}"
        room = f"{format_bytes(self.disk)} of disk"
        videos = f"{self.videos:,} videos, from {self.sampled} of them"
        return f"{work} with {workers}, {room} for {videos}"


def forecast_run(request: RunRequest, folder: Path) -> RunForecast:
    """Return what a run will take, as an earlier call found it or by working on a sample.

    Raises SettingsError where the disk has less room than that.
    """
    # A forecast holds for the same videos, recipe and limit.
    entries = list(source_items(request))
    content = request.recipe.model_dump_json(exclude=WITHOUT_COST)
    digest = hashlib.sha256(content.encode())
    for entry in entries:
        stamp = entry.stamp if isinstance(entry, VideoItem) else entry.reason
        digest.update(f"{entry.id}\n{stamp}\n".encode())
    digest.update(str(request.limit).encode())
    source = digest.hexdigest()
    # An earlier one, or one from a sample.
    forecast = _stored_forecast(folder / FORECAST_FILE, source)
    if forecast is None:
        request.say("forecast: a sample of the videos is processed")
        # Lines of the sample's own run go to the log.
        quiet = replace(request, say=log.info)
        result = dry_run(quiet, entries, request.recipe.forecast)
        workers = request.recipe.engine.workers or core_count()
        forecast = RunForecast(
            source,
            result.videos,
            result.sampled,
            result.cpu_hours.value * SECONDS_PER_HOUR,
            result.cpu_hours.low * SECONDS_PER_HOUR,
            result.cpu_hours.high * SECONDS_PER_HOUR,
            result.hours[workers].value * SECONDS_PER_HOUR,
            workers,
            # The upper end of the interval, since a full disk ends a run.
            result.disk.high,
        )
        _check_disk(folder, forecast)
        write_atomic(folder / FORECAST_FILE, json.dumps(asdict(forecast), indent=1) + "\n")
    return forecast


def _stored_forecast(path: Path, source: str) -> RunForecast | None:
    """Return the forecast in a file, or None where none is there, or it is of something else."""
    if not path.exists():
        return None
    try:
        forecast = RunForecast(**parse_json(path.read_bytes()))
    except (ValueError, TypeError) as error:
        raise StoreError(f"{path}: not a forecast ({error}); remove it") from error
    return forecast if forecast.source == source else None


def _check_disk(folder: Path, forecast: RunForecast) -> None:
    free = shutil.disk_usage(folder).free
    if free < forecast.disk:
        needed = f"{format_bytes(forecast.disk)} are needed, {format_bytes(free)} are free"
        raise SettingsError(f"{folder}: {needed}; give an --out with more room")


@dataclass(frozen=True)
class Curation:
    """What the run made. records: sorted by id, as machines have them. settings: what decides each
    stage.

    folder: of the stage `gather`, with the features.
    """

    out: Path
    folder: Path
    records: tuple[Record, ...]
    left_out: Mapping[str, StageFailure]
    items: Mapping[str, VideoItem]
    settings: Mapping[str, JsonValue]
    cpu: float

    @cached_property
    def features(self) -> FeatureStore | None:
        """The features of its videos. None where no video has a picture."""
        folder = self.folder / FEATURES_FOLDER
        return FeatureStore(folder) if any(folder.glob("shard-*")) else None

    @cached_property
    def media(self) -> dict[str, Path]:
        """The videos' files on this machine, by id."""
        files = {}
        for id, item in self.items.items():
            path = RemotePath(item.video).local if item.video is not None else None
            if path is not None and path.exists():
                files[id] = path
        return files

    @property
    def durations(self) -> dict[str, float]:
        """The videos' seconds, by id, where they are known."""
        durations = {}
        for record in self.records:
            if record.video.duration is not None:
                durations[record.id] = record.video.duration
        return durations

    def __str__(self) -> str:
        """Return it in one line."""
        steps = sum(len(record.steps) for record in self.records)
        videos = f"{len(self.records):,} videos with {steps:,} steps"
        return f"{videos}, {len(self.left_out):,} left out, {format_seconds(self.cpu)} of CPU"


def curate_videos(request: RunRequest) -> Curation:
    """Take the videos through the recipe, or find that done, and return what was made.

    Raises a SteplineError for what ends a run. The same request goes on.
    """
    # People watch the files, so they have to be on this machine.
    outcome, out = curate(request)
    if out.local is None:
        what = f"{out.display_url}: people review on this machine"
        raise SettingsError(f"{what}; give a folder of it as --out")
    folder = StageFolders(out).local_folder("gather", outcome.plan.dataset_keys["gather"])
    return Curation(
        out=out.local,
        folder=folder,
        records=tuple(read_parquet(folder / RECORDS_FILE)),
        left_out=read_left_out(folder),
        items={item.id: item for item in read_items(out)},
        settings=outcome.plan.settings,
        cpu=_cpu_seconds(out),
    )


def _cpu_seconds(out: RemotePath) -> float:
    """Return what all work below OUT took, that of the forecast included."""
    # The sample of the forecast worked in folders of its own.
    folders = [out]
    if out.local is not None:
        samples = sorted((out.local / FORECAST_FOLDER).glob("*/"))
        folders += [RemotePath(str(folder)) for folder in samples]
    seconds = 0.0
    for folder in folders:
        for totals in log_totals(folder):
            seconds += sum(totals.cpu.values())
    return seconds
