"""Any caption file to a transcript: the format is known by its content, then by its name."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from stepline.asr.captions.cue import Cue, objection
from stepline.asr.captions.rolling import repaired
from stepline.asr.captions.subtitles import read_subtitles
from stepline.asr.captions.tables import is_table, read_table
from stepline.asr.captions.text import read_text, without_sounds
from stepline.asr.captions.trees import read_tree
from stepline.asr.heard import Heard
from stepline.asr.sentences import ends_sentence, sentences
from stepline.asr.settings import AsrSettings
from stepline.errors import CaptionError
from stepline.records import Dropped, Sentence, Span, Transcript, Word

DEFAULTS = AsrSettings()
SHORTEST = 0.2  # s; a cue shown no longer is an artefact of rolling captions (TAN)
PUNCTUATED = 0.02  # full stops a word from which the punctuation is taken seriously
LONGEST_TEXT = 300  # characters of a dropped text that are kept


def read_captions(path: Path | str, video_id: str | None = None, settings: AsrSettings = DEFAULTS) -> Heard:
    """Return the transcript that a caption file holds, and what of it was left out.

    video_id picks one video of a file that holds many. Words get times by linear interpolation in their cue where the
    file has none; settings.language says what is spoken, since most files do not. Without punctuation and word times, a
    cue is a sentence.
    Raises CaptionError for a file that cannot be read or has another form.
    """
    cues, dropped = _sorted_out(_cues(Path(path), video_id))
    plain = repaired([cue for cue in cues if not cue.words])
    cues = sorted([*plain, *(cue for cue in cues if cue.words)], key=lambda cue: (cue.start or 0.0, cue.end or 0.0))
    found = sorted(_sentences(cues, settings), key=lambda sentence: (sentence.span.start, sentence.span.end))
    transcript = Transcript(language=settings.language, sentences=tuple(found), recogniser="captions")
    return Heard(transcript, tuple(dropped))


def _cues(path: Path, video: str | None) -> list[Cue]:
    text = read_text(path)
    begin = text.lstrip()[:6]
    if begin.startswith(("{", "[")) and not ("-->" in text and path.suffix.lower() in (".srt", ".vtt")):
        return read_tree(text, str(path), video)
    if path.suffix.lower() == ".csv" or is_table(text):
        return read_table(text, str(path))
    if begin == "WEBVTT" or "-->" in text:
        return read_subtitles(text, str(path))
    raise CaptionError(f"{path}: no captions recognised; give srt, vtt, json or a csv with start,end,text")


def _sorted_out(cues: Sequence[Cue]) -> tuple[list[Cue], list[Dropped]]:
    """Return the cues that say something at a usable time, sorted, and the others with their reasons."""
    kept: list[Cue] = []
    dropped: list[Dropped] = []
    for cue in cues:
        said = without_sounds(cue.text)
        reason = objection(cue) or _too_short(cue)
        if not any(letter.isalnum() for letter in said):
            reason = "a sound, not speech"
        if not cue.text.strip():
            continue
        if reason is None:
            start = max(0.0, cue.start or 0.0)
            kept.append(replace(cue, text=said, start=start, words=_spoken(cue, said)))
        else:
            dropped.append(Dropped(what="sentence", text=" ".join(cue.text.split())[:LONGEST_TEXT], reason=reason))
    return sorted(kept, key=lambda cue: cue.start or 0.0), dropped


def _too_short(cue: Cue) -> str | None:
    length = (cue.end or 0.0) - (cue.start or 0.0)
    return f"shown for {length:.2f} s; nothing is said in {SHORTEST} s" if length <= SHORTEST else None


def _spoken(cue: Cue, said: str) -> tuple[Word, ...]:
    """Return the cue's timed words without sounds; none where they do not make what is said, to be interpolated."""
    words = tuple(word for word in cue.words if without_sounds(word.text).strip())
    together = "".join("".join(word.text for word in words).split())
    return words if together == "".join(said.split()) else ()


def _sentences(cues: Sequence[Cue], settings: AsrSettings) -> list[Sentence]:
    groups = [list(cue.words) or _interpolated(cue) for cue in cues]
    words = [word for group in groups for word in group]
    stops = sum(ends_sentence(word.text) for word in words)
    if stops >= PUNCTUATED * len(words) or all(cue.words for cue in cues):
        return sentences(words, pause=settings.pause, longest=settings.longest)
    return [s for group in groups for s in sentences(group, pause=settings.pause, longest=settings.longest)]


def _interpolated(cue: Cue) -> list[Word]:
    """Return the words of a cue, each with an equal share of its seconds."""
    tokens = cue.text.split()
    start, end = cue.start or 0.0, cue.end or 0.0
    edges = [*(start + i * (end - start) / len(tokens) for i in range(len(tokens))), end]
    return [
        Word(text=f" {token}", span=Span(first, last) if first < last else None)
        for token, first, last in zip(tokens, edges, edges[1:], strict=False)
    ]
