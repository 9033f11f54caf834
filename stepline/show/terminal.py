"""A record for the terminal: its steps as a table, its transcript as lines."""

from collections.abc import Callable

from stepline.records import Record, Sentence, Span, Step
from stepline.store import to_json

MARKS = {"shown": "●", "said": "○", "not found": "×", None: "·"}

LEGEND = "● shown  ○ said, but not shown  × not found"


def step_table(record: Record) -> str:
    """Return one line a step: mark, when it is shown, how sure, what to do; a legend; what else there is to know."""
    if not record.steps:
        return f"{record.id}: no step found in {_sentences(record)}\n"
    shown = sum(step.status == "shown" for step in record.steps)
    head = f"{record.id}: {len(record.steps)} steps, {shown} of them shown, from {_sentences(record)}"
    return "\n".join([head, "", *map(_line, record.steps), "", LEGEND, ""])


def _sentences(record: Record) -> str:
    count = len(record.transcript.sentences) if record.transcript else 0
    return "1 sentence" if count == 1 else f"{count} sentences"


def _line(step: Step) -> str:
    best = step.spans[0] if step.spans else None
    when = span_text(best) if best else (f"said {clock(step.said.start)}" if step.said else "")
    score = "" if step.score is None else f"{step.score:4.0%}"
    return f"  {MARKS[step.status]} {when:<15} {score:>4}  {step.text}"


def span_text(span: Span) -> str:
    """Return a span as clock times."""
    return f"{clock(span.start)} – {clock(span.end)}"


def clock(second: float) -> str:
    """Return seconds as 1:02:03 or 2:03."""
    minutes, rest = divmod(round(second), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def transcript_text(record: Record) -> str:
    """Return one line a sentence: when, and what is said."""
    sentences: tuple[Sentence, ...] = record.transcript.sentences if record.transcript else ()
    return "".join(f"{clock(s.span.start):>7}  {' '.join(s.text.split())}\n" for s in sentences)


def transcript_vtt(record: Record) -> str:
    """Return the sentences as WebVTT."""
    from stepline.show.webvtt import sentences_vtt

    return sentences_vtt(record)


def transcript_srt(record: Record) -> str:
    """Return the sentences as SRT."""
    from stepline.show.webvtt import sentences_srt

    return sentences_srt(record)


TRANSCRIPTS: dict[str, Callable[[Record], str]] = {
    "text": transcript_text,
    "json": to_json,
    "srt": transcript_srt,
    "vtt": transcript_vtt,
}
