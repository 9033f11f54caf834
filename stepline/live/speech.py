"""Live speech recognition by LocalAgreement-2: a word is committed when two passes agree on it.

    pass n      so cut the onion in
    pass n + 1  so cut the onion in half and     commits "so cut the onion in"; the rest waits for pass n + 2

Each pass recognises all sound since the last committed sentence, in a bounded window and after voice
detection. The words near the end of a pass may still change, because the next pass has more sound
after them. After silence nothing can change, so the words of the last pass are committed. The same
holds for words with some seconds of sound after them on which two passes keep differing. Committed
words never change. Only their case and full stops follow the newest pass while their sentence is unfinished.

Source: Macháček, Dabre and Bojar, "Turning Whisper into Real-Time Transcription System", 2023,
section 2. Differs: committed words that a pass repeats are found by the edit distance of words and
times, not by times and equal n-grams, which lose "very, very hot".
"""

import itertools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from stepline.media.audio import SAMPLE_RATE, AudioBlock
from stepline.records import Rejected, Sentence, Span, Word
from stepline.speech.audio_windows import (
    EMPTY_SAMPLES,
    FRAME_SAMPLES,
    MAX_FILLED_SECONDS,
    VOICE_PROBABILITY,
    AudioWindow,
    WindowTranscript,
    detect_voice,
    detector_context,
    speech_seconds,
)
from stepline.speech.hallucinations import SpeechEvidence, hallucination_reasons
from stepline.speech.second_pass import fit_to_voice
from stepline.speech.sentences import ends_sentence, join_word_parts, split_sentences
from stepline.speech.settings import AsrSettings

Recognise = Callable[[AudioWindow], WindowTranscript]

# silence at the end of the sound, after which all words are committed
MIN_SILENCE_SECONDS = 0.6
# voice after the last word of a pass, from which the recogniser has stopped too early
UNREAD_SECONDS = 1.5
# sound after a word, from which it is committed without agreement
COMMIT_DELAY_SECONDS = 4.0
# length of the sound, from which final sentences at its start are dropped
MIN_LEAVE_SECONDS = 8.0
# maximal length of the sound in a pass
MAX_PASS_SECONDS = 20.0
KEPT_SILENCE_SECONDS = 2.0  # silence that is kept before the next voice
# cost in edits of a second between the times of a repeated word. Passes differ by some tenths
EDITS_PER_SECOND = 3.0
OVERLAP_SECONDS = 0.5  # committed words that end at most this long before the sound may be repeated
FRAME_SECONDS = FRAME_SAMPLES / SAMPLE_RATE


@dataclass(frozen=True)
class RecognisedSentences:
    """New words and sentences of one pass of speech recognition over the recent sound.

    Attributes:
        words: words that this pass committed, which no later pass changes.
        sentences: sentences that this pass finished, to which no later word is added.
        dropped: sentences that are taken for hallucinations.
    """

    words: tuple[Word, ...] = ()
    sentences: tuple[Sentence, ...] = ()
    dropped: tuple[Rejected, ...] = ()


@dataclass
class LiveTranscriber:
    """Recognises a stream of sound. Each word is returned once, usually two passes after it was said.

    Memory holds at most MAX_PASS_SECONDS of sound.

    Attributes:
        recognise: recognises a window of sound, such as `RecogniserSwitch.read`.
        settings: settings of speech recognition.
        language: language of the speech, None before the language is known.
        end: second at which the received sound ends.
    """

    recognise: Recognise
    settings: AsrSettings = field(default_factory=AsrSettings)
    language: str | None = None
    end: float = 0.0
    _start: float = 0.0  # second at which the sound in memory begins
    _samples: np.ndarray = field(default_factory=lambda: EMPTY_SAMPLES)  # (N,) float32
    # the sound before it, for the voice detector
    _context_samples: np.ndarray = field(default_factory=lambda: EMPTY_SAMPLES)
    _committed: list[Word] = field(default_factory=list)  # words that a pass may repeat
    _unfinished_word_count: int = 0  # number of last committed words whose sentence is not final
    _pending: list[Word] = field(default_factory=list)  # uncommitted words of the last pass
    _log_probability: float | None = None  # mean of the words of the last pass
    _quiet_voice_end: float = -1.0  # end of the voice in a pass after silence, -1 without one
    _has_full_stop: bool = False  # whether the last pass has a full stop after the committed words

    def add(self, block: AudioBlock) -> RecognisedSentences:
        """Add the next block of sound, and return the last words and sentences before a long gap.

        Without a gap of more than MAX_FILLED_SECONDS before the block, the result is empty.
        """
        sentences = RecognisedSentences()
        gap = block.start - self.end
        # A long gap ends all sentences, a short gap is filled with silence.
        if not len(self._samples) or gap > MAX_FILLED_SECONDS:
            sentences = self.finish()
            self._start = block.start
        elif gap > 0:
            silence = np.zeros(round(gap * SAMPLE_RATE), np.float32)
            self._samples = np.concatenate([self._samples, silence])
        self._samples = np.concatenate([self._samples, block.samples])
        self.end = block.start + len(block.samples) / SAMPLE_RATE
        return sentences

    @property
    def settled(self) -> float:
        """Second of the source before which every sentence is final."""
        if not self._unfinished_word_count:
            return self._start
        # The unfinished sentence may still change.
        first_word = self._committed[-self._unfinished_word_count]
        if first_word.span is None:
            return self._start
        return min(self._start, first_word.span.start)

    @property
    def _committed_end(self) -> float:
        """Second at which the last committed word ends, 0 if no word is committed."""
        return word_seconds(self._committed[-1])[1] if self._committed else 0.0

    def resume(self, words: Sequence[Word]) -> None:
        """Continue after an earlier run. words: its last committed words, which the next sound may
        repeat."""
        self._committed = list(words)

    def advance(self) -> RecognisedSentences:
        """Recognise the sound in memory once, and return the words and sentences that are now
        certain."""
        return self._run_pass(last=False)

    def finish(self) -> RecognisedSentences:
        """Recognise the sound in memory a last time, and return all remaining words and sentences."""
        if not len(self._samples):
            return RecognisedSentences()
        sentences = self._run_pass(last=True)
        # Nothing is kept for the next sound.
        self._samples = EMPTY_SAMPLES
        self._context_samples = EMPTY_SAMPLES
        self._committed = []
        self._unfinished_word_count = 0
        self._pending = []
        self._has_full_stop = False
        return sentences

    def _run_pass(self, *, last: bool) -> RecognisedSentences:
        if not len(self._samples):
            return RecognisedSentences()
        settings = self.settings

        # where the voice is
        sound = np.concatenate([self._context_samples, self._samples])
        voice = detect_voice(sound)[len(self._context_samples) // FRAME_SAMPLES :]
        window = AudioWindow(self._start, self._samples, voice, last)
        voiced = np.flatnonzero(voice >= VOICE_PROBABILITY)
        silent_frames = len(voice)
        if len(voiced):
            silent_frames = len(voice) - 1 - voiced[-1]
        elif not self._pending and not self._unfinished_word_count:
            self._drop_sound_before(window, window.end - KEPT_SILENCE_SECONDS)
            return RecognisedSentences()
        silence = silent_frames * FRAME_SAMPLES / SAMPLE_RATE
        voice_end = window.start + (len(voice) * FRAME_SAMPLES / SAMPLE_RATE - silence)
        is_quiet = last or silence >= MIN_SILENCE_SECONDS

        # its words, unless a pass would repeat the last result
        committed: tuple[Word, ...] = ()
        has_agreed_stop = False
        is_unread = False
        if not is_quiet or abs(voice_end - self._quiet_voice_end) > FRAME_SECONDS:
            words = self._recognise_window(window)
            committed, has_agreed_stop = self._commit_stable_words(words, window, is_quiet=is_quiet)
            is_unread = self._is_unread(words, window)
        self._quiet_voice_end = voice_end if is_quiet else -1.0

        # which sentences are final and accepted, and which sound is dropped
        is_complete = has_agreed_stop or is_unread
        sentences = self._take_final_sentences(silence, is_complete=is_complete, last=last)
        evidence = [self._speech_evidence(sentence, window) for sentence in sentences]
        reasons = hallucination_reasons(sentences, evidence, settings)
        if is_unread and self._committed:
            self._drop_sound_before(window, self._committed_end or window.start)
        else:
            final_until = sentences[-1].span.end if sentences else None
            silent_from = voice_end if is_quiet and not self._unfinished_word_count else None
            self._drop_read_sound(window, final_until, silent_from=silent_from)
        accepted_sentences = []
        dropped = []
        for sentence, reason in zip(sentences, reasons, strict=True):
            if reason is None:
                accepted_sentences.append(sentence)
            else:
                dropped.append(Rejected(what="sentence", text=sentence.text, reason=reason))
        return RecognisedSentences(committed, tuple(accepted_sentences), tuple(dropped))

    def _is_unread(self, words: Sequence[Word], window: AudioWindow) -> bool:
        """Return whether more than UNREAD_SECONDS of voice follow the last word of a pass.

        If so, the recogniser has stopped too early.

        Args:
            words: words of the pass.
            window: sound of the pass.
        """
        words_end = words[-1].span.end if words and words[-1].span else window.end
        seconds = speech_seconds(window.voice_probabilities_between(words_end, window.end))
        return seconds > UNREAD_SECONDS and not self._pending

    def _recognise_window(self, window: AudioWindow) -> list[Word]:
        """Return the recognised words of a window, with times moved to the edges of the voice."""
        transcript = self.recognise(window)
        # A pass may detect no language. Then the last one stays.
        self.language = transcript.language or self.language
        self._log_probability = transcript.log_probability
        pieces = [piece for piece in transcript.words if piece.text.strip() and piece.span]
        return fit_to_voice(window, join_word_parts(pieces))

    def _commit_stable_words(
        self, words: Sequence[Word], window: AudioWindow, *, is_quiet: bool
    ) -> tuple[tuple[Word, ...], bool]:
        """Commit the words of a pass that a later pass will hardly change. They become final.

        A word is stable if it is old, if the pass before has the same words up to it, or if silence
        follows. Returns the committed words, and whether both passes have a full stop after the
        last one.

        Args:
            words: words of the pass.
            window: sound of the pass.
            is_quiet: whether the sound ends in silence, so that all words are stable.
        """
        # Words that were committed before are repeated at the start of the pass, and skipped.
        repeated = count_repeated(words, self._context_words())
        self._update_open_words(words[:repeated])
        next_words = words[repeated:]

        # how many words are stable
        count = len(next_words)
        if not is_quiet:
            stable_until = window.end - COMMIT_DELAY_SECONDS
            old_count = sum(
                word.span is not None and word.span.end <= stable_until for word in next_words
            )
            # or as many first words as the last pass has too
            pairs = zip(
                map(normalized_text, next_words), map(normalized_text, self._pending), strict=False
            )
            agreed = itertools.takewhile(lambda pair: pair[0] == pair[1], pairs)
            count = max(old_count, len(list(agreed)))
        last_pending = self._pending
        self._pending = list(next_words[count:])
        committed = self._commit(next_words[:count])

        # whether this pass and the last one have a full stop after them
        following = self._pending[0].text if self._pending else None
        had_full_stop = self._has_full_stop
        if 0 < count <= len(last_pending):
            had_full_stop = ends_sentence(last_pending[count - 1].text)
        self._has_full_stop = self._unfinished_word_count > 0 and ends_sentence(
            self._committed[-1].text, following
        )
        return committed, self._has_full_stop and had_full_stop and following is not None

    def _context_words(self) -> list[Word]:
        """Return the committed words that a pass may repeat: their sound is still in memory."""
        start = self._start - OVERLAP_SECONDS
        return [word for word in self._committed if word.span and word.span.end > start]

    def _update_open_words(self, words: Sequence[Word]) -> None:
        """Update case and full stops of the unfinished sentence by the newest pass.

        words: first words of the pass, which repeat the committed words.
        """
        # From the last word backwards, as long as both passes agree.
        for words_back in range(1, min(self._unfinished_word_count, len(words)) + 1):
            word = words[-words_back]
            committed = self._committed[-words_back]
            if normalized_text(word) != normalized_text(committed):
                return
            self._committed[-words_back] = committed.model_copy(update={"text": word.text})

    def _commit(self, words: Sequence[Word]) -> tuple[Word, ...]:
        """Commit words, with times that never decrease, and return them."""
        first = len(self._committed)
        for word in words:
            start = 0.0
            if self._committed:
                start, _ = word_seconds(self._committed[-1])
            if word.span is not None and word.span.start < start:
                span = Span(start, max(word.span.end, start + FRAME_SECONDS))
                word = word.model_copy(update={"span": span})
            self._committed.append(word)
        self._unfinished_word_count += len(words)
        return tuple(self._committed[first:])

    def _take_final_sentences(
        self, silence: float, *, is_complete: bool, last: bool
    ) -> list[Sentence]:
        """Return the sentences of the committed words that are complete, which makes them final.

        Every sentence before the last one is complete. The last one is complete after a silence,
        which may be shorter after a full stop.

        Args:
            silence: seconds of silence at the end of the sound.
            is_complete: whether the last recognised word ends its sentence without a silence: two
                passes have a full stop after it, or the recogniser found no words in the voice after it.
            last: whether the source has ended.
        """
        pause = self.settings.pause

        # the words of the unfinished sentence
        words = self._committed[len(self._committed) - self._unfinished_word_count :]
        sentences = split_sentences(words, pause=pause, longest=self.settings.longest)
        has_ended = last or is_complete
        # Silence ends the last sentence, sooner if it ends with a full stop.
        if words and not self._pending:
            min_silence = (
                min(MIN_SILENCE_SECONDS, pause) if ends_sentence(words[-1].text) else pause
            )
            has_ended |= silence >= min_silence
        if not has_ended:
            sentences = sentences[:-1]
        for sentence in sentences:
            self._unfinished_word_count -= len(sentence.words)
        return sentences

    def _drop_read_sound(
        self, window: AudioWindow, final_until: float | None, *, silent_from: float | None
    ) -> None:
        """Drop sound that needs no other pass, and sound beyond MAX_PASS_SECONDS.

        Args:
            window: sound of the last pass.
            final_until: second at which the last final sentence ends, None without one.
            silent_from: second from which there is silence, None if a sentence is unfinished.
        """
        # Silence is dropped, except for a margin before the next voice.
        if silent_from is not None:
            self._drop_sound_before(window, max(silent_from, window.end - KEPT_SILENCE_SECONDS))
        # Final sentences are dropped from long sound, since each pass costs its whole length.
        if final_until is not None and window.end - self._start > MIN_LEAVE_SECONDS:
            self._drop_sound_before(window, self._middle_of_pause(final_until))
        # No pass is longer than the limit.
        if window.end - self._start > MAX_PASS_SECONDS:
            begin = max(self._committed_end, window.end - MAX_PASS_SECONDS / 2)
            self._drop_sound_before(window, begin)
        # Committed words stay while a pass may repeat them.
        if not self._unfinished_word_count:
            self._committed = self._context_words()

    def _middle_of_pause(self, final_until: float) -> float:
        """Return the second in the middle of the pause after the last final sentence.

        No later pass changes a final sentence. The pause lasts until the first word after it, committed or
        pending. Without such a word, `final_until` is returned.

        final_until: second at which the last final sentence ends.
        """
        # the words after the final sentences
        words = (
            self._committed[-self._unfinished_word_count :]
            if self._unfinished_word_count
            else self._pending
        )
        if not words:
            return final_until
        span = words[0].span
        return final_until if span is None else max(final_until, (final_until + span.start) / 2)

    def _speech_evidence(self, sentence: Sentence, window: AudioWindow) -> SpeechEvidence:
        span = sentence.span
        probabilities = window.voice_probabilities_between(span.start, span.end)
        voice_probability = float(probabilities.mean()) if len(probabilities) else 0.0
        return SpeechEvidence(voice_probability, self._log_probability)

    def _drop_sound_before(self, window: AudioWindow, second: float) -> None:
        """Drop the sound before a second of the source, in whole frames of the voice detector.

        Args:
            window: sound of the last pass.
            second: second of the source.
        """
        count = max(0, int((second - self._start) * SAMPLE_RATE / FRAME_SAMPLES)) * FRAME_SAMPLES
        # The detector needs the sound before, so that its frames are as in one pass.
        sound = np.concatenate([self._context_samples, window.samples[:count]])
        self._context_samples = detector_context(sound)
        self._samples = self._samples[count:]
        self._start += min(count, len(window.samples)) / SAMPLE_RATE


def normalized_text(word: Word) -> str:
    """Return the text of a word in lower case without punctuation. Only punctuation is unchanged."""
    return re.sub(r"[^\w']+", "", word.text.lower()) or word.text.strip()


def count_repeated(words: Sequence[Word], committed: Sequence[Word]) -> int:
    """Return how many words at the start of a pass repeat the committed words.

    It is the length of the prefix with the lowest cost, the longest of equal ones. The cost is the
    edit distance between the prefix and the committed words, plus the seconds between their ends. A
    substitution also costs EDITS_PER_SECOND per second between the starts of the two words.

    Args:
        words: timed words of a pass.
        committed: timed words that were committed before.
    """
    if not committed:
        return 0
    # The words of the pass, and when each begins and ends.
    texts = [normalized_text(word) for word in words]
    seconds = [word_seconds(word) for word in words]
    times = np.array(seconds).reshape(-1, 2)  # (N, 2)

    # the edit distance of the committed words so far to each prefix
    distance = np.arange(len(words) + 1, dtype=np.float64)  # (N + 1,)
    for row, word in enumerate(committed, start=1):
        before = distance
        distance = np.empty_like(before)
        distance[0] = row
        committed_text = normalized_text(word)
        begin, _ = word_seconds(word)
        for column, text in enumerate(texts, start=1):
            distance_seconds = abs(times[column - 1, 0] - begin)
            substitution = (text != committed_text) + EDITS_PER_SECOND * distance_seconds
            # substitution, deletion or insertion
            distance[column] = min(
                before[column - 1] + substitution, before[column] + 1, distance[column - 1] + 1
            )

    # the cost of the end of each prefix; the empty prefix ends where the pass begins
    _, last = word_seconds(committed[-1])
    empty_end = times[:1, 0] if len(words) else [last]
    ends = np.concatenate([empty_end, times[:, 1]])  # (N + 1,)
    cost = distance + np.abs(ends - last)
    # From the end, so that of equal costs the longest prefix wins.
    return int(len(cost) - 1 - np.argmin(cost[::-1]))


def word_seconds(word: Word) -> tuple[float, float]:
    """Return the start and end of a word in seconds, 0 for a time that is missing."""
    return (0.0, 0.0) if word.span is None else (word.span.start, word.span.end)
