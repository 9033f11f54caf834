"""The report of a run, made from what the run left in OUT, and written there.

`collect_report` goes over the records once. Counts grow by a few numbers for each video, and the examples
and the audit's texts are random samples of bounded size.
"""

import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from stepline.curate.audit import AuditSampler
from stepline.curate.report.counts import DatasetCounts, count_stage_losses
from stepline.curate.report.examples import ExampleVideo, example_video, read_jpegs, video_link
from stepline.curate.report.page import Report, audit_times, render_page
from stepline.curate.sampling import ReservoirSample
from stepline.curate.settings import ReportSettings
from stepline.curate.stage import DATASET_FOLDER, Recipe, StageFailure
from stepline.curate.store.results import list_files
from stepline.curate.store.run_log import ITEMS_FILE, RUN_FILE, read_items, read_recipe
from stepline.errors import SteplineError, StoreError
from stepline.files.remote import RemotePath
from stepline.limits import parse_json
from stepline.records import Record
from stepline.review.answers import AnswerLog
from stepline.storage import read_parquet

MAX_EXAMPLE_STEPS = 4  # of a video
# Below OUT.
REPORT_NAME = "report.html"
VERDICTS_PATH = "audit/verdicts.jsonl"


def read_dataset(out: RemotePath) -> Iterator[Record]:
    """Yield all records of the published dataset, also those of videos that are left out.

    out: output folder of the run.

    Raises StoreError if there is no dataset.
    """
    folder = out / DATASET_FOLDER / "data"
    names = sorted(entry.name for entry in list_files(folder) if entry.name.endswith(".parquet"))
    if not names:
        raise StoreError(
            f"{folder.display_url}: no dataset yet; `stepline curate` writes it when all stages "
            "are done"
        )
    # Shards of a store are fetched one at a time, so that one of them is on the disk.
    for name in names:
        with tempfile.TemporaryDirectory(prefix="stepline-") as scratch:
            yield from read_parquet(_fetch_if_remote(folder / name, Path(scratch)))


def _fetch_if_remote(file: RemotePath, scratch: Path) -> Path:
    """Return the local path of a file, which is downloaded into `scratch` if it is remote."""
    if file.local is not None:
        return file.local
    # Names of files elsewhere may be anything. Readers need the suffix.
    copy = scratch / f"file{Path(file.name).suffix[:16]}"
    file.fetch(copy)
    return copy


def read_report_recipe(out: RemotePath) -> Recipe:
    """Return the recipe of the last run. Without a run, return the default recipe.

    out: output folder of the run.
    """
    return read_recipe(out) if (out / RUN_FILE).exists() else Recipe()


def collect_report(
    records: Iterable[Record], settings: ReportSettings, stages: Sequence[str] = ()
) -> Report:
    """Return the report of a dataset without frames and links.

    Args:
        records: all records, also those of videos that are left out.
        settings: sizes of the random samples, and their seed.
        stages: names of the stages of the recipe.
    """
    counts = DatasetCounts()
    sampler = AuditSampler(videos=settings.audit_videos, seed=settings.seed)
    examples = ReservoirSample[ExampleVideo](settings.examples, seed=settings.seed)
    left_out = []
    for record in records:
        if counts.add(record):
            sampler.add(record)
            examples.add(record.id, example_video(record, MAX_EXAMPLE_STEPS))
        else:
            left_out.append(_read_failure(record))
    losses = count_stage_losses(left_out, counts.kept_videos, stages)
    return Report(counts, losses, sampler.sample(), examples.values())


def _read_failure(record: Record) -> StageFailure:
    # A video that is left out has one such entry, with the stage in front of the reason.
    dropped = next(dropped for dropped in record.dropped if dropped.what == "video")
    stage = dropped.text or "the dataset"
    return StageFailure(record.id, stage, "left out", dropped.reason.removeprefix(f"{stage}: "))


def make_report(out: RemotePath, settings: ReportSettings, *, with_audit: bool = False) -> Report:
    """Return the report of the dataset in an output folder, with frames and links.

    Args:
        out: output folder of the run.
        settings: sizes of the random samples, and whether frames are shown.
        with_audit: whether to read the frames of the audited texts too.

    Raises StoreError if there is no dataset.
    """
    # What the dataset and the run record of themselves, as JSON.
    provenance = {}
    for path in (out / DATASET_FOLDER / "dataset.json", out / RUN_FILE):
        if path.exists():
            provenance[path.name] = path.read().decode("utf-8", "replace")
    stages = parse_json(provenance.get(RUN_FILE, "{}")).get("stages", ())
    report = collect_report(read_dataset(out), settings, stages)
    addresses = _video_addresses(out, report)

    # Files are fetched only where pictures are wanted.
    frames: dict[str, Mapping[float, bytes]] = {}
    notes = []
    if settings.frames:
        times = {e.record.id: {step.at for step in e.steps} for e in report.examples}
        if with_audit:
            for id in report.sample.videos:
                times.setdefault(id, set()).update(audit_times(report.sample, id))
        for id, seconds in times.items():
            try:
                frames[id] = _read_frames(addresses.get(id), seconds, out)
            except SteplineError as error:
                notes.append(f"{id}: no pictures ({error})")
                continue
            if not frames[id]:
                notes.append(f"{id}: no pictures, its file is not on this machine")
    links = {}
    for example in report.examples:
        video = example.record.video
        # The video's file, else the page that it is from.
        link = video_link(addresses.get(example.record.id), out.local)
        if link is None and video.origin is not None:
            link = video_link(video.origin.url, out.local)
        if link is not None:
            links[example.record.id] = link
    return replace(report, frames=frames, links=links, notes=notes, provenance=provenance)


def _video_addresses(out: RemotePath, report: Report) -> dict[str, str]:
    """Return the path or URL of the file of each example and audited video, by id."""
    addresses = {id: video.path for id, video in report.sample.videos.items()}
    addresses |= {e.record.id: e.record.video.path for e in report.examples}
    # The run's list names the file itself. A published record has only its path in the source.
    if (out / ITEMS_FILE).exists():
        for item in read_items(out):
            if item.id in addresses and item.video:
                addresses[item.id] = item.video
    return {id: address for id, address in addresses.items() if address is not None}


def _read_frames(
    address: str | None, times: Iterable[float], out: RemotePath
) -> Mapping[float, bytes]:
    """Return second -> JPEG of a video. Empty if its file is missing.

    Args:
        address: path or URL of the video, None if unknown.
        times: seconds of the frames.
        out: output folder of the run, with the settings of remote files.
    """
    if address is None:
        return {}
    file = RemotePath(address, out.settings)
    if file.local is not None and not file.local.exists():
        return {}
    with tempfile.TemporaryDirectory(prefix="stepline-") as scratch:
        return read_jpegs(_fetch_if_remote(file, Path(scratch)), sorted(times))


def write_report(out: RemotePath, settings: ReportSettings, report: Report | None = None) -> Report:
    """Write report.html with the answers of the audit so far, and return the report.

    Args:
        out: output folder of the run.
        settings: sizes of the random samples, and whether frames are shown.
        report: the report, if it was made already. None: it is made from the dataset.
    """
    if report is None:
        report = make_report(out, settings)
    verdicts = [] if out.local is None else list(open_verdicts(out))
    (out / REPORT_NAME).write(render_page(report, verdicts))
    return report


def open_verdicts(out: RemotePath) -> AnswerLog:
    """Return the log of the answers of the audit in an output folder.

    Raises StoreError if the output folder is remote.
    """
    if out.local is None:
        raise StoreError(
            f"{out.display_url}: an audit keeps its verdicts on this machine; copy OUT/dataset "
            "here first"
        )
    return AnswerLog(out.local / VERDICTS_PATH)
