"""The report as one HTML page: nothing is fetched, all text is escaped; its one script is for the audit.

Key frames of the texts that people check: before, in and after the seconds that the dataset gives them.
"""

import io
import json
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from stepline.curate.audit.sample import Asked, Sample
from stepline.curate.audit.verdicts import Accord, Row, Verdict, accords, rows
from stepline.curate.report.collect import Findings
from stepline.curate.report.sections import Estimate, biases, estimates, figures, text_levels, video_levels
from stepline.curate.sampling import written
from stepline.errors import SteplineError
from stepline.outputs.html import picture_link, policy, template
from stepline.plots import plot_style, ranked_bars, scatter, waterfall, word_cloud

if TYPE_CHECKING:
    from stepline.media.frames import Image

AROUND = 3.0  # s before and after a span that are shown too
OVERVIEW = 8  # frames of the whole video
GRID = 0.5  # s; times are rounded to it, so that texts share their frames
QUALITY = 55  # of a JPEG

Frames = dict[str, dict[float, bytes]]  # video -> second -> JPEG


def key_frames(sample: Sample, media: Callable[[str], Path | None], width: int) -> tuple[Frames, list[str]]:
    """Return the frames of every video of a sample, and a note for each video that gave none.

    media(id): the video's file on this machine, None where there is none.
    """
    frames: Frames = {}
    notes = []
    for video in sample.titles:
        try:
            path = media(video)
            frames[video] = _frames(path, _wanted(sample, video), width) if path is not None else {}
            if path is None:
                notes.append(f"{video}: no frames, its file is not on this machine")
        except SteplineError as error:
            notes.append(f"{video}: no frames ({error})")
    return frames, notes


def seconds(asked: Asked, duration: float | None) -> list[float]:
    """Return the times shown for a text: one before its span, three in it, one after it, inside the video."""
    span = asked.span
    times = [span.start - AROUND, *(span.start + part * span.duration for part in (0.1, 0.5, 0.9)), span.end + AROUND]
    last = max(0.0, (duration or span.end + AROUND) - GRID)
    return sorted({round(min(last, max(0.0, time)) / GRID) * GRID for time in times})


def overview(duration: float | None) -> list[float]:
    """Return times spread over a whole video, none where its length is not known."""
    if duration is None:
        return []
    return [round(duration * (part + 0.5) / OVERVIEW / GRID) * GRID for part in range(OVERVIEW)]


def _wanted(sample: Sample, video: str) -> list[float]:
    duration = sample.durations.get(video)
    times = {time for asked in sample.asked if asked.video == video for time in seconds(asked, duration)}
    return sorted(times | set(overview(duration)))


def _frames(path: Path, times: list[float], width: int) -> dict[float, bytes]:
    from stepline.media.reader import read_frames_at

    return {still.time: _jpeg(still.image) for still in read_frames_at(path, times, width)}


def _jpeg(image: "Image") -> bytes:
    from PIL import Image as Pillow

    buffer = io.BytesIO()
    Pillow.fromarray(image).save(buffer, "JPEG", quality=QUALITY, optimize=True)
    return buffer.getvalue()


LINES = 12  # repeated steps, groups of videos and languages that are listed


def page(findings: Findings, verdicts: Sequence[Verdict] = (), frames: Frames | None = None) -> str:
    """Return the page. verdicts: what auditors have said so far. frames: of the audited videos."""
    style, script = plot_style() + _file("style.css"), _file("script.js")
    counts = findings.counts
    return template(_file("report.html")).render(
        found=findings,
        counts=counts,
        facts=_facts(findings),
        videos=_safe(waterfall(video_levels(findings))),
        texts=_safe(waterfall(text_levels(counts))),
        estimates=[_estimate_cells(estimate) for estimate in estimates(findings, verdicts)],
        audit=[_row_cells(row) for row in rows(findings.sample, verdicts)],
        accords=[_accord_cells(accord) for accord in accords(findings.sample, verdicts)],
        figures=[(figure.title, _safe(figure.svg), figure.note) for figure in figures(counts)],
        cloud=_safe(word_cloud(findings.keywords)) if any(findings.keywords.values()) else None,
        plane=_plane(findings),
        tasks=_safe(_task_rows(findings)) if findings.tasks else None,
        lines=findings.twins.lines[:LINES],
        groups=findings.twins.groups[:LINES],
        spoken=counts.languages.most_common(LINES),
        heard=counts.recognisers.most_common(LINES),
        licences=counts.licences.most_common(LINES),
        warnings=counts.warnings.most_common(LINES),
        biases=biases(counts),
        asked=_safe(_asked(findings.sample, verdicts, frames or {})),
        policy=policy(style, script, answers=True),
        style=_safe(style),
        script=_safe(script),
    )


def _file(name: str) -> str:
    return files("stepline.curate.report").joinpath(name).read_text(encoding="utf-8")


def _safe(markup: str) -> str:
    """Mark what this package has made, and escaped, itself."""
    from markupsafe import Markup

    return Markup(markup)


def _facts(findings: Findings) -> list[str]:
    counts = findings.counts
    facts = [f"{counts.kept:,} of {counts.videos:,} videos", f"{counts.steps:,} steps"]
    if counts.hours:
        facts.append(f"{counts.hours:,.1f} h of video")
    if counts.kept:
        facts.append(f"{counts.steps / counts.kept:.1f} steps a video")
    if counts.steps:
        facts.append(f"{counts.step_words / counts.steps:.1f} words a step")
    if counts.placed:
        facts.append(f"{counts.step_seconds / counts.placed:.1f} s a step")
    return facts


def _estimate_cells(estimate: Estimate) -> tuple[str, ...]:
    shares = (estimate.scored, estimate.audited, estimate.both)
    return (estimate.name, estimate.question, *(written(share) for share in shares), estimate.note)


def _row_cells(row: Row) -> tuple[str, ...]:
    return row.name, f"{row.checked:,}", written(row.alignable), written(row.aligned), f"{row.unsure:,}"


def _accord_cells(accord: Accord) -> tuple[str, ...]:
    kappa = "undefined" if accord.kappa is None else f"{accord.kappa:.2f} [{accord.low:.2f}, {accord.high:.2f}]"
    same = "" if accord.same is None else f"{100 * accord.same:.0f} %"
    kind = "Cohen" if len(accord.people) == 2 else "Fleiss"
    return accord.question, ", ".join(accord.people), f"{accord.texts:,}", kind, kappa, same


def _plane(findings: Findings) -> tuple[str, str] | None:
    plane = findings.plane
    if plane is None:
        return None
    return plane.task, _safe(scatter(plane.points, plane.order, plane.texts, "place of a step in its video"))


def _task_rows(findings: Findings) -> str:
    rows = [(task.task, (float(task.told), float(task.aligned))) for task in findings.tasks]
    return ranked_bars(rows, ("{:,.0f}", "{:,.0f}"))


def _asked(sample: Sample, verdicts: Sequence[Verdict], frames: Frames) -> str:
    """Return what the script asks about, as JSON that can end no element; scores and other people's words stay out."""
    said = sorted({verdict.annotator for verdict in verdicts})
    asked = [
        {
            "id": text.id, "video": text.video, "text": text.text, "start": text.span.start, "end": text.span.end,
            "times": seconds(text, sample.durations.get(text.video)),
        }
        for text in sample.asked
    ]  # fmt: skip
    videos = {
        video: {
            "title": title,
            "overview": overview(sample.durations.get(video)),
            "frames": _links(frames.get(video, {})),
        }
        for video, title in sample.titles.items()
    }
    told = {"asked": asked, "videos": videos, "people": said}
    return json.dumps(told, ensure_ascii=False).replace("<", "\\u003c").replace("&", "\\u0026")


def _links(frames: Mapping[float, bytes]) -> dict[str, str]:
    """Return the frames by their second as JavaScript writes numbers: 4 or 4.5."""
    return {_key(second): picture_link(jpeg) for second, jpeg in sorted(frames.items())}


def _key(second: float) -> str:
    return str(int(second)) if second == int(second) else str(second)
