"""The report of a run, made from what it left in OUT (records, failures, provenance, verdicts), and
written there."""

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from stepline.curate.audit.sample import AuditSample
from stepline.curate.audit.verdicts import VERDICTS_FILE, Verdict, Verdicts
from stepline.curate.report.collect import ReportFindings, collect
from stepline.curate.report.examples import (
    ExamplePictures,
    ExampleView,
    example_pictures,
    example_view,
)
from stepline.curate.report.page import Frames, key_frames, render_page, small_jpeg
from stepline.curate.settings import ReportSettings
from stepline.curate.stage import DATASET_FOLDER, Recipe, StageFailure
from stepline.curate.store.manifests import files_in
from stepline.curate.store.results import FAILURES_FOLDER
from stepline.curate.store.run_log import ITEMS_FILE, RUN_FILE, read_items, read_recipe
from stepline.errors import StoreError
from stepline.limits import parse_json
from stepline.records import Record
from stepline.remote import RemotePath
from stepline.storage import read_parquet
from stepline.text_base.base import open_base


def read_dataset(out: RemotePath) -> Iterator[Record]:
    """Yield the records of the dataset below OUT, kept and left out. Raises StoreError where there
    is no dataset."""
    folder = out / DATASET_FOLDER / "data"
    names = sorted(entry.name for entry in files_in(folder))
    shards = [folder / name for name in names if name.endswith(".parquet")]
    if not shards:
        what = f"{folder.display_url}: no dataset yet"
        raise StoreError(f"{what}; `stepline curate` writes it when all stages are done")
    for shard in shards:
        if shard.local is not None:
            yield from read_parquet(shard.local)
            continue
        with tempfile.TemporaryDirectory(prefix="stepline-") as scratch:
            copy = Path(scratch) / "shard.parquet"
            shard.fetch(copy)
            yield from read_parquet(copy)


def read_failures(out: RemotePath) -> list[StageFailure]:
    """Return every failure that the run noted, sorted by stage and id."""
    folder = out / FAILURES_FOLDER
    failures = []
    for entry in files_in(folder):
        if entry.name.endswith(".json"):
            file = folder / entry.name
            failures.append(StageFailure.from_json(file.read(), file.display_url))
    return sorted(failures, key=lambda failure: (failure.stage, failure.id))


def report_recipe(out: RemotePath) -> Recipe:
    """Return the recipe of the run on OUT, with the settings of its report; the usual one where
    there was no run."""
    return read_recipe(out) if (out / RUN_FILE).exists() else Recipe()


# below OUT
REPORT_NAME = "report.html"
AUDIT_FOLDER = "audit"


@dataclass(frozen=True)
class Report:
    """What a report shows, apart from verdicts."""

    findings: ReportFindings
    frames: Frames
    examples: tuple[ExampleView, ...] = ()

    def html(self, verdicts: Sequence[Verdict] = ()) -> str:
        """Return the page with the verdicts so far."""
        return render_page(self.findings, verdicts, self.frames, self.examples)


def make_report(out: RemotePath, settings: ReportSettings) -> Report:
    """Return the report of the dataset below OUT. Raises StoreError where there is none."""
    documents = open_base(settings.text_base).documents() if settings.text_base is not None else ()
    # What the dataset and the run record of themselves, as JSON.
    provenance = {}
    for path in (out / DATASET_FOLDER / "dataset.json", out / RUN_FILE):
        if path.exists():
            provenance[path.name] = path.read().decode("utf-8", "replace")
    run = parse_json(provenance.get("run.json", "{}"))
    findings = collect(
        read_dataset(out),
        settings,
        failures=read_failures(out),
        documents=documents,
        provenance=provenance,
        stages=tuple(run.get("stages", ())),
    )
    frames: Frames = {}
    pictures: ExamplePictures = {}
    sample = findings.sample
    paths = {id: sample.paths.get(id) for id in sample.titles}
    paths |= {example.id: example.path for example in findings.examples}
    addresses = video_addresses(out, paths)
    if settings.frames:
        with tempfile.TemporaryDirectory(prefix="stepline-") as scratch:
            media = local_media(addresses, out, Path(scratch))
            frames, notes = key_frames(sample, media, settings.frame_width)
            pictures, other_notes = example_pictures(findings.examples, media, small_jpeg)
        all_notes = dict.fromkeys([*findings.notes, *notes, *other_notes])
        findings = replace(findings, notes=tuple(all_notes))
    folder = out.local
    views = []
    for example in findings.examples:
        of_video = pictures.get(example.id, {})
        views.append(example_view(example, addresses.get(example.id), of_video, folder))
    return Report(findings, frames, tuple(views))


def write_report(out: RemotePath, settings: ReportSettings, report: Report | None = None) -> Report:
    """Write OUT/report.html, with the verdicts that are there, and return what it shows. report:
    where it was made before."""
    report = report or make_report(out, settings)
    verdicts = [] if out.local is None else list(local_verdicts(out))
    (out / REPORT_NAME).write(report.html(verdicts))
    return report


def local_verdicts(out: RemotePath, file: str = VERDICTS_FILE) -> Verdicts:
    """Return the verdicts of auditors, to be added to; file: that of people, or of models.

    Raises StoreError where OUT is not on this machine.
    """
    if out.local is None:
        what = f"{out.display_url}: an audit keeps its verdicts on this machine"
        raise StoreError(f"{what}; copy OUT/dataset here first")
    return Verdicts(out.local / AUDIT_FOLDER / file)


def video_addresses(out: RemotePath, paths: Mapping[str, str | None]) -> dict[str, str]:
    """Return where the file of each video is, as the run's list of items names it, else its record.

    paths: by id, as the records name them.
    """
    addresses = {id: path for id, path in paths.items() if path is not None}
    for item in read_items(out) if (out / ITEMS_FILE).exists() else ():
        if item.id in paths and item.video:
            addresses[item.id] = item.video
    return addresses


def sample_media(
    out: RemotePath, sample: AuditSample, scratch: Path
) -> Callable[[str], Path | None]:
    """Return what finds the file of a sample's video on this machine; it is fetched where it is
    elsewhere."""
    paths = {id: sample.paths.get(id) for id in sample.titles}
    return local_media(video_addresses(out, paths), out, scratch)


def local_media(
    addresses: Mapping[str, str], out: RemotePath, scratch: Path
) -> Callable[[str], Path | None]:
    """Return what finds a video's file on this machine; it is fetched where it is elsewhere."""

    def media(video: str) -> Path | None:
        url = addresses.get(video)
        if url is None:
            return None
        path = RemotePath(url, out.settings)
        if path.local is not None:
            return path.local if path.local.exists() else None
        target = scratch / f"{len(list(scratch.iterdir()))}{Path(path.name).suffix[:16]}"
        path.fetch(target)
        return target

    return media
