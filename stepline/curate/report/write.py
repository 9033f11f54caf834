"""The report of a run, written into OUT; and what an audit needs of it, found once."""

import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from stepline.curate.audit.sample import Sample
from stepline.curate.audit.verdicts import FILE, Verdict, Verdicts
from stepline.curate.places import Place
from stepline.curate.report.findings import Findings, find
from stepline.curate.report.frames import Frames, key_frames
from stepline.curate.report.page import page
from stepline.curate.report.reading import read_dataset, read_failures, read_provenance
from stepline.curate.report_settings import ReportSettings
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


def make_report(out: Place, settings: ReportSettings, source: str | None = None) -> Report:
    """Return the report of the dataset below OUT. source: where the videos are, for key frames; none: as run.json says.

    Raises StoreError where there is no dataset.
    """
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
            media = _media(findings.sample, source or run.get("source"), Path(scratch))
            frames, notes = key_frames(findings.sample, media, settings.frame_width)
        findings = findings.with_notes(notes)
    return Report(findings, frames)


def write_report(out: Place, settings: ReportSettings, source: str | None = None) -> Report:
    """Write OUT/report.html, with the verdicts that are there, and return what it shows."""
    report = make_report(out, settings, source)
    (out / REPORT).write(report.html(list(read_verdicts(out))))
    return report


def read_verdicts(out: Place) -> list[Verdict]:
    """Return what auditors have said; nothing where OUT is not on this machine, as an audit is."""
    return [] if out.local is None else list(Verdicts(out.local / AUDIT / FILE))


def _media(sample: Sample, source: str | None, scratch: Path) -> Callable[[str], Path | None]:
    """Return what finds a video's file, fetched where it is elsewhere."""

    def found(video: str) -> Path | None:
        path = sample.paths.get(video)
        if path is None:
            return None
        place = Place(path) if source is None or "://" in path or path.startswith("/") else _beside(source, path)
        if place.local is not None:
            return place.local if place.local.exists() else None
        target = scratch / f"{len(list(scratch.iterdir()))}{Path(place.name).suffix[:16]}"
        place.fetch(target)
        return target

    return found


def _beside(source: str, path: str) -> Place:
    """Return a video's place from its path relative to the source, which is a folder or a list in one."""
    root = Place(source)
    local = root.local
    is_file = local.is_file() if local is not None else "." in root.name
    return Place(source.rpartition("/")[0] or ".") / path if is_file else root / path
