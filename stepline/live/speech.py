"""Live speech recognition by LocalAgreement-2: a word is committed when two passes over the sound
agree on it.

    pass n      so cut the onion in
    pass n + 1  so cut the onion in half and     commits "so cut the onion in"; the rest waits for pass n + 2

Each pass reads all sound since the last committed sentence (a bounded window, voice detection
first). So the words near its end, which a recogniser still changes, have sound behind them at the
next one. Where the voice has fallen silent nothing can change any more, and the last pass is
believed. So it is of words that have seconds of sound behind them, where two passes go on to
differ. Committed words stay. Case and full stops of the open sentence follow the newest pass, since
they depend on what comes after.

Source: Macháček, Dabre and Bojar, "Turning Whisper into Real-Time Transcription System", 2023,
section 2. Differs: what a pass repeats of the committed words is found by the edit distance of
words and their times. It is not found by times and equal n-grams, which lose "very, very hot".
"""

import itertools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from stepline.media.audio import SAMPLE_RATE, AudioBlock
from stepline.records import Rejected, Sentence, Span, Word
from stepline.speech.audio_windows import (
    FRAME_SAMPLES,
    MAX_FILLED_SECONDS,
    NO_SOUND,
    VOICE_PROBABILITY,
    AudioWindow,
    WindowTranscript,
    detector_context,
    voice_probability,
)
from stepline.speech.hallucinations import SpeechEvidence, hallucination_reasons
from stepline.speech.second_pass import fit_to_voice
from stepline.speech.sentences import ends_sentence, join_word_parts, split_sentences
from stepline.speech.settings import AsrSettings

Recognise: TypeAlias = Callable[[AudioWindow], WindowTranscript]

# without voice at the end of the sound, after which its last pass is believed
SILENCE_SECONDS = 0.6
# of voice behind a pass's last word from which the next one begins there: it would not go on
UNREAD_SECONDS = 1.5
# of sound behind a word from which the newest pass is believed, agreed or not
COMMIT_DELAY_SECONDS = 4.0
# of sound from which the committed sentences at its start are left behind
MIN_LEAVE_SECONDS = 8.0
# of sound that a pass reads at most. Then committed words are left behind, or what none could read
MAX_PASS_SECONDS = 20.0
MARGIN_SECONDS = 2.0  # of silence that stay before a voice may begin
# edits that a second costs by which a word read again would have moved. Passes differ by some
# tenths
EDITS_PER_SECOND = 3.0
OVERLAP_SECONDS = 0.5  # before the sound in which committed words may still be heard in it
FRAME_SECONDS = FRAME_SAMPLES / SAMPLE_RATE


@dataclass(frozen=True)
class RecognisedSentences:
    """Result of a pass: words that it committed, sentences that it closed, and those that were not
    believed."""

    words: tuple[Word, ...] = ()
    sentences: tuple[Sentence, ...] = ()
    dropped: tuple[Rejected, ...] = ()


@dataclass
class LiveTranscriber:
    """Takes sound block by block and gives each word once, at most two passes after it was said.

    recognise: reads a window of sound, as `RecogniserSwitch.read` does. Memory holds
    MAX_PASS_SECONDS of sound.
    """

    recognise: Recognise
    settings: AsrSettings = field(default_factory=AsrSettings)
    language: str | None = None
    end: float = 0.0  # s, where the sound that has come ends
    _start: float = 0.0  # s, of the sound that passes read
    _samples: np.ndarray = field(default_factory=lambda: NO_SOUND)  # (N,) float32
    # what came before it, for the voice detector
    _context: np.ndarray = field(default_factory=lambda: NO_SOUND)
    _committed: list[Word] = field(default_factory=list)  # that may be heard again
    _open: int = 0  # how many of the last of them belong to no closed sentence
    _expected: list[Word] = field(default_factory=list)  # of the pass before, not committed
    _likely: float | None = None  # mean log-probability of the last pass
    _read_until: float = -1.0  # s, where the voice ended in a pass that was believed; -1: in none
    _stop: bool = False  # the pass before heard a full stop behind the committed words

    def add(self, block: AudioBlock) -> RecognisedSentences:
        """Add the next block of sound. After a gap, return what the sound before the
        hole says."""
        sentences = RecognisedSentences()
        gap = block.start - self.end
        # A long hole ends all sentences. A short one is filled with silence.
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
        """Second before which all sound was read for good, and every sentence is closed."""
        if not self._open:
            return self._start
        # The open sentence may still change, so nothing from its start on is settled.
        first_word = self._committed[-self._open]
        if first_word.span is None:
            return self._start
        return min(self._start, first_word.span.start)

    @property
    def _committed_end(self) -> float:
        """Second at which the last committed word ends, 0 without one."""
        return word_seconds(self._committed[-1])[1] if self._committed else 0.0

    def resume(self, words: Sequence[Word]) -> None:
        """Begin behind words that an earlier run committed. The sound to come may hold the last of
        them again."""
        self._committed = list(words)

    def advance(self) -> RecognisedSentences:
        """Recognise the sound so far, once, and return what is certain now."""
        # the words near the end wait for the next pass
        return self._pass(last=False)

    def finish(self) -> RecognisedSentences:
        """Return what remains when no sound follows, or none without a hole."""
        if not len(self._samples):
            return RecognisedSentences()
        sentences = self._pass(last=True)
        # No word goes on behind a hole, so nothing from before it counts.
        self._samples = NO_SOUND
        self._context = NO_SOUND
        self._committed = []
        self._open = 0
        self._expected = []
        self._stop = False
        return sentences

    def _pass(self, *, last: bool) -> RecognisedSentences:
        if not len(self._samples):
            return RecognisedSentences()
        settings = self.settings

        # where the voice is
        sound = np.concatenate([self._context, self._samples])
        context_frames = len(self._context) // FRAME_SAMPLES
        voice = voice_probability(sound)[context_frames:]
        window = AudioWindow(self._start, self._samples, voice, last)
        voiced = np.flatnonzero(voice >= VOICE_PROBABILITY)
        silent_frames = len(voice)
        if len(voiced):
            last_voiced = voiced[-1]
            silent_frames = len(voice) - 1 - last_voiced
        elif not self._expected and not self._open:
            self._drop_sound_before(window, window.end - MARGIN_SECONDS)
            return RecognisedSentences()
        silence = silent_frames * FRAME_SAMPLES / SAMPLE_RATE
        voice_end = window.start + (len(voice) * FRAME_SAMPLES / SAMPLE_RATE - silence)
        is_quiet = last or silence >= SILENCE_SECONDS

        # what it says, unless it would read the same again
        committed: tuple[Word, ...] = ()
        steady = False
        unread = False
        if not is_quiet or abs(voice_end - self._read_until) > FRAME_SECONDS:
            words = self._recognise_window(window)
            committed, steady = self._agree(words, window, is_quiet=is_quiet)
            unread = self._is_unread(words, window)
        self._read_until = voice_end if is_quiet else -1.0

        # which sentences are closed and believed, and which sound is read for good
        at_stop = steady or unread
        sentences = self._close(silence, at_stop=at_stop, last=last)
        evidence = [self._evidence(sentence, window) for sentence in sentences]
        reasons = hallucination_reasons(sentences, evidence, settings)
        if unread and self._committed:
            self._drop_sound_before(window, self._committed_end or window.start)
        else:
            closed = sentences[-1].span.end if sentences else None
            silent_from = voice_end if is_quiet and not self._open else None
            self._drop_read_sound(window, closed, silent_from=silent_from)
        accepted_sentences = []
        dropped = []
        for sentence, reason in zip(sentences, reasons, strict=True):
            if reason is None:
                accepted_sentences.append(sentence)
            else:
                dropped.append(Rejected(what="sentence", text=sentence.text, reason=reason))
        return RecognisedSentences(committed, tuple(accepted_sentences), tuple(dropped))

    def _is_unread(self, words: Sequence[Word], window: AudioWindow) -> bool:
        """Whether the voice goes on behind the words of a pass, for longer than a recogniser
        leaves out by chance."""
        words_end = words[-1].span.end if words and words[-1].span else window.end
        voice = window.voice_between(words_end, window.end)
        seconds = float((voice >= VOICE_PROBABILITY).sum()) * FRAME_SAMPLES / SAMPLE_RATE
        return seconds > UNREAD_SECONDS and not self._expected

    def _recognise_window(self, window: AudioWindow) -> list[Word]:
        """Return the words that the recogniser hears in the window, timed, at the edges of the
        voice."""
        transcript = self.recognise(window)
        # A pass may hear no language. Then that of the pass before stays.
        self.language = transcript.language or self.language
        self._likely = transcript.log_probability
        pieces = [piece for piece in transcript.words if piece.text.strip() and piece.span]
        return fit_to_voice(window, join_word_parts(pieces))

    def _agree(
        self, words: Sequence[Word], window: AudioWindow, *, is_quiet: bool
    ) -> tuple[tuple[Word, ...], bool]:
        """Return the words that are certain now, and whether two passes in a row set a full stop
        behind the last."""
        # What was committed before is found again at the start of the pass, and left out.
        repeated = count_repeated(words, self._context_words())
        self._update_open_words(words[:repeated])
        next_words = words[repeated:]

        # how many words are certain
        count = len(next_words)
        if not is_quiet:
            certain_until = window.end - COMMIT_DELAY_SECONDS
            old = sum(
                word.span is not None and word.span.end <= certain_until for word in next_words
            )
            # or as many first words as the pass before has too
            pairs = zip(map(plain, next_words), map(plain, self._expected), strict=False)
            agreed = itertools.takewhile(lambda pair: pair[0] == pair[1], pairs)
            count = max(old, len(list(agreed)))
        before = self._expected
        self._expected = list(next_words[count:])
        committed = self._commit(next_words[:count])

        # whether this pass and the one before set a full stop behind them
        following = self._expected[0].text if self._expected else None
        stopped = self._stop
        if 0 < count <= len(before):
            stopped = ends_sentence(before[count - 1].text)
        self._stop = self._open > 0 and ends_sentence(self._committed[-1].text, following)
        return committed, self._stop and stopped and following is not None

    def _context_words(self) -> list[Word]:
        """Return the committed words that may be heard again."""
        start = self._start - OVERLAP_SECONDS
        return [word for word in self._committed if word.span and word.span.end > start]

    def _update_open_words(self, words: Sequence[Word]) -> None:
        """Give the words of the open sentence the case and full stops of the newest pass, as far
        back as it agrees."""
        # From the last word backwards, as long as both passes agree.
        most = min(self._open, len(words))
        for words_back in range(1, most + 1):
            word = words[-words_back]
            committed = self._committed[-words_back]
            if plain(word) != plain(committed):
                return
            self._committed[-words_back] = committed.model_copy(update={"text": word.text})

    def _commit(self, words: Sequence[Word]) -> tuple[Word, ...]:
        """Commit words. Their times never decrease."""
        first = len(self._committed)
        for word in words:
            start = 0.0
            if self._committed:
                start, _ = word_seconds(self._committed[-1])
            if word.span is not None and word.span.start < start:
                span = Span(start, max(word.span.end, start + FRAME_SECONDS))
                word = word.model_copy(update={"span": span})
            self._committed.append(word)
        self._open += len(words)
        return tuple(self._committed[first:])

    def _close(self, silence: float, *, at_stop: bool, last: bool) -> list[Sentence]:
        """Return the sentences that no later word can belong to.

        A sentence is closed by a word after it. The last one is closed by silence behind its full
        stop, or a pause. at_stop: the last one ends where it does. Two passes set a full stop
        there, or the recogniser reads on no further.
        """
        pause = self.settings.pause

        # the words of the sentence that is open
        first_open = len(self._committed) - self._open
        words = self._committed[first_open:]
        sentences = split_sentences(words, pause=pause, longest=self.settings.longest)
        ended = last or at_stop
        # Silence behind the last word closes its sentence, sooner where that ends with a full stop.
        if words and not self._expected:
            min_silence = min(SILENCE_SECONDS, pause) if ends_sentence(words[-1].text) else pause
            ended |= silence >= min_silence
        if not ended:
            sentences = sentences[:-1]
        for sentence in sentences:
            self._open -= len(sentence.words)
        return sentences

    def _drop_read_sound(
        self, window: AudioWindow, closed: float | None, *, silent_from: float | None
    ) -> None:
        """Leave sound behind that was read for good, and in any case what is more than
        MAX_PASS_SECONDS.

        closed: second up to which sentences are closed, if any is. silent_from: where the voice has
        fallen silent, if no sentence is open.
        """
        # Silence goes, except for a margin before the next voice.
        if silent_from is not None:
            self._drop_sound_before(window, max(silent_from, window.end - MARGIN_SECONDS))
        # Closed sentences go from long sound, since each pass costs its whole length.
        if closed is not None and window.end - self._start > MIN_LEAVE_SECONDS:
            self._drop_sound_before(window, self._middle_of_pause(closed))
        # No pass is longer than the limit, whatever was committed.
        if window.end - self._start > MAX_PASS_SECONDS:
            begin = max(self._committed_end, window.end - MAX_PASS_SECONDS / 2)
            self._drop_sound_before(window, begin)
        # Committed words stay while they may be heard again.
        if not self._open:
            self._committed = self._context_words()

    def _middle_of_pause(self, closed: float) -> float:
        """Return the middle between the last closed sentence and the first open word, if any."""
        # the first word that is not closed
        words = self._expected
        if self._open:
            words = self._committed[-self._open :]
        if not words:
            return closed
        span = words[0].span
        return closed if span is None else max(closed, (closed + span.start) / 2)

    def _evidence(self, sentence: Sentence, window: AudioWindow) -> SpeechEvidence:
        span = sentence.span
        voice = window.voice_between(span.start, span.end)
        voice_probability = float(voice.mean()) if len(voice) else 0.0
        return SpeechEvidence(voice_probability, self._likely)

    def _drop_sound_before(self, window: AudioWindow, second: float) -> None:
        """Let the sound begin at `second`. Whole frames go, so that the detector's stay aligned."""
        frames = int((second - self._start) * SAMPLE_RATE / FRAME_SAMPLES)
        count = max(0, frames) * FRAME_SAMPLES
        # The detector hears what came before, so that its frames are as in one pass.
        sound = np.concatenate([self._context, window.samples[:count]])
        self._context = detector_context(sound)
        self._samples = self._samples[count:]
        dropped_frames = min(count, len(window.samples))
        self._start += dropped_frames / SAMPLE_RATE


def plain(word: Word) -> str:
    """Return a word as two passes are compared: small letters and digits alone. A sign stays what
    it is."""
    small = word.text.lower()
    return re.sub(r"[^\w']+", "", small) or word.text.strip()


def count_repeated(words: Sequence[Word], committed: Sequence[Word]) -> int:
    """Return how many of the first `words` of a pass are the words that were committed before.

    The prefix with the least cost: its edit distance to them, and the seconds between its end and
    theirs. In the distance, a word in another's place also costs what their times differ. Of equals
    the longest. Both lists hold timed words in spoken order.
    """
    if not committed:
        return 0
    # The words of the pass, and when each begins and ends.
    texts = [plain(word) for word in words]
    seconds = [word_seconds(word) for word in words]
    times = np.array(seconds).reshape(-1, 2)  # (N, 2)

    # the edit distance of the committed words so far to each prefix
    distance = np.arange(len(words) + 1, dtype=np.float64)  # (N + 1,)
    for row, word in enumerate(committed, start=1):
        before = distance
        distance = np.empty_like(before)
        distance[0] = row
        own = plain(word)
        begin, _ = word_seconds(word)
        for column, text in enumerate(texts, start=1):
            distance_seconds = abs(times[column - 1, 0] - begin)
            other = (text != own) + EDITS_PER_SECOND * distance_seconds
            # A word in another's place, one that the pass left out, or one that it added.
            distance[column] = min(
                before[column - 1] + other, before[column] + 1, distance[column - 1] + 1
            )

    # what the end of each prefix costs, the empty one's being where the pass begins
    _, last = word_seconds(committed[-1])
    empty_end = times[:1, 0] if len(words) else [last]
    ends = np.concatenate([empty_end, times[:, 1]])  # (N + 1,)
    cost = distance + np.abs(ends - last)
    # From the end, so that of equal costs the longest prefix wins.
    return int(len(cost) - 1 - np.argmin(cost[::-1]))


def word_seconds(word: Word) -> tuple[float, float]:
    """Return the start and end of a word, 0 where it has no time."""
    return (0.0, 0.0) if word.span is None else (word.span.start, word.span.end)
