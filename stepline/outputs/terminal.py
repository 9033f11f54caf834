"""A record for the terminal: its steps as a table, its transcript as lines."""

from collections.abc import Callable

from stepline.outputs.subtitles import spoken_srt, spoken_vtt
from stepline.outputs.text import (
    clock,
    evidence_text,
    no_step_text,
    one_line,
    percent_text,
    shown_span,
    step_line,
)
from stepline.outputs.verdict import Verdict, headline, picture_scores, step_verdict
from stepline.records import Record, Step
from stepline.storage import to_json

VERDICT_MARKS: dict[Verdict, str] = {
    "seen": "●",
    "placed": "◐",
    "doubtful": "?",
    "said_only": "○",
    "not_found": "×",
    "unjudged": "·",
}
MARKS_LEGEND = "● seen  ◐ placed by its words  ? placed?  ○ said only  × not found"


def step_table(record: Record) -> str:
    """Return a table of the steps as text: verdict mark, time and text of each.

    P(shown) is next to the time where pictures give it. A headline comes before the table, a legend
    and the reasons of "placed?" after it.
    """
    if not record.steps:
        reason = no_step_text(record)
        if not record.settings and not record.models:  # of `stepline.transcribe`
            reason = f"{evidence_text(record)}; `stepline.steps` finds the steps"
        return f"{record.id}: {reason}\n"
    count = len(record.steps)
    head = (
        f"{record.id}: {count} step{'' if count == 1 else 's'}, {headline(record.steps)}, "
        f"from {evidence_text(record)}"
    )
    scores = picture_scores(record)
    rows = [_table_row(step, scores.get(step.id)) for step in record.steps]
    doubts = sorted({f"placed?: {step.doubt}" for step in record.steps if step.doubt})
    return "\n".join([head, "", *rows, "", MARKS_LEGEND, *doubts, ""])


def _table_row(step: Step, score: float | None) -> str:
    best = shown_span(step)
    when = ""
    if best is not None:
        when = f"{clock(best.start)} – {clock(best.end)}"
    elif step.said:
        when = f"said {clock(step.said.start)}"
    percent = "" if score is None else f"{percent_text(score)}%"
    return f"  {VERDICT_MARKS[step_verdict(step)]} {when:<15} {percent:>4}  {step_line(step)}"


def transcript_text(record: Record) -> str:
    """Return the transcript as text: a line per sentence with its start time."""
    return "".join(
        f"{clock(sentence.span.start):>7}  {one_line(sentence.text)}\n"
        for sentence in record.sentences
    )


TRANSCRIPT_FORMATS: dict[str, Callable[[Record], str]] = {
    "text": transcript_text,
    "json": to_json,
    "srt": spoken_srt,
    "vtt": spoken_vtt,
}
