"""The report as one HTML page: nothing is fetched, all text is escaped; its one script is for the audit."""

import json
from collections.abc import Mapping, Sequence
from importlib.resources import files

from stepline.curate.audit.sample import Sample
from stepline.curate.audit.table import Accord, Row, accords, rows
from stepline.curate.audit.verdicts import Verdict
from stepline.curate.report.biases import biases
from stepline.curate.report.estimates import Estimate, estimates
from stepline.curate.report.falls import text_levels, video_levels
from stepline.curate.report.figures import figures
from stepline.curate.report.findings import Findings
from stepline.curate.report.frames import Frames, overview, seconds
from stepline.curate.shares import written
from stepline.plots import cloud, fall, plot_style, ranked, scatter
from stepline.show.markup import picture_link, policy, template

LINES = 12  # repeated steps, groups of videos and languages that are listed


def page(findings: Findings, verdicts: Sequence[Verdict] = (), frames: Frames | None = None) -> str:
    """Return the page. verdicts: what auditors have said so far. frames: of the audited videos."""
    style, script = plot_style() + _file("style.css"), _file("script.js")
    counts = findings.counts
    return template(_file("report.html")).render(
        found=findings,
        counts=counts,
        facts=_facts(findings),
        videos=_safe(fall(video_levels(findings))),
        texts=_safe(fall(text_levels(counts))),
        estimates=[_estimate_cells(estimate) for estimate in estimates(findings, verdicts)],
        audit=[_row_cells(row) for row in rows(findings.sample, verdicts)],
        accords=[_accord_cells(accord) for accord in accords(findings.sample, verdicts)],
        figures=[(figure.title, _safe(figure.svg), figure.note) for figure in figures(counts)],
        cloud=_safe(cloud(findings.keywords)) if any(findings.keywords.values()) else None,
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
    return ranked(rows, ("{:,.0f}", "{:,.0f}"))


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
