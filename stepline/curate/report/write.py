"""The report of a run, written into OUT; and what an audit needs of it, found once."""

import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from stepline.curate.audit.sample import Sample
from stepline.curate.audit.verdicts import FILE, Verdict, Verdicts
from stepline.curate.ledger.inventory import ITEMS, read_items
from stepline.curate.places import Place
from stepline.curate.report.findings import Findings, find
from stepline.curate.report.frames import Frames, key_frames
from stepline.curate.report.page import page
from stepline.curate.report.reading import read_dataset, read_failures, read_provenance
from stepline.curate.report_settings import ReportSettings
from stepline.errors import StoreError
from stepline.sieve_swap.text_base.base import open_base

REPORT, AUDIT = "report.html", "audit"


@dataclass(frozen=True)
class Report:
    """What a report shows, apart from verdicts."""

    findings: Findings
    frames: Frames

    def html(self, verdicts: Sequence[Verdict] = ()) -> str:
        """Return the page with the verdicts so far."""
        return page(self.findings, verdicts, self.frames)


def make_report(out: Place, settings: ReportSettings) -> Report:
    """Return the report of the dataset below OUT. Raises StoreError where there is none."""
    documents = open_base(settings.text_base).documents() if settings.text_base is not None else ()
    provenance = read_provenance(out)
    run = json.loads(provenance.get("run.json", "{}"))
    findings = find(
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
            media = _media(out, findings.sample, Path(scratch))
            frames, notes = key_frames(findings.sample, media, settings.frame_width)
        findings = findings.with_notes(notes)
    return Report(findings, frames)


def write_report(out: Place, settings: ReportSettings, report: Report | None = None) -> Report:
    """Write OUT/report.html, with the verdicts that are there, and return what it shows. report: where it is made."""
    made = report or make_report(out, settings)
    (out / REPORT).write(made.html([] if out.local is None else list(local_verdicts(out))))
    return made


def local_verdicts(out: Place) -> Verdicts:
    """Return what auditors have said, to be added to. Raises StoreError where OUT is not on this machine."""
    if out.local is None:
        raise StoreError(f"{out.shown}: an audit keeps its verdicts on this machine; copy OUT/dataset here first")
    return Verdicts(out.local / AUDIT / FILE)


def _media(out: Place, sample: Sample, scratch: Path) -> Callable[[str], Path | None]:
    """Return what finds a video's file, as the run's list of items names it; fetched where it is elsewhere."""
    listed = read_items(out) if (out / ITEMS).exists() else ()
    places = {item.id: item.video for item in listed if item.id in sample.titles}

    def found(video: str) -> Path | None:
        url = places.get(video) or sample.paths.get(video)
        if url is None:
            return None
        place = Place(url, out.settings)
        if place.local is not None:
            return place.local if place.local.exists() else None
        target = scratch / f"{len(list(scratch.iterdir()))}{Path(place.name).suffix[:16]}"
        place.fetch(target)
        return target

    return found
