"""Any caption file to a transcript: the format is known by its content, then by its name.

Rolling captions are repaired: a line that several cues show is said once, where it first appears,
in JSON by TAN's rule where it is last repeated; no two cues overlap.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from pathlib import Path

from stepline.asr.caption_formats import (
    MAX_CUE_GAP_SECONDS,
    MIN_CUE_SECONDS,
    Cue,
    has_csv_header,
    parse_csv,
    parse_json,
    unusable_time_reason,
)
from stepline.asr.caption_text import read_caption_text, strip_sounds, words_without_sounds
from stepline.asr.punctuation import MIN_STOPS_PER_WORD, lacks_punctuation, restore_punctuation
from stepline.asr.sentences import ends_sentence, split_sentences
from stepline.asr.settings import AsrSettings
from stepline.asr.shown_captions import ShownCaption, ShownLine, TimedPiece, first_appearances
from stepline.asr.subtitles import SubtitleFile, has_sbv_timing, parse_subtitles
from stepline.asr.transcribe import DEFAULTS, MAX_DROPPED_CHARS, TranscriptionResult
from stepline.asr.ttml import is_ttml, parse_ttml
from stepline.errors import CaptionError
from stepline.limits import CUE, WORDS
from stepline.records import Rejected, Span, Transcript, Word

NO_CUE_REASON = "it is outside of every caption, so nobody says when"
TITLE_REASON = "placed as a title on the picture, not as speech"
CAPTION_CURE = "give srt, vtt, json or a csv with start,end,text, or sbv, ttml, dfxp"
MAX_NOTE_CHARS = 60  # of a note that a warning shows


@dataclass
class _CaptionFile:
    """What a file holds. rolling: its cues may repeat lines by TAN's rule."""

    cues: list[Cue]
    dropped: list[Rejected]
    warnings: list[str]
    rolling: bool = False


def read_captions(
    path: Path | str, video_id: str | None = None, settings: AsrSettings = DEFAULTS
) -> TranscriptionResult:
    """Return the transcript that a caption file holds, and what of it was left out.

    video_id picks one video of a file that holds many. Words get times by linear interpolation in
    their cue where the file has none; settings.language says what is spoken, since most files do
    not. Without punctuation and word times, a cue is a sentence. settings.encoding: of the file, by
    Python's name for it; None: UTF-8, or guessed with a warning.
    Raises CaptionError for a file that cannot be read or has another form.
    """
    file = _read_file(Path(path), video_id, settings.encoding)
    cues, dropped = _usable_cues(file.cues)
    plain = [cue for cue in cues if not cue.words]
    plain = repair_rolling_captions(plain) if file.rolling else _cut_overlaps(_on_one_line(plain))
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
    return TranscriptionResult(transcript, (*file.dropped, *dropped), warnings=tuple(file.warnings))


def _read_file(path: Path, video: str | None, encoding: str | None) -> _CaptionFile:
    decoded = read_caption_text(path, encoding)
    text = decoded.text
    warnings = []
    if decoded.guess:
        cure = "where that is wrong, name it with --encoding or save the file as UTF-8"
        warnings.append(f"{path.name}: {decoded.guess}; {cure}")
    begin = text.lstrip()[:6]
    suffix = path.suffix.lower()
    is_subtitles = "-->" in text and suffix in (".srt", ".vtt")
    if begin.startswith(("{", "[")) and not is_subtitles and suffix != ".sbv":
        return _CaptionFile(parse_json(text, str(path), video), [], warnings, rolling=True)
    if suffix == ".csv" or has_csv_header(text):
        rows = parse_csv(text, str(path))
        subtitles = SubtitleFile([_shown_row(row) for row in rows])
    elif is_ttml(text):
        subtitles = parse_ttml(text, str(path))
    elif begin == "WEBVTT" or "-->" in text or has_sbv_timing(text):
        subtitles = parse_subtitles(text, str(path))
    else:
        raise CaptionError(f"{path}: no captions recognised; {CAPTION_CURE}")
    return _cues_of_subtitles(path, subtitles, warnings)


def _shown_row(cue: Cue) -> ShownCaption:
    lines = [ShownLine((TimedPiece(line),)) for line in cue.text.splitlines()]
    return ShownCaption(cue.start, cue.end, tuple(lines))


def _cues_of_subtitles(path: Path, file: SubtitleFile, warnings: list[str]) -> _CaptionFile:
    """Return a cue for what each caption is the first to show; what is no speech is dropped."""
    dropped = [_rejected(text, NO_CUE_REASON) for text in file.outside]
    captions = [caption for caption in file.captions if caption.texts]
    titles = [caption for caption in captions if caption.title]
    # Where most are up there, that is where this file puts speech.
    has_titles = 2 * len(titles) <= len(captions)
    usable = []
    broken = []
    for caption in captions:
        text = "\n".join(caption.texts)
        if caption.title and has_titles:
            dropped.append(_rejected(text, TITLE_REASON))
        elif unusable_time_reason(cue := Cue(text, caption.start, caption.end)) is not None:
            broken.append(cue)
        else:
            usable.append(caption)
    if titles and has_titles:
        count = f"{len(titles)} of {len(captions)} captions are placed as titles"
        warnings.append(f"{path.name}: {count}, not as speech, and left out")
    if file.notes:
        first = file.notes[0][:MAX_NOTE_CHARS]
        count = f"{len(file.notes)} notes that nobody says are left out"
        warnings.append(f"{path.name}: {count}, the first: {first!r}")
    return _CaptionFile([*first_appearances(usable), *broken], dropped, warnings)


def _rejected(text: str, reason: str) -> Rejected:
    shortened = " ".join(text.split())[:MAX_DROPPED_CHARS]
    return Rejected(what="sentence", text=shortened, reason=reason)


def _on_one_line(cues: Sequence[Cue]) -> list[Cue]:
    return [replace(cue, text=" ".join(cue.text.split())) for cue in cues]


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
            dropped.append(_rejected(cue.text, reason))
            continue
        words = words_without_sounds(cue.words)
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
