"""Reads a caption file of any format into a transcript. The content decides the format, then the
name.

Rolling captions are repaired: a line that several cues show is kept once, where it first appears.
In JSON it is kept where it appears last, by TAN's rule. No two cues overlap.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain, pairwise
from pathlib import Path

from stepline.errors import CaptionError
from stepline.limits import MAX_CUE_CHARS, MAX_TRANSCRIPT_WORDS
from stepline.records import Rejected, Transcript
from stepline.speech.caption_formats import (
    has_csv_header,
    invalid_time_reason,
    parse_csv,
    parse_json,
)
from stepline.speech.caption_text import strip_sounds, words_without_sounds
from stepline.speech.punctuation import MIN_STOPS_PER_WORD, lacks_punctuation, restore_punctuation
from stepline.speech.sentences import ends_sentence, split_sentences, start_and_end
from stepline.speech.settings import AsrSettings
from stepline.speech.shown_captions import (
    MAX_CUE_GAP_SECONDS,
    MIN_CUE_SECONDS,
    Cue,
    ShownCaption,
    SubtitleFile,
    TimedText,
    first_appearances,
    interpolate_words,
)
from stepline.speech.subtitles import has_sbv_timing, parse_subtitles
from stepline.speech.text_encodings import read_caption_text
from stepline.speech.transcribe import DEFAULT_ASR_SETTINGS, MAX_DROPPED_CHARS, TranscriptionResult
from stepline.speech.ttml import is_ttml, parse_ttml

NO_CUE_REASON = "it is outside of every caption, so it has no time"
TITLE_REASON = "placed as a title on the picture, not as speech"
CAPTION_CURE = "give srt, vtt, json or a csv with start,end,text, or sbv, ttml, dfxp"
MAX_NOTE_CHARS = 60  # of a note that a warning shows


def read_captions(
    path: Path | str, video_id: str | None = None, settings: AsrSettings = DEFAULT_ASR_SETTINGS
) -> TranscriptionResult:
    """Return the transcript of a caption file, and the cues that were left out with their reasons.

    Words get times by linear interpolation in their cue where the file has none. settings.language
    says the spoken language, since most files do not. Without punctuation and word times, a cue is
    a sentence.

    Args:
        path: an srt, vtt, sbv, ttml, csv or JSON file.
        video_id: selects one video of a file that holds many.
        settings: `encoding` is a codec of Python. None: UTF-8, or guessed with a warning.

    Raises CaptionError for a file that cannot be read or has another form.
    """
    path = Path(path)
    text, encoding_note = read_caption_text(path, settings.encoding)
    warnings = []
    # An encoding that is a guess is reported.
    if encoding_note:
        cure = "where that is wrong, name it with --encoding or save the file as UTF-8"
        warnings.append(f"{path.name}: {encoding_note}; {cure}")
    dropped: list[Rejected] = []
    subtitles = _read_subtitles(path, text)
    if subtitles is None:
        cues = parse_json(text, str(path), video_id)
    else:
        cues = _cues_of_subtitles(path, subtitles, dropped, warnings)
    cues = _usable_cues(cues, dropped)

    # cues without the times of their words are repaired
    plain = [cue for cue in cues if not cue.words]
    if subtitles is None:
        plain = repair_rolling_captions(plain)
    else:
        plain = _cut_overlaps([replace(cue, text=_join_lines(cue.text)) for cue in plain])
    is_timed = [cue for cue in cues if cue.words]
    cues = sorted(plain + is_timed, key=_times)

    # words, with punctuation
    if sum(len(cue.words) or cue.text.count(" ") + 1 for cue in cues) > MAX_TRANSCRIPT_WORDS:
        cure = "cut this video's part out of it"
        raise CaptionError(
            f"{path}: more than {MAX_TRANSCRIPT_WORDS} words, which no video says; {cure}"
        )
    groups = []
    for cue in cues:
        groups.append(list(cue.words) or interpolate_words([TimedText(cue.text)], *_times(cue)))
    words = list(chain(*groups))
    if lacks_punctuation(words, settings.language):
        words = restore_punctuation(words)
    stops = sum(ends_sentence(word.text) for word in words)
    has_stops = stops >= MIN_STOPS_PER_WORD * len(words)
    if has_stops or all(cue.words for cue in cues):
        groups = [words]

    # sentences
    sentences = []
    for group in groups:
        sentences += split_sentences(group, pause=settings.pause, longest=settings.longest)
    sentences.sort(key=start_and_end)
    transcript = Transcript(
        language=settings.language, sentences=tuple(sentences), recogniser="captions"
    )
    return TranscriptionResult(transcript, tuple(dropped), tuple(warnings))


def _times(cue: Cue) -> tuple[float, float]:
    return cue.start or 0.0, cue.end or 0.0


def _read_subtitles(path: Path, text: str) -> SubtitleFile | None:
    """Return the captions of a subtitle file, or None for JSON."""
    # A subtitle may begin with "[Music]", which is not JSON.
    begin = text.lstrip()[:6]
    suffix = path.suffix.lower()
    has_arrows = "-->" in text
    is_subtitles = has_arrows if suffix in (".srt", ".vtt") else suffix == ".sbv"
    if begin.startswith(("{", "[")) and not is_subtitles:
        return None
    if suffix == ".csv" or has_csv_header(text):
        rows = []
        for cue in parse_csv(text, str(path)):
            lines = [[TimedText(line)] for line in cue.text.splitlines()]
            rows.append(ShownCaption(cue.start, cue.end, lines))
        return SubtitleFile(rows)
    if is_ttml(text):
        return parse_ttml(text, str(path))
    if begin == "WEBVTT" or has_arrows or has_sbv_timing(text):
        return parse_subtitles(text, str(path))
    raise CaptionError(f"{path}: no captions recognised; {CAPTION_CURE}")


def _cues_of_subtitles(
    path: Path, file: SubtitleFile, dropped: list[Rejected], warnings: list[str]
) -> list[Cue]:
    """Return one cue per caption with new text. Append what is not speech to `dropped` and
    `warnings`.
    """
    dropped += [_rejected(text, NO_CUE_REASON) for text in file.text_outside_captions]
    captions = [caption for caption in file.captions if caption.texts]
    title_count = sum(caption.title for caption in captions)
    # Where most are up there, that is where this file puts speech.
    has_titles = 2 * title_count <= len(captions)
    usable = []
    broken = []
    for caption in captions:
        cue = Cue("\n".join(caption.texts), caption.start, caption.end)
        if caption.title and has_titles:
            dropped.append(_rejected(cue.text, TITLE_REASON))
        elif invalid_time_reason(cue) is not None:
            broken.append(cue)
        else:
            usable.append(caption)

    # what a user is warned of
    if title_count and has_titles:
        count = f"{title_count} of {len(captions)} captions are placed as titles"
        warnings.append(f"{path.name}: {count}, not as speech, and left out")
    if file.notes:
        first = file.notes[0][:MAX_NOTE_CHARS]
        count = f"{len(file.notes)} notes that are not speech are left out"
        warnings.append(f"{path.name}: {count}, the first: {first!r}")
    return [*first_appearances(usable), *broken]


def _rejected(text: str, reason: str) -> Rejected:
    return Rejected(what="sentence", text=_join_lines(text)[:MAX_DROPPED_CHARS], reason=reason)


def _join_lines(text: str) -> str:
    return " ".join(text.split())


def _usable_cues(cues: Sequence[Cue], dropped: list[Rejected]) -> list[Cue]:
    """Return the cues with text and valid times, sorted. Append the others to `dropped`."""
    usable: list[Cue] = []
    for cue in cues:
        if not cue.text.strip():
            continue
        speech = strip_sounds(cue.text)
        reason = _unusable_reason(cue, speech)
        if reason is not None:
            dropped.append(_rejected(cue.text, reason))
            continue
        words = words_without_sounds(cue.words)
        # Timed words that do not make what is said are left out, to be interpolated.
        timed_text = "".join(word.text for word in words)
        if _without_spaces(timed_text) != _without_spaces(speech):
            words = ()
        usable.append(replace(cue, text=speech, start=max(0.0, cue.start or 0.0), words=words))
    usable.sort(key=lambda cue: cue.start or 0.0)
    return usable


def _unusable_reason(cue: Cue, speech: str) -> str | None:
    """Return why a cue is left out, or None for a cue with text and a valid time."""
    if not any(letter.isalnum() for letter in speech):
        return "a sound, not speech"
    if len(speech) > MAX_CUE_CHARS:
        return f"it has more than {MAX_CUE_CHARS} characters"
    reason = invalid_time_reason(cue)
    start, end = _times(cue)
    length = end - start
    if reason is None and length <= MIN_CUE_SECONDS:
        reason = f"shown for {length:.2f} s, and {MIN_CUE_SECONDS} s is too short for speech"
    return reason


def _without_spaces(text: str) -> str:
    """Return a text without spaces."""
    return "".join(text.split())


# ---------------------------------------------------------------- rolling captions


def repair_rolling_captions(cues: Sequence[Cue]) -> list[Cue]:
    """Return the cues with each line once, and overlaps cut in their middle.

    Cues need times and are sorted by start. A last line that the next cue repeats is removed from
    the first of them. A cue that is the beginning of the next one is merged with it. Source: the
    sentencified HowTo100M of TAN. Its cases are in tests/speech/test_captions.py.
    """
    # cues of lines without spare spaces, and none after the last
    trimmed = []
    for cue in cues:
        lines = [_join_lines(line) for line in cue.text.splitlines()]
        text = "\n".join(filter(None, lines))
        trimmed.append(replace(cue, text=text))
    trimmed.append(Cue("", None, None))

    # each text once
    single = []
    for cue, following in pairwise(trimmed):
        text = _without_repeated_lines(cue, following)
        if text.strip():
            single.append(replace(cue, text=_join_lines(text)))
    return _cut_overlaps(_merge_growing(single))


def _without_repeated_lines(cue: Cue, following: Cue) -> str:
    """Return the text of a cue without the last lines that the adjacent next cue repeats."""
    if not _touching(cue, following):
        return cue.text
    lines = cue.text.split("\n")
    next_lines = following.text.split("\n")
    # The longest repetition counts.
    max_count = min(len(lines) - 1, len(next_lines))
    for count in range(max_count, 0, -1):
        if lines[-count:] == next_lines[:count]:
            return "\n".join(lines[:-count])
    return cue.text


def _merge_growing(cues: Sequence[Cue]) -> list[Cue]:
    """Merge each cue with the next one where that repeats its text and adds more."""
    merged: list[Cue] = []
    for cue in cues:
        if merged and _grows_into(merged[-1], cue):
            last = merged.pop()
            end = max(last.end or 0.0, cue.end or 0.0)
            cue = replace(cue, start=last.start, end=end)
        merged.append(cue)
    return merged


def _grows_into(cue: Cue, following: Cue) -> bool:
    return _touching(cue, following) and f"{following.text} ".startswith(f"{cue.text} ")


def _touching(cue: Cue, following: Cue) -> bool:
    gap = float("inf")
    if cue.end is not None and following.start is not None:
        gap = following.start - cue.end
    return gap <= MAX_CUE_GAP_SECONDS


def _cut_overlaps(cues: Sequence[Cue]) -> list[Cue]:
    """Cut overlaps in the middle. A cue inside another one replaces it there.

    Two cues that start together stay.
    """
    separated: list[Cue] = []
    for cue in cues:
        if separated:
            separated[-1], cue = _separate(separated[-1], cue)
        separated.append(cue)
    return separated


def _separate(cue: Cue, following: Cue) -> tuple[Cue, Cue]:
    """Return two cues, the first of which ends where the second starts."""
    if cue.start is None or cue.end is None:
        return cue, following
    start, end = _times(following)
    if cue.end <= start:
        return cue, following
    # Half of the overlap for each, where both still last.
    middle = (cue.end + start) / 2
    if cue.start < middle < end:
        following = replace(following, start=middle)
        return replace(cue, end=middle), following
    if start > cue.start:
        cue = replace(cue, end=start)
    return cue, following
