"""Reads a caption file of any format into a transcript. The content decides the format, then the
name.

Rolling captions are repaired: a line that several cues show is kept once, where it first appears.
In JSON it is kept where it appears last, by TAN's rule. No two cues overlap.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from stepline.errors import CaptionError
from stepline.limits import MAX_CUE_CHARS, MAX_TRANSCRIPT_WORDS
from stepline.records import Rejected, Transcript
from stepline.speech.caption_formats import (
    has_csv_header,
    invalid_time_reason,
    milliseconds_as_seconds,
    parse_csv,
    parse_json,
)
from stepline.speech.caption_text import (
    find_speaker_labels,
    strip_sounds,
    strip_speaker_labels,
    words_without_sounds,
)
from stepline.speech.punctuation import (
    MIN_STOPS_PER_WORD,
    MIN_WORDS,
    lacks_punctuation,
    restore_punctuation,
)
from stepline.speech.sentences import ends_sentence, split_sentences, start_and_end
from stepline.speech.settings import AsrSettings
from stepline.speech.shown_captions import (
    MAX_CUE_GAP_SECONDS,
    MIN_CUE_SECONDS,
    Cue,
    ShownCaption,
    SubtitleFile,
    TimedText,
    cues_of_rolling_captions,
    interpolate_words,
)
from stepline.speech.subtitles import has_timing, parse_subtitles
from stepline.speech.text_encodings import read_caption_text
from stepline.speech.transcribe import DEFAULT_ASR_SETTINGS, MAX_DROPPED_CHARS, TranscriptionResult

NO_CUE_REASON = "it is outside of every caption, so it has no time"
TITLE_REASON = "placed as a title on the picture, not as speech"
CAPTION_CURE = (
    "give srt, vtt, json or a csv with start,end,text, or sbv; "
    "`tt convert` (pip install ttconv) makes vtt of ttml and dfxp"
)
MAX_LISTED_SPEAKERS = 4  # that a warning names
MAX_NOTE_CHARS = 60  # of a note that a warning shows


def read_captions(
    path: Path | str, video_id: str | None = None, settings: AsrSettings = DEFAULT_ASR_SETTINGS
) -> TranscriptionResult:
    """Return the transcript of a caption file, and the rejected cues with their reasons.

    If the file has no word times, they are interpolated linearly within each cue. Without
    punctuation and word times, each cue is one sentence. `settings.language` gives the spoken
    language, since most files do not.

    Args:
        path: an srt, vtt, sbv, csv or JSON file.
        video_id: id of the video to read from a file with many videos. None if it has one.
        settings: settings with the language and `encoding`, the name of a Python codec. None means
            UTF-8, or a guessed encoding with a warning.

    Raises CaptionError if the file cannot be read or has another format.
    """
    path = Path(path)
    text, encoding_note = read_caption_text(path, settings.encoding)
    warnings = []
    if encoding_note:
        cure = "where that is wrong, name it with --encoding or save the file as UTF-8"
        warnings.append(f"{path.name}: {encoding_note}; {cure}")
    dropped: list[Rejected] = []
    subtitles = _read_subtitles(path, text, warnings)
    if subtitles is None:
        cues = _convert_to_seconds(path, parse_json(text, str(path), video_id), warnings)
    else:
        cues = _cues_of_subtitles(path, subtitles, dropped, warnings)
    cues = _without_speakers(path, cues, warnings)
    cues = _usable_cues(cues, dropped)

    # cues without word times are repaired
    untimed = [cue for cue in cues if not cue.words]
    if subtitles is None:
        untimed = repair_rolling_captions(untimed)
    else:
        untimed = _cut_overlaps([replace(cue, text=_join_lines(cue.text)) for cue in untimed])
    cues = sorted([*untimed, *(cue for cue in cues if cue.words)], key=_start_and_end)

    # words, with punctuation
    if sum(len(cue.words) or cue.text.count(" ") + 1 for cue in cues) > MAX_TRANSCRIPT_WORDS:
        cure = "cut this video's part out of it"
        raise CaptionError(
            f"{path}: more than {MAX_TRANSCRIPT_WORDS} words, which no video says; {cure}"
        )
    words_of_cues = [
        list(cue.words) or interpolate_words([TimedText(cue.text)], *_start_and_end(cue))
        for cue in cues
    ]
    words = [word for cue_words in words_of_cues for word in cue_words]
    if lacks_punctuation(words, settings.language):
        words = restore_punctuation(words)
    has_stops = sum(ends_sentence(word.text) for word in words) >= MIN_STOPS_PER_WORD * len(words)
    groups = [words] if has_stops or all(cue.words for cue in cues) else words_of_cues
    if len(groups) > 1 and len(words) < MIN_WORDS:
        warnings.append(
            f"{path.name}: too few words without a full stop, so each line is taken as a sentence "
            "and steps may be cut; full stops in the file help"
        )
    sentences = [
        sentence
        for group in groups
        for sentence in split_sentences(group, pause=settings.pause, longest=settings.longest)
    ]
    sentences.sort(key=start_and_end)
    transcript = Transcript(
        language=settings.language, sentences=tuple(sentences), recogniser="captions"
    )
    return TranscriptionResult(transcript, tuple(dropped), tuple(warnings))


def _start_and_end(cue: Cue) -> tuple[float, float]:
    return cue.start or 0.0, cue.end or 0.0


def _read_subtitles(path: Path, text: str, warnings: list[str]) -> SubtitleFile | None:
    """Return the captions of a subtitle or csv file. None for a JSON file.

    Args:
        path: path of the file.
        text: text in the file.
        warnings: list to which a warning about the unit of times is appended.
    """
    # A subtitle may begin with "[Music]", which is not JSON.
    start = text.lstrip()[:6]
    suffix = path.suffix.lower()
    is_subtitles = suffix == ".sbv" or (suffix in (".srt", ".vtt") and has_timing(text))
    if start.startswith(("{", "[")) and not is_subtitles:
        return None
    if suffix == ".csv" or has_csv_header(text):
        rows = []
        for cue in _convert_to_seconds(path, parse_csv(text, str(path)), warnings):
            lines = [[TimedText(line)] for line in cue.text.splitlines()]
            rows.append(ShownCaption(cue.start, cue.end, lines))
        return SubtitleFile(rows)
    if start == "WEBVTT" or has_timing(text):
        return parse_subtitles(text, str(path))
    raise CaptionError(f"{path}: no captions recognised; {CAPTION_CURE}")


def _convert_to_seconds(path: Path, cues: list[Cue], warnings: list[str]) -> list[Cue]:
    seconds = milliseconds_as_seconds(cues)
    if seconds is None:
        return cues
    warnings.append(
        f"{path.name}: times are read as milliseconds, as seconds they leave less than a word in "
        "100 s; where they are seconds, write one of them with a fraction (12.5)"
    )
    return seconds


def _without_speakers(path: Path, cues: list[Cue], warnings: list[str]) -> list[Cue]:
    """Return the cues without the names of speakers before a colon, which a warning lists."""
    labels = find_speaker_labels([cue.text for cue in cues])
    if not labels:
        return cues
    more = f" and {len(labels) - MAX_LISTED_SPEAKERS} more" * (len(labels) > MAX_LISTED_SPEAKERS)
    listed = ", ".join(map(repr, labels[:MAX_LISTED_SPEAKERS]))
    warnings.append(f"{path.name}: names of speakers before a colon are left out: {listed}{more}")
    names = frozenset(labels)
    nameless = []
    for cue in cues:
        text = strip_speaker_labels(cue.text, names)
        # Timed words of the label are the first ones.
        label_words = len(cue.text.split()) - len(text.split())
        nameless.append(replace(cue, text=text, words=cue.words[label_words:]))
    return nameless


def no_sentence_error(path: Path, dropped: Sequence[Rejected]) -> CaptionError:
    """Return the error for captions without any sentence, with the reason of the first left out."""
    left_out = [item.reason for item in dropped if item.what == "sentence"]
    reason = f" ({len(left_out)} left out, the first: {left_out[0]})" if left_out else ""
    return CaptionError(
        f"{path}: holds no sentence to write steps from{reason}; give other captions"
    )


def _cues_of_subtitles(
    path: Path, file: SubtitleFile, dropped: list[Rejected], warnings: list[str]
) -> list[Cue]:
    """Return one cue per caption with new text, also those with invalid times.

    Args:
        path: path of the file, for messages.
        file: content of the file.
        dropped: list to which texts that are not speech are appended.
        warnings: list to which warnings about such texts are appended.
    """
    dropped += [_rejection(text, NO_CUE_REASON) for text in file.text_outside_captions]
    captions = [caption for caption in file.captions if caption.texts]
    title_count = sum(caption.is_title for caption in captions)
    # Where most are up there, that is where this file puts speech.
    has_titles = 0 < 2 * title_count <= len(captions)
    valid = []
    invalid = []
    for caption in captions:
        cue = Cue("\n".join(caption.texts), caption.start, caption.end)
        if caption.is_title and has_titles:
            dropped.append(_rejection(cue.text, TITLE_REASON))
        elif invalid_time_reason(cue) is not None:
            invalid.append(cue)
        else:
            valid.append(caption)
    if has_titles:
        count = f"{title_count} of {len(captions)} captions are placed as titles"
        warnings.append(f"{path.name}: {count}, not as speech, and left out")
    if file.notes:
        count = f"{len(file.notes)} notes that are not speech are left out"
        warnings.append(f"{path.name}: {count}, the first: {file.notes[0][:MAX_NOTE_CHARS]!r}")
    return [*cues_of_rolling_captions(valid), *invalid]


def _rejection(text: str, reason: str) -> Rejected:
    return Rejected(what="sentence", text=_join_lines(text)[:MAX_DROPPED_CHARS], reason=reason)


def _join_lines(text: str) -> str:
    return " ".join(text.split())


def _usable_cues(cues: Sequence[Cue], dropped: list[Rejected]) -> list[Cue]:
    """Return the cues with speech and valid times, sorted by start.

    dropped: list to which the other cues are appended, each with its reason.
    """
    usable: list[Cue] = []
    for cue in cues:
        if not cue.text.strip():
            continue
        speech = strip_sounds(cue.text)
        reason = _unusable_reason(cue, speech)
        if reason is not None:
            dropped.append(_rejection(cue.text, reason))
            continue
        words = words_without_sounds(cue.words)
        # Words that are not those of the text lose their times, which are interpolated then.
        timed_text = "".join(word.text for word in words)
        if "".join(timed_text.split()) != "".join(speech.split()):
            words = ()
        usable.append(replace(cue, text=speech, start=max(0.0, cue.start or 0.0), words=words))
    usable.sort(key=lambda cue: cue.start or 0.0)
    return usable


def _unusable_reason(cue: Cue, speech: str) -> str | None:
    """Return why a cue is rejected. None for a cue with text and valid times.

    Args:
        cue: the cue.
        speech: its text without sound descriptions.
    """
    if not any(letter.isalnum() for letter in speech):
        return "a sound, not speech"
    if len(speech) > MAX_CUE_CHARS:
        return f"it has {len(speech)} characters, a cue at most {MAX_CUE_CHARS}: cut it into cues"
    reason = invalid_time_reason(cue)
    start, end = _start_and_end(cue)
    if reason is None and end - start <= MIN_CUE_SECONDS:
        reason = f"shown for {end - start:.2f} s, and {MIN_CUE_SECONDS} s is too short for speech"
    return reason


# ---------------------------------------------------------------- rolling captions


def repair_rolling_captions(cues: Sequence[Cue]) -> list[Cue]:
    """Return cues in which each line occurs once, and overlaps are cut in their middle.

    If the last line of a cue is repeated by the next cue, the line is removed from the first of the
    two. A cue whose text begins the next cue is merged with it. Source: the sentencified HowTo100M
    of TAN.

    cues: cues with times, sorted by start.
    """
    trimmed = []
    for cue in cues:
        lines = map(_join_lines, cue.text.splitlines())
        trimmed.append(replace(cue, text="\n".join(filter(None, lines))))
    trimmed.append(Cue("", None, None))

    merged: list[Cue] = []
    for cue, following in pairwise(trimmed):
        text = _join_lines(_without_repeated_lines(cue, following))
        if not text:
            continue
        cue = replace(cue, text=text)
        # a cue that repeats the text of the last one and adds more
        if (
            merged
            and _is_adjacent(merged[-1], cue)
            and f"{text} ".startswith(f"{merged[-1].text} ")
        ):
            last = merged.pop()
            cue = replace(cue, start=last.start, end=max(last.end or 0.0, cue.end or 0.0))
        merged.append(cue)
    return _cut_overlaps(merged)


def _without_repeated_lines(cue: Cue, following: Cue) -> str:
    """Return the text of a cue without its last lines that the next cue repeats.

    Lines are removed only if the next cue is adjacent in time.

    Args:
        cue: the cue.
        following: the next cue.
    """
    if not _is_adjacent(cue, following):
        return cue.text
    lines = cue.text.split("\n")
    next_lines = following.text.split("\n")
    # The longest repetition counts.
    for count in range(min(len(lines) - 1, len(next_lines)), 0, -1):
        if lines[-count:] == next_lines[:count]:
            return "\n".join(lines[:-count])
    return cue.text


def _is_adjacent(cue: Cue, following: Cue) -> bool:
    """Return whether the cue `following` starts soon after the end of `cue`."""
    if cue.end is None or following.start is None:
        return False
    return following.start - cue.end <= MAX_CUE_GAP_SECONDS


def _cut_overlaps(cues: Sequence[Cue]) -> list[Cue]:
    """Return cues without overlaps: each overlap of two cues is cut in its middle.

    A cue inside a longer cue replaces it for its duration. Two cues with the same start are kept.
    """
    separated: list[Cue] = []
    for cue in cues:
        start, end = _start_and_end(cue)
        if separated and start < _start_and_end(separated[-1])[1]:
            last_start, last_end = _start_and_end(separated[-1])
            # Half of the overlap for each, where both still last.
            middle = (last_end + start) / 2
            if last_start < middle < end:
                separated[-1] = replace(separated[-1], end=middle)
                cue = replace(cue, start=middle)
            elif start > last_start:
                separated[-1] = replace(separated[-1], end=start)
        separated.append(cue)
    return separated
