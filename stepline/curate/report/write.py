"""The report of a run, made from what it left in OUT (records, failures, provenance, verdicts), and
written there."""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from stepline.curate.audit.sample import AuditSample
from stepline.curate.audit.verdicts import VERDICTS_FILE, Verdict, Verdicts
from stepline.curate.report.collect import ReportFindings, collect
from stepline.curate.report.page import Frames, key_frames, render_page
from stepline.curate.settings import ReportSettings
from stepline.curate.stage import DATASET_FOLDER, Recipe, StageFailure
from stepline.curate.store.results import FAILURES
from stepline.curate.store.run_log import ITEMS, RUN, read_items, read_recipe
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
    names = sorted(entry.name for entry in folder.list()) if folder.exists() else []
    shards = [name for name in names if name.endswith(".parquet")]
    if not shards:
        raise StoreError(
            f"{folder.display_url}: no dataset yet; `stepline curate` writes it when all stages are done"
        )
    for name in shards:
        path = (folder / name).local
        if path is not None:
            yield from read_parquet(path)
        else:
            with tempfile.TemporaryDirectory(prefix="stepline-") as scratch:
                copy = Path(scratch) / "shard.parquet"
                (folder / name).fetch(copy)
                yield from read_parquet(copy)


def read_failures(out: RemotePath) -> list[StageFailure]:
    """Return every failure that the run noted, sorted by stage and id."""
    folder = out / FAILURES
    if out.local is not None and not folder.exists():
        return []
    failures = []
    for path in (folder / entry.name for entry in folder.list() if entry.name.endswith(".json")):
        try:
            failures.append(StageFailure(**parse_json(path.read())))
        except (ValueError, TypeError) as error:
            raise StoreError(
                f"{path.display_url}: not a failure that Stepline wrote ({error}); remove it"
            ) from error
    return sorted(failures, key=lambda failure: (failure.stage, failure.id))


def report_recipe(out: RemotePath) -> Recipe:
    """Return the recipe of the run on OUT, with the settings of its report; the usual one where
    there was no run."""
    return read_recipe(out) if (out / RUN).exists() else Recipe()


REPORT, AUDIT = "report.html", "audit"


@dataclass(frozen=True)
class Report:
    """What a report shows, apart from verdicts."""

    findings: ReportFindings
    frames: Frames

    def html(self, verdicts: Sequence[Verdict] = ()) -> str:
        """Return the page with the verdicts so far."""
        return render_page(self.findings, verdicts, self.frames)


def make_report(out: RemotePath, settings: ReportSettings) -> Report:
    """Return the report of the dataset below OUT. Raises StoreError where there is none."""
    documents = open_base(settings.text_base).documents() if settings.text_base is not None else ()
    # What the dataset and the run say of themselves, as JSON.
    paths = {"dataset.json": out / DATASET_FOLDER / "dataset.json", "run.json": out / "run.json"}
    provenance = {
        name: path.read().decode("utf-8", "replace")
        for name, path in paths.items()
        if path.exists()
    }
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
    if settings.frames:
        with tempfile.TemporaryDirectory(prefix="stepline-") as scratch:
            media = sample_media(out, findings.sample, Path(scratch))
            frames, notes = key_frames(findings.sample, media, settings.frame_width)
        findings = replace(findings, notes=(*findings.notes, *notes))
    return Report(findings, frames)


def write_report(out: RemotePath, settings: ReportSettings, report: Report | None = None) -> Report:
    """Write OUT/report.html, with the verdicts that are there, and return what it shows. report:
    where it is made."""
    made = report or make_report(out, settings)
    (out / REPORT).write(made.html([] if out.local is None else list(local_verdicts(out))))
    return made


def local_verdicts(out: RemotePath, file: str = VERDICTS_FILE) -> Verdicts:
    """Return what auditors have said, to be added to; file: that of people, or of models.

    Raises StoreError where OUT is not on this machine.
    """
    if out.local is None:
        raise StoreError(
            f"{out.display_url}: an audit keeps its verdicts on this machine; copy OUT/dataset here first"
        )
    return Verdicts(out.local / AUDIT / file)


def sample_media(
    out: RemotePath, sample: AuditSample, scratch: Path
) -> Callable[[str], Path | None]:
    """Return what finds a video's file, as the run's list of items names it; fetched where it is
    elsewhere."""
    items = read_items(out) if (out / ITEMS).exists() else ()
    urls = {item.id: item.video for item in items if item.id in sample.titles}

    def media(video: str) -> Path | None:
        url = urls.get(video) or sample.paths.get(video)
        if url is None:
            return None
        path = RemotePath(url, out.settings)
        if path.local is not None:
            return path.local if path.local.exists() else None
        target = scratch / f"{len(list(scratch.iterdir()))}{Path(path.name).suffix[:16]}"
        path.fetch(target)
        return target

    return media
