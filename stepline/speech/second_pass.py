"""Recognises again the utterances that the first pass over a window left out or timed badly.

A recogniser hears half a minute as a whole. Where someone else talks, or a pause is long, it may
leave a sentence out. It may also stretch a word of the next one back over the silence. The voice
detector shows both: voice without a word, and a long word that is mostly silence. Such utterances
are cut out at the silences around them and recognised one by one. The transcript that covers more
voice with more certain words is kept.
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from stepline.media.audio import SAMPLE_RATE, Samples
from stepline.records import Span, Word
from stepline.speech.audio_windows import (
    FRAME_SAMPLES,
    HYSTERESIS_PROBABILITY,
    VOICE_PROBABILITY,
    AudioWindow,
    WindowTranscript,
    find_speech,
    runs_of_true,
)
from stepline.speech.sentences import ends_sentence
from stepline.speech.whisper import MAX_WORD_SECONDS

FRAMES_PER_SECOND = SAMPLE_RATE / FRAME_SAMPLES
# of voice between two words from which something was left out. The pauses of speech hold up to
# 0.9.
MIN_MISSED_VOICE_SECONDS = 1.2
MIN_DOUBT_SECONDS = 0.3  # of such voice for which an utterance is recognised again
MIN_SILENCE_SECONDS = 0.5  # without voice that separate two utterances
PAD_SECONDS = 0.3  # of silence that an utterance keeps on either side
# A longer utterance would give the same words again, so only its doubtful part is recognised.
MAX_UTTERANCE_SECONDS = 15.0
# fraction of frames with voice up to which a word of the greatest length counts as stretched
MAX_STRETCHED_VOICE_FRACTION = 0.5
# mean probability over the voice by which the second pass must be better
MIN_CONFIDENCE_GAIN = 0.05
MIN_COVERED_FRACTION = 0.5  # of a sentence that has words in the first pass too
# of a sentence that only the second pass has: it is often a call behind the speaker
MIN_CONFIDENCE = 0.7  # mean probability of its words
MIN_WORDS = 3
MIN_EDGE_SILENCE_FRAMES = 6  # 0.2 s; silence in a word from which it is cut off, to half of it
MAX_EARLY_VOICE_FRAMES = 16  # 0.5 s, by which a voice may begin before its first word

RecogniseWindow = Callable[[AudioWindow], WindowTranscript]
Frames = tuple[int, int]  # first, last + 1 frame of a window
Mask = npt.NDArray[np.bool_]
Words = list[Word]


def rerecognise_doubtful(
    window: AudioWindow,
    first_pass: WindowTranscript,
    recognise: RecogniseWindow,
    *,
    trailing_voice: bool,
) -> WindowTranscript:
    """Return the transcript with doubtful utterances replaced if a second pass is more certain.

    Args:
        window: the window of audio.
        first_pass: its transcript.
        recognise: transcribes a window.
        trailing_voice: whether voice after the last word counts as a missed utterance. False if the next
            window contains that voice too.
    """
    words = list(first_pass.words)
    is_voice = window.voice_probabilities >= VOICE_PROBABILITY
    for utterances in doubtful_utterances(window, words, trailing_voice=trailing_voice):
        second_words: Words = []
        for utterance in utterances:
            second_words += recognise(_cut_window(window, utterance)).words

        # the words of the first pass in the same seconds
        first_frame = utterances[0][0]
        last_frame = utterances[-1][1]
        start = window.start + first_frame / FRAMES_PER_SECOND
        end = window.start + last_frame / FRAMES_PER_SECOND
        words_before, first_words, words_after = _split_words(words, start, end)

        # the second pass counts where it is more certain over the speech
        first_confidence = word_confidence(window, first_words)
        second_confidence = word_confidence(window, second_words)
        gain = (second_confidence - first_confidence)[first_frame:last_frame]  # (F,)
        if gain[is_voice[first_frame:last_frame]].mean() > MIN_CONFIDENCE_GAIN:
            certain_words = _certain_sentences(window, second_words, first_confidence > 0.0)
            words = [*words_before, *certain_words, *words_after]
    return replace(first_pass, words=tuple(words))


def doubtful_utterances(
    window: AudioWindow, words: Sequence[Word], *, trailing_voice: bool
) -> list[list[Frames]]:
    """Return the utterances to recognise again, as (first frame, last frame + 1).

    Neighbouring utterances form one list, since they are judged together.

    Args:
        window: the window of audio.
        words: words of the first pass.
        trailing_voice: whether voice after the last word counts as a missed utterance.
    """
    timed = [word for word in words if word.span is not None]
    if not timed:
        return []
    # frames of speech in stretched words
    is_speech = window.voice_probabilities >= VOICE_PROBABILITY
    frame_count = len(is_speech)
    is_doubtful = np.zeros(frame_count, bool)
    for word, following in pairwise(timed):
        if not ends_sentence(word.text) and _is_stretched(window, word):
            is_doubtful[
                _frames_of_word(window, word)[0] : _frames_of_word(window, following)[0]
            ] = True

    # frames of speech in gaps between words
    has_word = np.zeros(frame_count, bool)
    for word in timed:
        has_word[slice(*_frames_of_word(window, word))] = True
    for first, last in runs_of_true(~has_word):
        counts = trailing_voice or last < frame_count
        if counts and is_speech[first:last].sum() >= MIN_MISSED_VOICE_SECONDS * FRAMES_PER_SECOND:
            is_doubtful[first:last] = True
    is_doubtful &= is_speech

    # the utterances that hold them
    groups: list[list[Frames]] = [[]]
    for start, end in find_speech(
        window.voice_probabilities,
        threshold=VOICE_PROBABILITY,
        gap=MIN_SILENCE_SECONDS,
        pad=PAD_SECONDS,
    ):
        first = start // FRAME_SAMPLES
        last = min(frame_count, -(-end // FRAME_SAMPLES))
        doubtful = first + np.flatnonzero(is_doubtful[first:last])
        if len(doubtful) < MIN_DOUBT_SECONDS * FRAMES_PER_SECOND:
            groups.append([])
        elif last - first <= MAX_UTTERANCE_SECONDS * FRAMES_PER_SECOND:
            groups[-1].append((first, last))
        else:
            groups += [[(int(doubtful[0]), int(doubtful[-1]) + 1)], []]
    return [group for group in groups if group]


def word_confidence(window: AudioWindow, words: Sequence[Word]) -> Samples:
    """Return the recogniser's probability of the word in each frame of a window, (F,). It is 0 in a
    frame without a word.

    A word that is stretched over a silence covers no frame, since its true time is unknown.
    """
    confidence = np.zeros(len(window.voice_probabilities), np.float32)
    for word in words:
        if word.span is not None and not _is_stretched(window, word):
            probability = 1.0 if word.confidence is None else word.confidence
            confidence[slice(*_frames_of_word(window, word))] = probability
    return confidence


def _frames_of_word(window: AudioWindow, word: Word) -> Frames:
    """Return the (first, last + 1) frames of a timed word, at least one frame."""
    assert word.span is not None
    first = max(0, int((word.span.start - window.start) * FRAMES_PER_SECOND))
    last = round((word.span.end - window.start) * FRAMES_PER_SECOND)
    return first, max(first + 1, last)


def _is_stretched(window: AudioWindow, word: Word) -> bool:
    """Return whether a word has the maximal length and is mostly silence."""
    first, last = _frames_of_word(window, word)
    longest = MAX_WORD_SECONDS * FRAMES_PER_SECOND - 2  # frames, as rounded
    if last - first < longest:
        return False
    is_speech = window.voice_probabilities[first:last] >= VOICE_PROBABILITY
    return float(is_speech.mean()) <= MAX_STRETCHED_VOICE_FRACTION


def _cut_window(window: AudioWindow, frames: Frames) -> AudioWindow:
    first, last = frames
    samples = window.samples[first * FRAME_SAMPLES : last * FRAME_SAMPLES]
    start = window.start + first / FRAMES_PER_SECOND
    return AudioWindow(start, samples, window.voice_probabilities[first:last], last=True)


def _split_words(words: Sequence[Word], start: float, end: float) -> tuple[Words, Words, Words]:
    """Return the words before, within and after the seconds [start, end).

    The middle of a word decides. A word without a time goes with the word before it.
    """
    parts: tuple[Words, Words, Words] = ([], [], [])
    part_index = 0
    for word in words:
        if word.span is not None:
            part_index = max(part_index, bisect_right((start, end), word.span.center))
        parts[part_index].append(word)
    return parts


def _certain_sentences(window: AudioWindow, words: Sequence[Word], has_first_word: Mask) -> Words:
    """Return the words of the sentences that are certain, or also have words in the first pass.

    Args:
        window: the window of audio.
        words: words of the second pass.
        has_first_word: (F,) whether a frame has a word in the first pass.
    """
    sentences: list[Words] = [[]]
    for number, word in enumerate(words):
        sentences[-1].append(word)
        following = words[number + 1].text if number + 1 < len(words) else None
        if ends_sentence(word.text, following):
            sentences.append([])

    certain_words: Words = []
    for sentence in filter(None, sentences):
        is_certain = len(sentence) >= MIN_WORDS and _mean_confidence(sentence) >= MIN_CONFIDENCE
        timed = [word for word in sentence if word.span is not None]
        if timed:
            covered = has_first_word[
                _frames_of_word(window, timed[0])[0] : _frames_of_word(window, timed[-1])[1]
            ]
            is_certain |= float(covered.mean()) >= MIN_COVERED_FRACTION
        if is_certain:
            certain_words += sentence
    return certain_words


def _mean_confidence(words: Sequence[Word]) -> float:
    """Return the mean probability of words, 1 if the recogniser gives no probabilities."""
    confidences = [word.confidence for word in words if word.confidence is not None]
    return float(np.mean(confidences)) if confidences else 1.0


def fit_to_voice(window: AudioWindow, words: Sequence[Word]) -> Words:
    """Return the words with starts and ends moved to the voice in the window.

    Silence at the ends of a word is cut off. After a silence, a word starts with the voice shortly
    before it. Whisper's own times have errors of some tenths of a second.
    """
    is_voice = window.voice_probabilities >= VOICE_PROBABILITY - HYSTERESIS_PROBABILITY
    fitted: Words = []
    last_word_end = 0  # the first frame after the last word
    for word in words:
        if word.span is None:
            fitted.append(word)
            continue
        first, last = _frames_of_word(window, word)
        frames = first + np.flatnonzero(is_voice[first:last])
        if len(frames):
            start = word.span.start
            end = word.span.end
            first_voiced = int(frames[0])
            voice_end = int(frames[-1]) + 1

            # the start: after the last silence before the word, or later in it
            earliest = max(last_word_end, first_voiced - MAX_EARLY_VOICE_FRAMES)
            silence = np.flatnonzero(~is_voice[earliest:first_voiced])
            if len(silence) and first_voiced == first:
                start = window.start + (earliest + int(silence[-1]) + 1) / FRAMES_PER_SECOND
            elif first_voiced - first >= MIN_EDGE_SILENCE_FRAMES:
                start = (
                    window.start + (first_voiced - MIN_EDGE_SILENCE_FRAMES / 2) / FRAMES_PER_SECOND
                )

            # the end: where the voice ends before the word does
            if last - voice_end >= MIN_EDGE_SILENCE_FRAMES:
                end = window.start + (voice_end + MIN_EDGE_SILENCE_FRAMES / 2) / FRAMES_PER_SECOND
            word = word.model_copy(update={"span": Span(round(start, 3), round(end, 3))})
        last_word_end = last
        fitted.append(word)
    return fitted
