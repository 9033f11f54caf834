"""Subtitles as WebVTT and SRT: a cue per step, or a cue per spoken sentence."""

import html
from dataclasses import dataclass, replace
from itertools import pairwise

from stepline.outputs.text import one_line, shown_span, step_line
from stepline.outputs.verdict import VERDICT_TEXTS, step_verdict
from stepline.records import Record, Span

WORD_JOINER = "\u2060"  # invisible and without width: breaks up what a player would read as markup


@dataclass(frozen=True)
class Subtitle:
    """A subtitle (cue) of one step or sentence.

    Attributes:
        number: number of the step or sentence in the record, from 1 on.
        start: time at which the subtitle appears, in milliseconds of the video.
        end: time at which the subtitle disappears, in milliseconds of the video.
        text: the text, on one line.
    """

    number: int
    start: int
    end: int
    text: str


def webvtt(record: Record, *, said: bool = True) -> str:
    """Return the steps as WebVTT, ordered by time. The cue identifier is the step's number.

    A cue ends where a later one begins.

    Args:
        record: the steps of the video.
        said: whether a step that is said but not shown has a marked cue too, at the time of its
            words.
    """
    return _format_vtt(_step_cues(record, with_said=said))


def srt(record: Record, *, said: bool = True) -> str:
    """Return the steps as SubRip, numbered by time.

    SubRip has no escapes: an invisible word joiner breaks up `-->`, tags and `{\\` so that players
    show them as text.

    Args:
        record: the steps of the video.
        said: whether a step that is said but not shown has a marked cue too, at the time of its
            words.
    """
    return _format_srt(_step_cues(record, with_said=said))


def spoken_vtt(record: Record) -> str:
    """Return the transcript as WebVTT, one cue per sentence."""
    return _format_vtt(_sentence_cues(record))


def spoken_srt(record: Record) -> str:
    """Return the transcript as SubRip, one cue per sentence."""
    return _format_srt(_sentence_cues(record))


def _format_vtt(cues: list[Subtitle]) -> str:
    blocks = ["WEBVTT\n"]
    for cue in cues:
        text = html.escape(cue.text, quote=False)
        blocks.append(f"{cue.number}\n{_cue_times(cue, '.')}\n{text}\n")
    return "\n".join(blocks)


def _format_srt(cues: list[Subtitle]) -> str:
    blocks = []
    for number, cue in enumerate(cues, start=1):
        blocks.append(f"{number}\n{_cue_times(cue, ',')}\n{_escape_srt(cue.text)}\n")
    return "\n".join(blocks)


def _sentence_cues(record: Record) -> list[Subtitle]:
    return [
        _make_cue(number, sentence.span, one_line(sentence.text) or "…")
        for number, sentence in enumerate(record.sentences, start=1)
    ]


def _step_cues(record: Record, *, with_said: bool) -> list[Subtitle]:
    cues = []
    for number, step in enumerate(record.steps, start=1):
        text = step_line(step) or f"Step {number}"
        verdict = step_verdict(step)
        if verdict in ("doubtful", "said_only", "not_found"):
            text = f"[{VERDICT_TEXTS[verdict]}] {text}"
        best = shown_span(step)
        if best is not None:
            cues.append(_make_cue(number, best, text))
        elif with_said and step.said is not None:
            cues.append(_make_cue(number, step.said, text))
    cues.sort(key=lambda cue: (cue.start, cue.number))
    next_starts = dict(pairwise(sorted({cue.start for cue in cues})))
    return [replace(cue, end=min(cue.end, next_starts.get(cue.start, cue.end))) for cue in cues]


def _make_cue(number: int, span: Span, text: str) -> Subtitle:
    start = round(span.start * 1000)
    # a cue must not be empty
    return Subtitle(number, start, max(start + 1, round(span.end * 1000)), text)


def _cue_times(cue: Subtitle, decimal_point: str) -> str:
    return f"{_timestamp(cue.start, decimal_point)} --> {_timestamp(cue.end, decimal_point)}"


def _timestamp(milliseconds: int, decimal_point: str) -> str:
    seconds, milli = divmod(milliseconds, 1000)
    minutes, second = divmod(seconds, 60)
    hour, minute = divmod(minutes, 60)
    return f"{hour:02d}:{minute:02d}:{second:02d}{decimal_point}{milli:03d}"


def _escape_srt(text: str) -> str:
    # Joiners that are there already go first, so that none is doubled.
    bare = text.replace(WORD_JOINER, "")
    for mark in ("<", "{", "--"):
        bare = bare.replace(mark, mark + WORD_JOINER)
    return bare
