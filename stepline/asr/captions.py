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
from stepline.asr.punctuation import MIN_STOPS_PER_WORD, lacks_punctuation, restore_punctuation
from stepline.asr.sentences import ends_sentence, split_sentences
from stepline.asr.settings import AsrSettings
from stepline.asr.transcribe import DEFAULTS, MAX_DROPPED_CHARS, TranscriptionResult
from stepline.errors import CaptionError
from stepline.limits import CUE, WORDS
from stepline.records import Rejected, Span, Transcript, Word

MIN_CUE_SECONDS = 0.2  # a cue shown no longer is an artefact of rolling captions (TAN)
# between two cues up to which the second can be a longer version of the first
MAX_CUE_GAP_SECONDS = 0.5


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
    timed = [cue for cue in cues if cue.words]
    cues = sorted([*plain, *timed], key=lambda cue: (cue.start or 0.0, cue.end or 0.0))
    if sum(len(cue.words) or cue.text.count(" ") + 1 for cue in cues) > WORDS:
        raise CaptionError(
            f"{path}: more than {WORDS} words, which no video says; cut this video's part out of it"
        )
    groups = [list(cue.words) or _interpolate_words(cue) for cue in cues]
    words = list(chain(*groups))
    if lacks_punctuation(words, settings.language):
        words = restore_punctuation(words)
    stops = sum(ends_sentence(word.text) for word in words)
    if stops >= MIN_STOPS_PER_WORD * len(words) or all(cue.words for cue in cues):
        groups = [words]
    sentences = []
    for group in groups:
        sentences += split_sentences(group, pause=settings.pause, longest=settings.longest)
    sentences.sort(key=lambda sentence: (sentence.span.start, sentence.span.end))
    transcript = Transcript(
        language=settings.language, sentences=tuple(sentences), recogniser="captions"
    )
    return TranscriptionResult(transcript, tuple(dropped))


def _read_cues(path: Path, video: str | None) -> list[Cue]:
    text = decode_file(path)
    begin = text.lstrip()[:6]
    is_subtitles = "-->" in text and path.suffix.lower() in (".srt", ".vtt")
    if begin.startswith(("{", "[")) and not is_subtitles:
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
    usable: list[Cue] = []
    dropped: list[Rejected] = []
    for cue in cues:
        if not cue.text.strip():
            continue
        speech = strip_sounds(cue.text)
        length = (cue.end or 0.0) - (cue.start or 0.0)
        reason = unusable_time_reason(cue)
        if reason is None and length <= MIN_CUE_SECONDS:
            reason = f"shown for {length:.2f} s; nothing is said in {MIN_CUE_SECONDS} s"
        if len(speech) > CUE:
            reason = f"it has more than {CUE} characters"
        if not any(letter.isalnum() for letter in speech):
            reason = "a sound, not speech"
        if reason is not None:
            text = " ".join(cue.text.split())[:MAX_DROPPED_CHARS]
            dropped.append(Rejected(what="sentence", text=text, reason=reason))
            continue
        words = tuple(word for word in cue.words if strip_sounds(word.text).strip())
        # Timed words that do not make what is said are left out, to be interpolated.
        if "".join("".join(word.text for word in words).split()) != "".join(speech.split()):
            words = ()
        usable.append(replace(cue, text=speech, start=max(0.0, cue.start or 0.0), words=words))
    return sorted(usable, key=lambda cue: cue.start or 0.0), dropped


def _interpolate_words(cue: Cue) -> list[Word]:
    """Return the words of a cue, each with an equal part of its seconds."""
    tokens = cue.text.split()
    start, end = cue.start or 0.0, cue.end or 0.0
    edges = [start + i * (end - start) / len(tokens) for i in range(len(tokens))]
    words = []
    for token, (first, last) in zip(tokens, pairwise([*edges, end]), strict=True):
        span = Span(first, last) if first < last else None
        words.append(Word(text=f" {token}", span=span))
    return words


# ---------------------------------------------------------------- rolling captions


def repair_rolling_captions(cues: Sequence[Cue]) -> list[Cue]:
    """Return the cues with each text once, one line each, overlaps cut at their middle; needs
    times, sorted by start.

    A last line that the next cue begins with goes to the next; a cue that grows into the next is
    merged with it.
    Source: the sentencified HowTo100M of TAN; its cases are tests/asr/test_captions.py.
    """
    single = []
    for cue in cues:
        lines = [" ".join(line.split()) for line in cue.text.splitlines()]
        single.append(replace(cue, text="\n".join(filter(None, lines))))
    flat = []
    for cue, following in pairwise([*single, Cue("", None, None)]):
        text = _without_repeated_lines(cue, following)
        if text.strip():
            flat.append(replace(cue, text=" ".join(text.split())))
    return _cut_overlaps(_merge_growing(flat))


def _without_repeated_lines(cue: Cue, following: Cue) -> str:
    """Return the text of a cue without the last lines that the next one, touching it, begins with."""
    if not _touching(cue, following):
        return cue.text
    lines = cue.text.split("\n")
    after = following.text.split("\n")
    for count in range(min(len(lines) - 1, len(after)), 0, -1):
        if lines[-count:] == after[:count]:
            return "\n".join(lines[:-count])
    return cue.text


def _merge_growing(cues: Sequence[Cue]) -> list[Cue]:
    """Merge each cue with the next where the next one says the same and goes on."""
    merged: list[Cue] = []
    for cue in cues:
        last = merged[-1] if merged else None
        if last is not None and _touching(last, cue) and f"{cue.text} ".startswith(f"{last.text} "):
            merged[-1] = replace(cue, start=last.start, end=max(last.end or 0.0, cue.end or 0.0))
        else:
            merged.append(cue)
    return merged


def _touching(cue: Cue, following: Cue) -> bool:
    if cue.end is None or following.start is None:
        return False
    return following.start - cue.end <= MAX_CUE_GAP_SECONDS


def _cut_overlaps(cues: Sequence[Cue]) -> list[Cue]:
    """Cut overlaps in the middle; a cue inside another takes its seconds, two that start together
    stay."""
    parted: list[Cue] = []
    for cue in cues:
        last = parted[-1] if parted else None
        if last is not None and last.start is not None and last.end is not None:
            start, end = cue.start or 0.0, cue.end or 0.0
            middle = (last.end + start) / 2
            if last.end > start and last.start < middle < end:
                parted[-1] = replace(last, end=middle)
                cue = replace(cue, start=middle)
            elif last.end > start > last.start:
                parted[-1] = replace(last, end=start)
        parted.append(cue)
    return parted
