"""Recognises again the utterances that the first pass over a window left out or timed badly.

A recogniser reads half a minute as a whole. Where someone else talks, or a pause is long, it may
leave a sentence out. It may also stretch a word of the next one back over the silence. The voice
detector shows both: voice without a word, and a long word that is mostly silence. Such utterances
are cut out at the silences around them and recognised one by one. The transcript that covers more
voice with more certain words is kept.
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from stepline.media.audio import SAMPLE_RATE, Samples
from stepline.records import Span, Word
from stepline.speech.audio_windows import AudioWindow, WindowTranscript
from stepline.speech.sentences import ends_sentence
from stepline.speech.vad import (
    FRAME_SAMPLES,
    HYSTERESIS_PROBABILITY,
    VOICE_PROBABILITY,
    find_speech,
    runs_of,
)
from stepline.speech.whisper import MAX_WORD_SECONDS

FRAMES_PER_SECOND = SAMPLE_RATE / FRAME_SAMPLES
# of voice between two words from which something was passed over. The pauses of speech hold up to
# 0.9.
UNREAD_SECONDS = 1.2
MIN_DOUBT_SECONDS = 0.3  # of such voice for which an utterance is read again
SILENCE_SECONDS = 0.5  # without voice that part two utterances
PAD_SECONDS = 0.3  # of silence that an utterance keeps on either side
# of a longer utterance only the doubtful part is read again: the whole would be the same reading
MAX_UTTERANCE_SECONDS = 15.0
# fraction of its frames up to which a word of the greatest length counts as stretched
MAX_STRETCHED_VOICE_FRACTION = 0.5
# mean probability over the voice by which the second reading must be better
MIN_CONFIDENCE_GAIN = 0.05
MIN_COVERED_FRACTION = 0.5  # fraction of a sentence that the first reading has too
# of a sentence that only the second reading has: what was passed over is often a call behind the
# speaker
MIN_CONFIDENCE = 0.7  # mean probability of its words
MIN_WORDS = 3
EDGE_FRAMES = 6  # 0.2 s; silence in a word from which it is cut off, to half of it
EARLY_FRAMES = 16  # 0.5 s, by which a voice may begin before its first word

RecogniseWindow: TypeAlias = Callable[[AudioWindow], WindowTranscript]
Frames: TypeAlias = tuple[int, int]  # first, last + 1 frame of a window
Mask: TypeAlias = npt.NDArray[np.bool_]
Words: TypeAlias = list[Word]


def read_again(
    window: AudioWindow, first: WindowTranscript, recognise: RecogniseWindow, *, tail: bool
) -> WindowTranscript:
    """Return the window's transcript, with doubtful utterances replaced where a second pass is
    surer.

    Args:
        window: of sound.
        first: transcript of the first pass.
        recognise: transcribes a window.
        tail: whether voice after the last word counts. It does not where the next window holds it.
    """
    words = list(first.words)
    voiced_runs = window.voice >= VOICE_PROBABILITY
    for pieces in doubtful_utterances(window, words, tail=tail):
        reread_words: Words = []
        for utterance_frames in pieces:
            reread_words += recognise(_cut(window, utterance_frames)).words

        # the words of the first reading in the same seconds
        first_frame = pieces[0][0]
        last_frame = pieces[-1][1]
        start = window.start + first_frame / FRAMES_PER_SECOND
        end = window.start + last_frame / FRAMES_PER_SECOND
        words_before, first_words, words_after = _divide(words, start, end)

        # the second reading stays where it is more certain over the speech
        first_confidence = word_confidence(window, first_words)
        second_confidence = word_confidence(window, reread_words)
        gain = (second_confidence - first_confidence)[first_frame:last_frame]  # (F,)
        if gain[voiced_runs[first_frame:last_frame]].mean() > MIN_CONFIDENCE_GAIN:
            clear_words = _clear_sentences(window, reread_words, first_confidence > 0.0)
            words = [*words_before, *clear_words, *words_after]
    return replace(first, words=tuple(words))


def doubtful_utterances(
    window: AudioWindow, words: Sequence[Word], *, tail: bool
) -> list[list[Frames]]:
    """Return the frame ranges to recognise again. Neighbours that are judged together form one
    list.
    """
    timed = [word for word in words if word.span is not None]
    if not timed:
        return []
    # frames of speech in stretched words
    voice = window.voice
    speech = voice >= VOICE_PROBABILITY
    frame_count = len(speech)
    doubtful = np.zeros(frame_count, bool)
    for word, following in pairwise(timed):
        if ends_sentence(word.text):
            continue
        if _is_stretched(window, word):
            start = _frames(window, word)[0]
            end = _frames(window, following)[0]
            doubtful[start:end] = True

    # frames of speech in gaps between words
    covered = np.zeros(frame_count, bool)
    for word in timed:
        first, last = _frames(window, word)
        covered[first:last] = True
    for first, last in runs_of(~covered):
        is_inside = tail or last < frame_count
        if is_inside and speech[first:last].sum() >= UNREAD_SECONDS * FRAMES_PER_SECOND:
            doubtful[first:last] = True
    doubtful &= speech

    # the utterances that hold them
    groups: list[list[Frames]] = [[]]
    utterances = find_speech(
        voice, threshold=VOICE_PROBABILITY, gap=SILENCE_SECONDS, pad=PAD_SECONDS
    )
    for start, end in utterances:
        first = start // FRAME_SAMPLES
        last = min(frame_count, -(-end // FRAME_SAMPLES))
        doubtful_groups = np.flatnonzero(doubtful[first:last])
        if len(doubtful_groups) < MIN_DOUBT_SECONDS * FRAMES_PER_SECOND:
            groups.append([])
        elif last - first <= MAX_UTTERANCE_SECONDS * FRAMES_PER_SECOND:
            groups[-1].append((first, last))
        else:
            first_doubt = first + int(doubtful_groups[0])
            last_doubt = first + int(doubtful_groups[-1])
            doubtful_frames = (first_doubt, last_doubt + 1)
            groups.append([doubtful_frames])
            groups.append([])
    return [group for group in groups if group]


def word_confidence(window: AudioWindow, words: Sequence[Word]) -> Samples:
    """Return the probability of the word in each frame of the window, (F,), 0 without a word.

    A stretched word covers no frame, since its true time is not known.
    """
    confidence = np.zeros(len(window.voice), np.float32)
    for word in words:
        if word.span is None or _is_stretched(window, word):
            continue
        first, last = _frames(window, word)
        confidence[first:last] = 1.0
        if word.confidence is not None:
            confidence[first:last] = word.confidence
    return confidence


def _frames(window: AudioWindow, word: Word) -> Frames:
    """Return the (first, last) frames of a timed word, at least one frame."""
    assert word.span is not None
    first = max(0, int((word.span.start - window.start) * FRAMES_PER_SECOND))
    last = round((word.span.end - window.start) * FRAMES_PER_SECOND)
    return first, max(first + 1, last)


def _is_stretched(window: AudioWindow, word: Word) -> bool:
    first, last = _frames(window, word)
    longest = MAX_WORD_SECONDS * FRAMES_PER_SECOND - 2  # frames, as rounded
    if last - first < longest:
        return False
    is_speech = window.voice[first:last] >= VOICE_PROBABILITY
    return float(is_speech.mean()) <= MAX_STRETCHED_VOICE_FRACTION


def _cut(window: AudioWindow, frames: Frames) -> AudioWindow:
    first, last = frames
    start = window.start + first / FRAMES_PER_SECOND
    samples = window.samples[first * FRAME_SAMPLES : last * FRAME_SAMPLES]
    voice = window.voice[first:last]
    return AudioWindow(start, samples, voice, last=True)


def _divide(words: Sequence[Word], start: float, end: float) -> tuple[Words, Words, Words]:
    """Return the words before, in and after the seconds [start, end), by their middles.

    A word without time stays with the word before it.
    """
    parts: list[Words] = [[], [], []]
    part_index = 0
    for word in words:
        if word.span is not None:
            word_side = bisect_right((start, end), word.span.center)
            part_index = max(part_index, word_side)
        parts[part_index].append(word)
    before, word_in, after = parts
    return before, word_in, after


def _clear_sentences(window: AudioWindow, words: Sequence[Word], covered: Mask) -> Words:
    """Return the words of the sentences that are clear enough, or half covered by the first pass
    too.
    """
    # sentences of words
    sentences: list[Words] = [[]]
    for number, word in enumerate(words):
        sentences[-1].append(word)
        following = words[number + 1].text if number + 1 < len(words) else None
        if ends_sentence(word.text, following):
            sentences.append([])

    # those that are clear enough
    clear: Words = []
    for sentence in filter(None, sentences):
        is_clear = False
        if len(sentence) >= MIN_WORDS:
            is_clear = _mean_confidence(sentence) >= MIN_CONFIDENCE
        timed = [word for word in sentence if word.span is not None]
        if timed:
            first_frame = _frames(window, timed[0])[0]
            last_frame = _frames(window, timed[-1])[1]
            common = covered[first_frame:last_frame]
            is_clear |= float(common.mean()) >= MIN_COVERED_FRACTION
        if is_clear:
            clear += sentence
    return clear


def _mean_confidence(words: Sequence[Word]) -> float:
    """Return the mean probability of words, 1 where the recogniser gives none."""
    confidences = [word.confidence for word in words if word.confidence is not None]
    return float(np.mean(confidences)) if confidences else 1.0


def fit_to_voice(window: AudioWindow, words: Sequence[Word]) -> Words:
    """Return the words with starts and ends moved to where the voice detector has voice.

    Silence at a word's ends is cut off. After a silence, a word starts with the voice shortly
    before it. Whisper's own times are some tenths of a second off.
    """
    voiced = window.voice >= VOICE_PROBABILITY - HYSTERESIS_PROBABILITY
    fitted: Words = []
    free = 0  # the first frame after the last word
    for word in words:
        if word.span is None:
            fitted.append(word)
            continue
        first, last = _frames(window, word)
        frames = first + np.flatnonzero(voiced[first:last])
        if len(frames):
            start = word.span.start
            end = word.span.end
            first_voiced = int(frames[0])
            last_voiced = int(frames[-1])

            # the start: after the last silence before the word, or later in it
            earliest = max(free, first_voiced - EARLY_FRAMES)
            silence = np.flatnonzero(~voiced[earliest:first_voiced])
            if len(silence) and first_voiced == first:
                start_frame: float = earliest + int(silence[-1]) + 1
                start = window.start + start_frame / FRAMES_PER_SECOND
            elif first_voiced - first >= EDGE_FRAMES:
                start_frame = first_voiced - EDGE_FRAMES / 2
                start = window.start + start_frame / FRAMES_PER_SECOND

            # the end: where the voice ends before the word does
            end_frame = last_voiced + 1
            if last - end_frame >= EDGE_FRAMES:
                end = window.start + (end_frame + EDGE_FRAMES / 2) / FRAMES_PER_SECOND
            word = word.model_copy(update={"span": Span(round(start, 3), round(end, 3))})
        free = last
        fitted.append(word)
    return fitted
