"""The page of a workflow: its stages, the amounts, the measures, and pictures of what people saw.
It also shows how sure the machine was of what people confirmed and denied. Nothing is fetched, all
text is escaped."""

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from stepline.curate.sampling import random_key
from stepline.curate.settings import ReportSettings
from stepline.curate.workflow.amounts import Recommendation
from stepline.curate.workflow.curation import Curation, RunForecast
from stepline.curate.workflow.measure import Measure
from stepline.curate.workflow.queue import ReviewPlace
from stepline.curate.workflow.review import Review
from stepline.errors import SteplineError
from stepline.files.atomic_files import write_atomic
from stepline.outputs.html import picture_link
from stepline.outputs.text import clock
from stepline.pages.layout import page_html
from stepline.plots import grouped_histogram, plot_style

WORKFLOW_PAGE = "workflow.html"  # below OUT
PICTURED_PLACES = 6  # of each kind
SECONDS_SHOWN = (0.1, 0.5, 0.9)  # of a clip, as shares of its length
PER_CENT = 100
BAR_PER_CENT = 10  # of the histogram of P(shown)
JPEG_QUALITY = 55


@dataclass(frozen=True)
class WorkflowFindings:
    """All that a workflow found."""

    forecast: RunForecast
    curation: Curation
    review: Review
    held_out: frozenset[str]
    recommendations: tuple[Recommendation, ...]
    measures: tuple[Measure, ...]


@dataclass(frozen=True)
class PicturedPlace:
    """A step with pictures of the seconds that people were asked about, as links."""

    text: str
    place: str
    pictures: tuple[str, ...]


def write_page(findings: WorkflowFindings, lines: Sequence[str], settings: ReportSettings) -> Path:
    """Write the page below OUT and return its path. lines: what each stage has come to."""
    notes: list[str] = []
    # Pictures cost a look at each video, and may be switched off.
    groups = {}
    if settings.frames:
        for name, places in _pictured_kinds(findings.review, settings.seed).items():
            groups[name] = _pictured_places(places, findings.curation, settings, notes)
    style = plot_style() + _file("curate.report", "style.css")
    html = page_html(
        _file("curate.workflow", "workflow.html"),
        style=style,
        name=findings.curation.out.name,
        lines=[_without_folder(line, findings.curation.out) for line in lines],
        histogram=_histogram(findings.review),
        recommendations=findings.recommendations,
        measures=findings.measures,
        groups=groups,
        notes=notes,
    )
    path = findings.curation.out / WORKFLOW_PAGE
    write_atomic(path, html)
    return path


def _without_folder(line: str, out: Path) -> str:
    """Return the line of a stage with the paths below OUT as they are there, for the page may be
    given away."""
    return line.replace(f"{out}/", "")


def _histogram(review: Review) -> str:
    """Return how P(shown) of the steps is spread, of clips that people confirmed and denied."""
    counts: dict[str, dict[str, int]] = {"shown, by people": {}, "not shown, by people": {}}
    for place in review.places:
        # A bar per verdict, by what the machine believed before.
        verdict = review.verdicts.get(place.id)
        if verdict is None:
            continue
        series = counts["shown, by people" if verdict else "not shown, by people"]
        bar = str(min(PER_CENT - 1, int(PER_CENT * place.p)) // BAR_PER_CENT * BAR_PER_CENT)
        series[bar] = series.get(bar, 0) + 1
    return grouped_histogram(counts, "P(shown) of the step before, %")


def _pictured_kinds(review: Review, seed: int) -> Mapping[str, list[ReviewPlace]]:
    """Return the places to picture, by what people said, drawn at random."""
    kinds: dict[str, list[ReviewPlace]] = {
        "Confirmed": [],
        "Denied": [],
        "As many say no as yes": [],
    }
    # By a random key, so that the same places are drawn each time.
    for place in sorted(review.places, key=lambda place: random_key(seed, place.id)):
        if place.id not in review.verdicts:
            continue
        verdict = review.verdicts[place.id]
        name = "As many say no as yes"
        if verdict is not None:
            name = "Confirmed" if verdict else "Denied"
        if len(kinds[name]) < PICTURED_PLACES:
            kinds[name].append(place)
    return {name: places for name, places in kinds.items() if places}


def _pictured_places(
    places: Sequence[ReviewPlace], curation: Curation, settings: ReportSettings, notes: list[str]
) -> list[PicturedPlace]:
    """Return places with their pictures. A video that gives none is noted."""
    media = curation.media
    pictured = []
    for place in places:
        span = place.span
        # One before the middle, the middle, and one behind it.
        times = [span.start + share * span.duration for share in SECONDS_SHOWN]
        links: tuple[str, ...] = ()
        try:
            links = _pictures(media[place.video], times, settings.frame_width)
        except SteplineError as error:
            notes.append(f"{place.video}: no pictures ({error})")
        where = f"{place.video}, {clock(span.start)} – {clock(span.end)}"
        pictured.append(PicturedPlace(place.text, where, links))
    return pictured


def _pictures(path: Path, times: Sequence[float], width: int) -> tuple[str, ...]:
    """Return pictures of a video at some seconds, as links that hold them."""
    from PIL import Image

    from stepline.media.reader import read_frames_at

    links = []
    for still in read_frames_at(path, sorted(times), width):
        buffer = io.BytesIO()
        Image.fromarray(still.image).save(buffer, "JPEG", quality=JPEG_QUALITY, optimize=True)
        links.append(picture_link(buffer.getvalue()))
    return tuple(links)


def _file(package: str, name: str) -> str:
    return files(f"stepline.{package}").joinpath(name).read_text(encoding="utf-8")
