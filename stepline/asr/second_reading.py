"""Speech that the first reading of a window passes over, or spreads a word across, is read again by
itself.

A recogniser reads half a minute as a whole: where somebody else talks, or a pause is long, it may
leave a sentence out, or stretch a word of the next one back over the silence. The voice detector
shows both: voice that no word covers, and a long word that is mostly silence. The utterances around
such a place are cut out at the silences beside them and read one by one; whichever reading covers
the voice with surer words stays.
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from stepline.asr.audio_windows import AudioWindow, WindowTranscript
from stepline.asr.sentences import ends_sentence
from stepline.asr.settings import AsrSettings
from stepline.asr.vad import FRAME, HYSTERESIS, find_speech, runs_of
from stepline.media.audio import SAMPLE_RATE, Samples
from stepline.records import Span, Word

FRAMES_PER_SECOND = SAMPLE_RATE / FRAME
# of voice between two words from which something was passed over; the pauses of speech hold up to
# 0.9
UNREAD_SECONDS = 1.2
MIN_DOUBT_SECONDS = 0.3  # of such voice for which an utterance is read again
SILENCE_SECONDS = 0.5  # without voice that part two utterances
PAD_SECONDS = 0.3  # of silence that an utterance keeps on either side
# of a longer utterance only the doubtful part is read again: the whole would be the same reading
MAX_UTTERANCE_SECONDS = 15.0
# fraction of its frames up to which a word of the greatest length counts as stretched
MAX_STRETCHED_VOICE = 0.5
# mean probability over the voice by which the second reading must be better
MIN_GAIN = 0.05
MIN_COVERED = 0.5  # fraction of a sentence that the first reading has too
# of a sentence that only the second reading has: what was passed over is often a call behind the
# speaker
MIN_CONFIDENCE = 0.7  # mean probability of its words
MIN_WORDS = 3
EDGE_FRAMES = 6  # 0.2 s; silence in a word from which it is cut off, to half of it
EARLY_FRAMES = 16  # 0.5 s, by which a voice may begin before its first word

Read: TypeAlias = Callable[[AudioWindow], WindowTranscript]
Frames: TypeAlias = tuple[int, int]  # first, last + 1 frame of a window
Mask: TypeAlias = npt.NDArray[np.bool_]


def read_again(
    window: AudioWindow, first: WindowTranscript, read: Read, settings: AsrSettings, *, tail: bool
) -> WindowTranscript:
    """Return the window's transcript with its doubtful parts as a second reading has them, where
    that is surer.

    read: reads a piece of sound. tail: whether voice after the last word counts; not where the next
    window holds it.
    """
    words = list(first.words)
    speech = window.voice >= settings.voice
    for pieces in doubtful_utterances(window, words, settings, tail=tail):
        frames = slice(pieces[0][0], pieces[-1][1])
        again = [word for piece in pieces for word in read(_cut(window, piece)).words]
        start = window.start + frames.start / FRAMES_PER_SECOND
        end = window.start + frames.stop / FRAMES_PER_SECOND
        before, old, after = _divide(words, start, end)
        confidence = word_confidence(window, old, settings)
        gain = word_confidence(window, again, settings) - confidence  # (F,)
        if gain[frames][speech[frames]].mean() > MIN_GAIN:
            words = [*before, *_clear_sentences(window, again, confidence > 0.0), *after]
    return replace(first, words=tuple(words))


def doubtful_utterances(
    window: AudioWindow, words: Sequence[Word], settings: AsrSettings, *, tail: bool
) -> list[list[Frames]]:
    """Return the frames to read again, piece by piece: neighbours that are judged together in one
    list."""
    timed = [word for word in words if word.span is not None]
    if not timed:
        return []
    # frames of speech in stretched words, and in gaps between words
    speech = window.voice >= settings.voice
    doubtful = np.zeros(len(speech), bool)
    covered = np.zeros(len(speech), bool)
    for word, following in zip(timed, [*timed[1:], None], strict=True):
        first, last = _frames(window, word)
        covered[first:last] = True
        if following and not ends_sentence(word.text) and _is_stretched(window, word, settings):
            doubtful[first : _frames(window, following)[0]] = True
    for first, last in runs_of(~covered):
        unread = speech[first:last].sum() >= UNREAD_SECONDS * FRAMES_PER_SECOND
        doubtful[first:last] |= unread and (tail or last < len(speech))
    doubtful &= speech

    # the utterances that hold them
    groups: list[list[Frames]] = [[]]
    utterances = find_speech(
        window.voice, threshold=settings.voice, gap=SILENCE_SECONDS, pad=PAD_SECONDS
    )
    for start, end in utterances:
        first, last = start // FRAME, min(len(speech), -(-end // FRAME))
        doubts = np.flatnonzero(doubtful[first:last])
        if len(doubts) < MIN_DOUBT_SECONDS * FRAMES_PER_SECOND:
            groups.append([])
        elif last - first <= MAX_UTTERANCE_SECONDS * FRAMES_PER_SECOND:
            groups[-1].append((first, last))
        else:
            groups += [[(first + int(doubts[0]), first + int(doubts[-1]) + 1)], []]
    return [group for group in groups if group]


def word_confidence(window: AudioWindow, words: Sequence[Word], settings: AsrSettings) -> Samples:
    """Return for each frame of the window the probability of the word that is said there, 0 without
    one; (F,).

    A stretched word covers nothing: where it is said is not known.
    """
    confidence = np.zeros(len(window.voice), np.float32)
    for word in words:
        if word.span is not None and not _is_stretched(window, word, settings):
            first, last = _frames(window, word)
            confidence[first:last] = 1.0 if word.confidence is None else word.confidence
    return confidence


def _frames(window: AudioWindow, word: Word) -> Frames:
    """Return the frames that a timed word covers, one at least."""
    assert word.span is not None
    first = max(0, int((word.span.start - window.start) * FRAMES_PER_SECOND))
    return first, max(first + 1, round((word.span.end - window.start) * FRAMES_PER_SECOND))


def _is_stretched(window: AudioWindow, word: Word, settings: AsrSettings) -> bool:
    first, last = _frames(window, word)
    longest = settings.longest_word * FRAMES_PER_SECOND - 2  # frames, as rounded
    voice = window.voice[first:last]
    return (
        last - first >= longest and float((voice >= settings.voice).mean()) <= MAX_STRETCHED_VOICE
    )


def _cut(window: AudioWindow, frames: Frames) -> AudioWindow:
    first, last = frames
    start = window.start + first / FRAMES_PER_SECOND
    samples = window.samples[first * FRAME : last * FRAME]
    return AudioWindow(start, samples, window.voice[first:last], last=True)


def _divide(
    words: Sequence[Word], start: float, end: float
) -> tuple[list[Word], list[Word], list[Word]]:
    """Return the words before, in and after the seconds [start, end), by their middles; one without
    time goes along."""
    parts: tuple[list[Word], list[Word], list[Word]] = [], [], []
    side = 0
    for word in words:
        if word.span is not None:
            side = max(side, bisect_right((start, end), word.span.center))
        parts[side].append(word)
    return parts


def _clear_sentences(window: AudioWindow, words: Sequence[Word], covered: Mask) -> list[Word]:
    """Return the words of the sentences that are clear enough, or half covered by the first reading
    too."""
    sentences: list[list[Word]] = [[]]
    for word, following in zip(words, [*words[1:], None], strict=False):
        sentences[-1].append(word)
        if ends_sentence(word.text, following.text if following else None):
            sentences.append([])
    clear: list[Word] = []
    for sentence in filter(None, sentences):
        known = [word.confidence for word in sentence if word.confidence is not None]
        frames = [_frames(window, word) for word in sentence if word.span is not None]
        is_clear = len(sentence) >= MIN_WORDS and float(np.mean(known or [1.0])) >= MIN_CONFIDENCE
        if frames:
            common = covered[frames[0][0] : frames[-1][1]]
            is_clear |= float(common.mean()) >= MIN_COVERED
        if is_clear:
            clear += sentence
    return clear


def fit_to_voice(window: AudioWindow, words: Sequence[Word], settings: AsrSettings) -> list[Word]:
    """Return the words with edges where the voice has them: a recogniser's own are some tenths of a
    second off.

    Silence at a word's ends is cut off; a word begins with the voice that begins shortly before it,
    after a silence.
    """
    voiced = window.voice >= settings.voice - HYSTERESIS
    fitted: list[Word] = []
    free = 0  # the first frame after the last word
    for word in words:
        if word.span is None:
            fitted.append(word)
            continue
        first, last = _frames(window, word)
        frames = first + np.flatnonzero(voiced[first:last])
        if len(frames):
            start, end = word.span.start, word.span.end
            begin, stop = int(frames[0]), int(frames[-1]) + 1
            earliest = max(free, begin - EARLY_FRAMES)
            silence = np.flatnonzero(~voiced[earliest:begin])
            if len(silence) and begin == first:
                start = window.start + (earliest + int(silence[-1]) + 1) / FRAMES_PER_SECOND
            elif begin - first >= EDGE_FRAMES:
                start = window.start + (begin - EDGE_FRAMES / 2) / FRAMES_PER_SECOND
            if last - stop >= EDGE_FRAMES:
                end = window.start + (stop + EDGE_FRAMES / 2) / FRAMES_PER_SECOND
            word = word.model_copy(update={"span": Span(round(start, 3), round(end, 3))})
        free = last
        fitted.append(word)
    return fitted
