"""Any caption file to a transcript: the format is known by its content, then by its name.

Rolling captions are repaired: what one cue repeats of the next is left out, and no two cues
overlap.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain, pairwise
from pathlib import Path

from stepline.asr.caption_formats import (
    Cue,
    decode_file,
    has_csv_header,
    parse_csv,
    parse_json,
    parse_subtitles,
    strip_sounds,
    unusable_time_reason,
)
from stepline.asr.sentences import ends_sentence, split_sentences
from stepline.asr.settings import AsrSettings
from stepline.asr.transcribe import DEFAULTS, LONGEST_TEXT, TranscriptionResult
from stepline.errors import CaptionError
from stepline.limits import CUE, WORDS
from stepline.records import Rejected, Span, Transcript, Word

SHORTEST = 0.2  # s; a cue shown no longer is an artefact of rolling captions (TAN)
PUNCTUATED = 0.02  # full stops a word from which the punctuation is taken seriously
LONGEST_GAP = 0.5  # s between two cues up to which the second can be a longer version of the first


def read_captions(
    path: Path | str, video_id: str | None = None, settings: AsrSettings = DEFAULTS
) -> TranscriptionResult:
    """Return the transcript that a caption file holds, and what of it was left out.

    video_id picks one video of a file that holds many. Words get times by linear interpolation in
    their cue where the file has none; settings.language says what is spoken, since most files do
    not. Without punctuation and word times, a cue is a sentence.
    Raises CaptionError for a file that cannot be read or has another form.
    """
    cues, dropped = _usable_cues(_read_cues(Path(path), video_id))
    plain = repair_rolling_captions([cue for cue in cues if not cue.words])
    cues = sorted(
        [*plain, *(cue for cue in cues if cue.words)],
        key=lambda cue: (cue.start or 0.0, cue.end or 0.0),
    )
    if sum(len(cue.words) or cue.text.count(" ") + 1 for cue in cues) > WORDS:
        raise CaptionError(
            f"{path}: more than {WORDS} words, which no video says; cut this video's part out of it"
        )
    groups = [list(cue.words) or _interpolate_words(cue) for cue in cues]
    words = [word for group in groups for word in group]
    stops = sum(ends_sentence(word.text) for word in words)
    if stops >= PUNCTUATED * len(words) or all(cue.words for cue in cues):
        groups = [words]
    parts = [
        split_sentences(group, pause=settings.pause, longest=settings.longest) for group in groups
    ]
    found = sorted(chain(*parts), key=lambda sentence: (sentence.span.start, sentence.span.end))
    transcript = Transcript(
        language=settings.language, sentences=tuple(found), recogniser="captions"
    )
    return TranscriptionResult(transcript, tuple(dropped))


def _read_cues(path: Path, video: str | None) -> list[Cue]:
    text = decode_file(path)
    begin = text.lstrip()[:6]
    if begin.startswith(("{", "[")) and not (
        "-->" in text and path.suffix.lower() in (".srt", ".vtt")
    ):
        return parse_json(text, str(path), video)
    if path.suffix.lower() == ".csv" or has_csv_header(text):
        return parse_csv(text, str(path))
    if begin == "WEBVTT" or "-->" in text:
        return parse_subtitles(text, str(path))
    raise CaptionError(
        f"{path}: no captions recognised; give srt, vtt, json or a csv with start,end,text"
    )


def _usable_cues(cues: Sequence[Cue]) -> tuple[list[Cue], list[Rejected]]:
    """Return the cues that say something at a usable time, sorted, and the others with their
    reasons."""
    kept: list[Cue] = []
    dropped: list[Rejected] = []
    for cue in cues:
        said = strip_sounds(cue.text)
        length = (cue.end or 0.0) - (cue.start or 0.0)
        reason = unusable_time_reason(cue)
        if reason is None and length <= SHORTEST:
            reason = f"shown for {length:.2f} s; nothing is said in {SHORTEST} s"
        if len(said) > CUE:
            reason = f"it has more than {CUE} characters"
        if not any(letter.isalnum() for letter in said):
            reason = "a sound, not speech"
        if not cue.text.strip():
            continue
        if reason is None:
            start = max(0.0, cue.start or 0.0)
            words = tuple(word for word in cue.words if strip_sounds(word.text).strip())
            # Timed words that do not make what is said are left out, to be interpolated.
            whole = "".join("".join(word.text for word in words).split()) == "".join(said.split())
            kept.append(replace(cue, text=said, start=start, words=words if whole else ()))
        else:
            dropped.append(
                Rejected(
                    what="sentence", text=" ".join(cue.text.split())[:LONGEST_TEXT], reason=reason
                )
            )
    return sorted(kept, key=lambda cue: cue.start or 0.0), dropped


def _interpolate_words(cue: Cue) -> list[Word]:
    """Return the words of a cue, each with an equal part of its seconds."""
    tokens = cue.text.split()
    start, end = cue.start or 0.0, cue.end or 0.0
    edges = [*(start + i * (end - start) / len(tokens) for i in range(len(tokens))), end]
    return [
        Word(text=f" {token}", span=Span(first, last) if first < last else None)
        for token, first, last in zip(tokens, edges, edges[1:], strict=False)
    ]


# ---------------------------------------------------------------- rolling captions


def repair_rolling_captions(cues: Sequence[Cue]) -> list[Cue]:
    """Return the cues with each text once, one line each, overlaps cut at their middle; needs
    times, sorted by start.

    A last line that the next cue begins with goes to the next; a cue that grows into the next is
    merged with it.
    Source: the sentencified HowTo100M of TAN; its cases are tests/asr/test_captions.py.
    """
    cleaned = ([" ".join(line.split()) for line in cue.text.splitlines()] for cue in cues)
    single = [
        replace(cue, text="\n".join(filter(None, lines)))
        for cue, lines in zip(cues, cleaned, strict=True)
    ]
    moved = [
        _without_repeated_lines(cue, following)
        for cue, following in pairwise([*single, Cue("", None, None)])
    ]
    flat = [replace(cue, text=" ".join(cue.text.split())) for cue in moved if cue.text.strip()]
    return _cut_overlaps(_merge_growing(flat))


def _without_repeated_lines(cue: Cue, following: Cue) -> Cue:
    """Leave out the last lines of a cue that the next one, touching it, begins with."""
    lines, after = cue.text.split("\n"), following.text.split("\n")
    if not _touching(cue, following):
        return cue
    for count in range(min(len(lines) - 1, len(after)), 0, -1):
        if lines[-count:] == after[:count]:
            return replace(cue, text="\n".join(lines[:-count]))
    return cue


def _merge_growing(cues: Sequence[Cue]) -> list[Cue]:
    """Merge each cue with the next where the next one says the same and goes on."""
    found: list[Cue] = []
    for cue in cues:
        last = found[-1] if found else None
        if last is not None and _touching(last, cue) and f"{cue.text} ".startswith(f"{last.text} "):
            found[-1] = replace(cue, start=last.start, end=max(last.end or 0.0, cue.end or 0.0))
        else:
            found.append(cue)
    return found


def _touching(cue: Cue, following: Cue) -> bool:
    return (
        cue.end is not None
        and following.start is not None
        and following.start - cue.end <= LONGEST_GAP
    )


def _cut_overlaps(cues: Sequence[Cue]) -> list[Cue]:
    """Cut overlaps in the middle; a cue inside another takes its seconds, two that start together
    stay."""
    found: list[Cue] = []
    for cue in cues:
        last = found[-1] if found else None
        if last is not None and last.start is not None and last.end is not None:
            start, end = cue.start or 0.0, cue.end or 0.0
            middle = (last.end + start) / 2
            if last.end > start and last.start < middle < end:
                found[-1], cue = replace(last, end=middle), replace(cue, start=middle)
            elif last.end > start > last.start:
                found[-1] = replace(last, end=start)
        found.append(cue)
    return found
