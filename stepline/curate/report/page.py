"""The report as one HTML page: nothing is fetched, all text is escaped. Its one script is for the
audit.

The audit shows key frames of each text: before, in and after the seconds that the dataset gives it.
"""

import io
import json
from collections.abc import Callable, Sequence
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from markupsafe import Markup

from stepline.curate.audit.sample import AuditSample, AuditText
from stepline.curate.audit.verdicts import annotator_agreements, audit_table
from stepline.curate.report.collect import ReportFindings
from stepline.curate.report.examples import ShownExample
from stepline.curate.report.sections import (
    biases,
    mean_values,
    quality_estimates,
    text_levels,
    video_levels,
)
from stepline.errors import SteplineError
from stepline.outputs.web_addresses import picture_link
from stepline.pages.layout import page_html
from stepline.review.answers import Answer

if TYPE_CHECKING:
    from stepline.media.frames import Image

MARGIN_SECONDS = 3.0  # before and after a span, where frames are shown too
OVERVIEW_FRAMES = 8  # of the whole video
GRID_SECONDS = 0.5  # times are rounded to it, so that texts share their frames
JPEG_QUALITY = 55

Frames = dict[str, dict[float, bytes]]  # video -> second -> JPEG


def key_frames(
    sample: AuditSample, media: Callable[[str], Path | None], width: int
) -> tuple[Frames, list[str]]:
    """Return the frames of every video of a sample, and a note for each video that gave none.

    media(id): the video's file on this machine, None where it is missing.
    """
    frames: Frames = {}
    notes = []
    for video in sample.titles:
        try:
            path = media(video)
            if path is None:
                notes.append(f"{video}: no frames, its file is not on this machine")
            else:
                frames[video] = _frames(path, sample, video, width)
        except SteplineError as error:
            notes.append(f"{video}: no frames ({error})")
    return frames, notes


def frame_times(text: AuditText, duration: float | None) -> list[float]:
    """Return the times shown for a text: one before its span, three in it, one after it, inside the
    video."""
    # Before the span, in it, and after it.
    span = text.span
    times = [span.start - MARGIN_SECONDS]
    for part in (0.1, 0.5, 0.9):
        times.append(span.start + part * span.duration)
    times.append(span.end + MARGIN_SECONDS)
    end = duration or times[-1]
    last = max(0.0, end - GRID_SECONDS)
    # Rounded to a grid inside the video, so that texts share pictures.
    on_grid = set()
    for time in times:
        inside = min(last, max(0.0, time))
        on_grid.add(_on_grid(inside))
    return sorted(on_grid)


def overview_times(duration: float | None) -> list[float]:
    """Return times spread over a whole video, none where its length is not known."""
    if duration is None:
        return []
    count = OVERVIEW_FRAMES
    return [_on_grid(duration * (part + 0.5) / count) for part in range(count)]


def _on_grid(time: float) -> float:
    return round(time / GRID_SECONDS) * GRID_SECONDS


def _frames(path: Path, sample: AuditSample, video: str, width: int) -> dict[float, bytes]:
    from stepline.media.reader import read_frames_at

    # All seconds of a video are read in one pass.
    duration = sample.durations.get(video)
    times = set(overview_times(duration))
    for text in sample.texts:
        if text.video == video:
            times.update(frame_times(text, duration))
    frames = {}
    for still in read_frames_at(path, sorted(times), width):
        frames[still.time] = small_jpeg(still.image)
    return frames


def small_jpeg(image: "Image") -> bytes:
    """Return a picture (H, W, 3) as a small JPEG."""
    from PIL import Image as Pillow

    buffer = io.BytesIO()
    Pillow.fromarray(image).save(buffer, "JPEG", quality=JPEG_QUALITY, optimize=True)
    return buffer.getvalue()


MAX_ROWS = 12  # of each list: languages, recognisers ...


def render_page(
    findings: ReportFindings,
    verdicts: Sequence[Answer] = (),
    frames: Frames | None = None,
    examples: Sequence[ShownExample] = (),
) -> str:
    """Return the report as HTML.

    Args:
        findings: what is shown.
        verdicts: what auditors have said so far.
        frames: of the audited videos.
        examples: videos that are shown with some of their steps.
    """
    counts = findings.counts
    audit_json = _audit_json(findings.sample, verdicts, frames or {})
    return page_html(
        _file("report.html"),
        style=_file("style.css"),
        script=_file("script.js"),
        answers=True,
        findings=findings,
        counts=counts,
        facts=_facts(findings),
        funnels={
            "Videos": video_levels(findings),
            "Sentences and steps of the kept videos": text_levels(counts),
        },
        means=mean_values(counts),
        estimates=quality_estimates(findings, verdicts),
        audit=audit_table(findings.sample, verdicts),
        agreements=annotator_agreements(findings.sample, verdicts),
        languages=counts.languages.most_common(MAX_ROWS),
        recognisers=counts.recognisers.most_common(MAX_ROWS),
        licences=counts.licences.most_common(MAX_ROWS),
        warnings=counts.warnings.most_common(MAX_ROWS),
        biases=biases(counts),
        examples=examples,
        picture_link=picture_link,
        audit_texts=Markup(audit_json),
    )


def _file(name: str) -> str:
    path = files("stepline.curate.report").joinpath(name)
    return path.read_text(encoding="utf-8")


def _facts(findings: ReportFindings) -> list[str]:
    counts = findings.counts
    facts = [f"{counts.kept_videos:,} of {counts.videos:,} videos", f"{counts.steps:,} steps"]
    if counts.hours:
        facts.append(f"{counts.hours:,.1f} h of video")
    return facts


def _audit_json(sample: AuditSample, verdicts: Sequence[Answer], frames: Frames) -> str:
    """Return what the script asks about, as JSON that can end no element, without scores and other
    people's verdicts."""
    # The seconds and their pictures, without what the dataset believes.
    texts = []
    for text in sample.texts:
        times = frame_times(text, sample.durations.get(text.video))
        texts.append(
            {
                "id": text.id,
                "video": text.video,
                "text": text.text,
                "start": text.span.start,
                "end": text.span.end,
                "times": times,
            }
        )
    videos = {}
    for video, title in sample.titles.items():
        # Seconds as JavaScript writes numbers: 4 or 4.5.
        stills = sorted(frames.get(video, {}).items())
        links = {f"{second:.12g}": picture_link(jpeg) for second, jpeg in stills}
        overview = overview_times(sample.durations.get(video))
        videos[video] = {"title": title, "overview": overview, "frames": links}
    people = sorted({verdict.annotator for verdict in verdicts})
    tree = {"asked": texts, "videos": videos, "people": people}
    content = json.dumps(tree, ensure_ascii=False)
    # "<" could end the script that holds the JSON, and "&" could begin an entity.
    content = content.replace("<", "\\u003c")
    return content.replace("&", "\\u0026")
