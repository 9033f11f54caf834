"""The report as one HTML page: nothing is fetched and all text is escaped.

The page that `stepline curate audit` serves has the audit too, with its one script. It shows frames
of each text: before, in and after the seconds that the dataset gives it.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files

from markupsafe import Markup

from stepline.curate.audit import AuditSample, AuditText, annotator_agreements, audit_table
from stepline.curate.report.counts import DatasetCounts, StageLosses, compute_means, describe_biases
from stepline.curate.report.examples import ExampleVideo, step_link
from stepline.curate.sampling import estimate_proportion
from stepline.outputs.web_addresses import picture_link
from stepline.pages.layout import page_html
from stepline.review.answers import Answer

FRAME_MARGIN_SECONDS = 3.0  # before and after a span, where frames are shown too
OVERVIEW_FRAMES = 8  # of the whole video
GRID_SECONDS = 0.5  # times are rounded to it, so that texts share their frames
MAX_ROWS = 12  # of each list: languages, recognisers ...

Frames = Mapping[str, Mapping[float, bytes]]  # id of a video -> second -> JPEG


@dataclass(frozen=True)
class Report:
    """Everything that a report shows, except the answers of the audit.

    Attributes:
        counts: numbers of the dataset.
        losses: videos that each stage left out.
        sample: texts of the audit.
        examples: random videos with some of their steps.
        frames: JPEGs by video and second: of the examples and, if the audit is shown, of its texts.
        links: link to each example video, by id.
        notes: messages about frames that could not be read.
        provenance: contents of dataset.json and run.json, by file name.
    """

    counts: DatasetCounts
    losses: Sequence[StageLosses]
    sample: AuditSample
    examples: Sequence[ExampleVideo]
    frames: Frames = field(default_factory=dict)
    links: Mapping[str, str] = field(default_factory=dict)
    notes: Sequence[str] = ()
    provenance: Mapping[str, str] = field(default_factory=dict)


def audit_times(sample: AuditSample, video: str) -> set[float]:
    """Return the seconds of all frames that the audit shows of a video.

    video: id of a video of the sample.
    """
    duration = sample.videos[video].duration
    times = set(overview_times(duration))
    for text in sample.texts:
        if text.video == video:
            times.update(frame_times(text, duration))
    return times


def frame_times(text: AuditText, duration: float | None) -> list[float]:
    """Return the seconds of the frames of a text: one before its span, three in it, one after it.

    duration: seconds of the video, None if unknown.
    """
    span = text.span
    times = [span.start - FRAME_MARGIN_SECONDS]
    times += [span.start + part * span.duration for part in (0.1, 0.5, 0.9)]
    times.append(span.end + FRAME_MARGIN_SECONDS)
    last = max(0.0, (duration or times[-1]) - GRID_SECONDS)
    # Rounded to a grid inside the video, so that texts share pictures.
    return sorted({_round_to_grid(min(last, max(0.0, time))) for time in times})


def overview_times(duration: float | None) -> list[float]:
    """Return OVERVIEW_FRAMES seconds, evenly spread over a video.

    Empty if its duration is unknown.
    """
    if duration is None:
        return []
    count = OVERVIEW_FRAMES
    return [_round_to_grid(duration * (part + 0.5) / count) for part in range(count)]


def _round_to_grid(time: float) -> float:
    return round(time / GRID_SECONDS) * GRID_SECONDS


def render_page(
    report: Report, verdicts: Sequence[Answer] = (), *, with_audit: bool = False
) -> str:
    """Return the report as HTML.

    Args:
        report: numbers, examples and frames.
        verdicts: answers of the audit so far.
        with_audit: whether to include the form of the audit, which needs a server.
    """
    counts = report.counts
    sentences, steps = counts.narration_shown, counts.steps_shown
    facts = [f"{counts.kept_videos:,} of {counts.videos:,} videos", f"{counts.steps:,} steps"]
    counters = {
        "dropped step": counts.dropped_steps,
        "dropped sentence": counts.dropped_sentences,
        "language": counts.languages,
        "heard by": counts.recognisers,
        "licence of the step's text": counts.licences,
        "warning": counts.warnings,
    }
    if counts.hours:
        facts.append(f"{counts.hours:,.2f} h of video")
    return page_html(
        _read_package_file("report.html"),
        style=_read_package_file("style.css"),
        script=_read_package_file("script.js") if with_audit else None,
        answers=with_audit,
        report=report,
        counts=counts,
        facts=facts,
        means=compute_means(counts),
        scores=(
            ("raw narration, well aligned", estimate_proportion(sentences.sums, sentences.texts)),
            ("steps of the dataset, alignable", estimate_proportion(steps.sums, steps.texts)),
        ),
        audit=audit_table(report.sample, verdicts),
        agreements=annotator_agreements(report.sample, verdicts),
        tables={name: counter.most_common(MAX_ROWS) for name, counter in counters.items()},
        biases=describe_biases(counts),
        picture_link=picture_link,
        step_link=step_link,
        audit_texts=Markup(_make_audit_json(report, verdicts)) if with_audit else None,
    )


def _read_package_file(name: str) -> str:
    return files("stepline.curate.report").joinpath(name).read_text(encoding="utf-8")


def _make_audit_json(report: Report, verdicts: Sequence[Answer]) -> str:
    """Return the texts and frames of the audit as JSON, safe inside a script element."""
    sample = report.sample
    texts = [
        {
            "id": text.id,
            "video": text.video,
            "text": text.text,
            "start": text.span.start,
            "end": text.span.end,
            "times": frame_times(text, sample.videos[text.video].duration),
        }
        for text in sample.texts
    ]
    videos = {}
    for id, video in sample.videos.items():
        # Seconds as JavaScript writes numbers: 4 or 4.5.
        stills = sorted(report.frames.get(id, {}).items())
        links = {f"{second:.12g}": picture_link(jpeg) for second, jpeg in stills}
        overview = overview_times(video.duration)
        videos[id] = {"title": video.title or id, "overview": overview, "frames": links}
    people = sorted({verdict.annotator for verdict in verdicts})
    content = json.dumps({"asked": texts, "videos": videos, "people": people}, ensure_ascii=False)
    # "<" could end the script that holds the JSON, and "&" could begin an entity.
    return content.replace("<", "\\u003c").replace("&", "\\u0026")
