"""The report of a run, made from what it left in OUT (records, failures, provenance, verdicts), and
written there."""

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from stepline.curate.audit.sample import AuditSample
from stepline.curate.audit.verdicts import VERDICTS_FILE
from stepline.curate.report.collect import ReportFindings, collect
from stepline.curate.report.examples import (
    ExamplePictures,
    ShownExample,
    example_pictures,
    video_link,
)
from stepline.curate.report.page import Frames, key_frames, render_page, small_jpeg
from stepline.curate.settings import ReportSettings
from stepline.curate.stage import DATASET_FOLDER, Recipe, StageFailure
from stepline.curate.store.results import FAILURES_FOLDER, files_in
from stepline.curate.store.run_log import ITEMS_FILE, RUN_FILE, read_items, read_recipe
from stepline.errors import StoreError
from stepline.files.remote import RemotePath
from stepline.limits import parse_json
from stepline.records import Record
from stepline.review.answers import Answer, AnswerLog
from stepline.storage import read_parquet


def read_dataset(out: RemotePath) -> Iterator[Record]:
    """Yield the records of the dataset below OUT, kept and left out. Raises StoreError where there
    is no dataset."""
    folder = out / DATASET_FOLDER / "data"
    names = [entry.name for entry in files_in(folder)]
    shards = []
    for name in sorted(names):
        if name.endswith(".parquet"):
            shards.append(folder / name)
    if not shards:
        what = f"{folder.display_url}: no dataset yet"
        raise StoreError(f"{what}; `stepline curate` writes it when all stages are done")
    # Shards of a store are fetched one at a time, so that one of them is on the disk.
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
            failure = StageFailure.from_json(file.read(), file.display_url)
            failures.append(failure)
    failures.sort(key=lambda failure: (failure.stage, failure.id))
    return failures


def report_recipe(out: RemotePath) -> Recipe:
    """Return the recipe of the run on OUT, with the settings of its report. It is the usual one
    where there was no run."""
    if not (out / RUN_FILE).exists():
        return Recipe()
    return read_recipe(out)


# Below OUT.
FRAME_WIDTH = 176  # pixels of a picture
REPORT_NAME = "report.html"
AUDIT_FOLDER = "audit"


@dataclass(frozen=True)
class Report:
    """What a report shows, apart from verdicts."""

    findings: ReportFindings
    frames: Frames
    examples: tuple[ShownExample, ...] = ()

    def html(self, verdicts: Sequence[Answer] = ()) -> str:
        """Return the page with the verdicts so far."""
        return render_page(self.findings, verdicts, self.frames, self.examples)


def make_report(out: RemotePath, settings: ReportSettings) -> Report:
    """Return the report of the dataset below OUT. Raises StoreError where that is missing."""
    # What the dataset and the run record of themselves, as JSON.
    provenance = {}
    for path in (out / DATASET_FOLDER / "dataset.json", out / RUN_FILE):
        if path.exists():
            data = path.read()
            provenance[path.name] = data.decode("utf-8", "replace")
    run = parse_json(provenance.get("run.json", "{}"))
    findings = collect(
        read_dataset(out),
        settings,
        failures=read_failures(out),
        provenance=provenance,
        stages=tuple(run.get("stages", ())),
    )

    # Pictures of the audited texts and of the examples.
    frames: Frames = {}
    pictures: ExamplePictures = {}
    sample = findings.sample
    paths = _sample_paths(sample)
    for example in findings.examples:
        paths[example.id] = example.path
    addresses = video_addresses(out, paths)
    # Files are fetched only where pictures are wanted.
    if settings.frames:
        with tempfile.TemporaryDirectory(prefix="stepline-") as scratch:
            media = local_media(addresses, out, Path(scratch))
            frames, notes = key_frames(sample, media, FRAME_WIDTH)
            pictures, other_notes = example_pictures(findings.examples, media, small_jpeg)
        notes = [*findings.notes, *notes, *other_notes]
        unique_notes = tuple(dict.fromkeys(notes))
        findings = replace(findings, notes=unique_notes)
    examples = []
    for example in findings.examples:
        # The video's file, else the page that it is from.
        link = video_link(addresses.get(example.id), out.local)
        link = link or video_link(example.url, out.local)
        examples.append(ShownExample(example, link, pictures.get(example.id, {})))
    return Report(findings, frames, tuple(examples))


def write_report(out: RemotePath, settings: ReportSettings, report: Report | None = None) -> Report:
    """Write OUT/report.html, with the verdicts that are there, and return what it shows. report:
    where it was made before."""
    # An audit serves the report that it has made already.
    if report is None:
        report = make_report(out, settings)
    verdicts: list[Answer] = []
    if out.local is not None:
        verdicts = list(local_verdicts(out))
    page = report.html(verdicts)
    (out / REPORT_NAME).write(page)
    return report


def local_verdicts(out: RemotePath) -> AnswerLog:
    """Return the verdicts of auditors, to be added to.

    Raises StoreError where OUT is not on this machine.
    """
    if out.local is None:
        what = f"{out.display_url}: an audit keeps its verdicts on this machine"
        raise StoreError(f"{what}; copy OUT/dataset here first")
    return AnswerLog(out.local / AUDIT_FOLDER / VERDICTS_FILE)


def video_addresses(out: RemotePath, paths: Mapping[str, str | None]) -> dict[str, str]:
    """Return where the file of each video is, as the run's list of items names it, else its record.

    paths: by id, as the records name them.
    """
    # The run's list names the file itself. A published record has only its path in the source.
    addresses = {id: path for id, path in paths.items() if path is not None}
    if not (out / ITEMS_FILE).exists():
        return addresses
    for item in read_items(out):
        if item.id in paths and item.video:
            addresses[item.id] = item.video
    return addresses


def _sample_paths(sample: AuditSample) -> dict[str, str | None]:
    return {id: sample.paths.get(id) for id in sample.titles}


def local_media(
    addresses: Mapping[str, str], out: RemotePath, scratch: Path
) -> Callable[[str], Path | None]:
    """Return what finds a video's file on this machine. It is fetched where it is elsewhere."""

    def media(video: str) -> Path | None:
        url = addresses.get(video)
        if url is None:
            return None
        path = RemotePath(url, out.settings)
        if path.local is not None:
            if not path.local.exists():
                return None
            return path.local
        # Names of files elsewhere may be anything, so a number is enough.
        number = len(list(scratch.iterdir()))
        suffix = Path(path.name).suffix[:16]
        target = scratch / f"{number}{suffix}"
        path.fetch(target)
        return target

    return media
