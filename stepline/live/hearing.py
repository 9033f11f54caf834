"""Live speech recognition by LocalAgreement-2: a word is committed when two passes over the sound
agree on it.

    pass n      so cut the onion in
    pass n + 1  so cut the onion in half and     commits "so cut the onion in"; the rest waits for pass n + 2

Each pass reads all sound since the last committed sentence (a bounded window; voice detection
first), so that the words near its end, which a recogniser still changes, have sound behind them at
the next one. Where the voice has fallen silent nothing can change any more, and the last pass is
believed; so it is of words that have seconds of sound behind them, where two passes go on to
differ. Committed words stay; case and full stops of the open sentence follow the newest pass, for
they depend on what comes after. Source: Macháček, Dabre and Bojar, "Turning Whisper into Real-Time
Transcription System", 2023, section 2. Differs: what a pass repeats of the committed words is found
by the edit distance of words and their times, not by times and equal n-grams, which lose "very,
very hot".
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from stepline.asr.audio_windows import CONTEXT, LONGEST_GAP, NO_SOUND, AudioWindow, WindowTranscript
from stepline.asr.hallucinations import SpeechEvidence, hallucination_reasons
from stepline.asr.second_reading import fit_to_voice
from stepline.asr.sentences import ends_sentence, join_pieces, split_sentences
from stepline.asr.settings import AsrSettings
from stepline.asr.vad import FRAME, voice_probability
from stepline.media.audio import SAMPLE_RATE, AudioBlock
from stepline.records import Rejected, Sentence, Span, Word

Read: TypeAlias = Callable[[AudioWindow], WindowTranscript]

SILENT = 0.6  # s without voice at the end of the sound after which its last pass is believed
# s of voice behind a pass's last word from which the next one begins there: it would not go on
UNREAD_SPEECH = 1.5
SURE = 4.0  # s of sound behind a word from which the newest pass is believed, agreed or not
ENOUGH = 8.0  # s of sound from which the committed sentences at its start are left behind
# s of sound that a pass reads at most; then committed words are left behind, or what none could
# read
LONGEST = 20.0
KEPT = 2.0  # s of silence kept before a voice may begin
# edits that a second costs by which a word read again would have moved; passes differ by some
# tenths
APART = 3.0
BEFORE = 0.5  # s before the sound in which committed words may still be heard in it


@dataclass(frozen=True)
class Heard:
    """What a pass brought: words committed by it, sentences that it closed, and those that were not
    believed."""

    words: tuple[Word, ...] = ()
    sentences: tuple[Sentence, ...] = ()
    dropped: tuple[Rejected, ...] = ()

    def __add__(self, other: "Heard") -> "Heard":
        return Heard(
            self.words + other.words, self.sentences + other.sentences, self.dropped + other.dropped
        )


@dataclass
class LiveTranscriber:
    """Takes sound block by block and gives each word once, at most two passes after it was said.

    read: reads a window of sound, as `RecogniserSwitch.read` does. Memory holds LONGEST seconds of
    sound.
    """

    read: Read
    settings: AsrSettings = field(default_factory=AsrSettings)
    language: str | None = None
    end: float = 0.0  # s, where the sound that has come ends
    _start: float = 0.0  # s, of the sound that passes read
    _samples: np.ndarray = field(default_factory=lambda: NO_SOUND)
    # what came before it, for the voice detector
    _context: np.ndarray = field(default_factory=lambda: NO_SOUND)
    _committed: list[Word] = field(default_factory=list)  # that may be heard again
    _open: int = 0  # how many of the last of them belong to no closed sentence
    _expected: list[Word] = field(default_factory=list)  # of the pass before, not committed
    _likely: float | None = None  # mean log-probability of the last pass
    _read_to: float = -1.0  # s, where the voice ended in a pass that was believed; -1: in none
    _stop: bool = False  # the pass before heard a full stop behind the committed words

    def add(self, block: AudioBlock) -> Heard:
        """Take the next block of sound; where a hole lies before it, return what the sound before
        the hole says."""
        heard, gap = Heard(), block.start - self.end
        if not len(self._samples) or gap > LONGEST_GAP:
            heard = self.finish()
            self._start = block.start
        elif gap > 0:
            self._samples = np.concatenate(
                [self._samples, np.zeros(round(gap * SAMPLE_RATE), np.float32)]
            )
        self._samples = np.concatenate([self._samples, block.samples])
        self.end = block.start + len(block.samples) / SAMPLE_RATE
        return heard

    @property
    def settled(self) -> float:
        """Second before which all sound was read for good, and every sentence is closed."""
        first = self._committed[-self._open].span if self._open else None
        return min(self._start, first.start) if first is not None else self._start

    def resume(self, words: Sequence[Word]) -> None:
        """Begin behind words that an earlier run committed; the sound to come may hold the last of
        them again."""
        self._committed = list(words)

    def advance(self) -> Heard:
        """Read the sound that has come, once, and return what is certain now."""
        return self._pass(last=False)

    def finish(self) -> Heard:
        """Return what is left when no sound follows, or none without a hole."""
        if not len(self._samples):
            return Heard()
        heard = self._pass(last=True)
        self._samples = self._context = NO_SOUND
        self._committed, self._open, self._expected, self._stop = [], 0, [], False
        return heard

    def _pass(self, *, last: bool) -> Heard:
        if not len(self._samples):
            return Heard()
        voice = voice_probability(np.concatenate([self._context, self._samples]))[
            len(self._context) // FRAME :
        ]
        window = AudioWindow(self._start, self._samples, voice, last)
        voiced = np.flatnonzero(voice >= self.settings.voice)
        silence = (len(voice) - 1 - voiced[-1] if len(voiced) else len(voice)) * FRAME / SAMPLE_RATE
        quiet = last or silence >= SILENT
        if not len(voiced) and not self._expected and not self._open:
            self._leave_behind(window, window.end - KEPT)
            return Heard()
        voice_end = window.start + (len(voice) * FRAME / SAMPLE_RATE - silence)
        committed: tuple[Word, ...] = ()
        steady = unread = False
        # else it would read the same
        if not quiet or abs(voice_end - self._read_to) > FRAME / SAMPLE_RATE:
            words = self._words(window)
            committed, steady = self._agree(words, window, quiet=quiet)
            heard_to = words[-1].span.end if words and words[-1].span else window.end
            after = (
                float((window.voiced(heard_to, window.end) >= self.settings.voice).sum())
                * FRAME
                / SAMPLE_RATE
            )
            unread = after > UNREAD_SPEECH and not self._expected
        self._read_to = voice_end if quiet else -1.0
        sentences, closed = self._close(silence, at_stop=steady or unread, last=last)
        reasons = hallucination_reasons(
            sentences, [self._evidence(each, window) for each in sentences], self.settings
        )
        if unread and self._committed:
            self._leave_behind(
                window, self._committed[-1].span.end if self._committed[-1].span else window.start
            )
        else:
            self._forget(
                window, closed, silent_from=voice_end if quiet and not self._open else None
            )
        pairs = list(zip(sentences, reasons, strict=True))
        return Heard(
            committed,
            tuple(sentence for sentence, reason in pairs if reason is None),
            tuple(
                Rejected(what="sentence", text=each.text, reason=reason)
                for each, reason in pairs
                if reason
            ),
        )

    def _words(self, window: AudioWindow) -> list[Word]:
        """Return the words that the recogniser hears in the window, timed, at the edges of the
        voice."""
        read = self.read(window)
        self.language, self._likely = read.language or self.language, read.log_probability
        return fit_to_voice(
            window, join_pieces([w for w in read.words if w.text.strip() and w.span]), self.settings
        )

    def _agree(
        self, words: Sequence[Word], window: AudioWindow, *, quiet: bool
    ) -> tuple[tuple[Word, ...], bool]:
        """Return the words that are certain now, and whether two passes in a row set a full stop
        behind the last."""
        again = count_repeated(words, self._context_words())
        self._renew_surface(words[:again])
        coming = words[again:]
        old = sum(
            1 for word in coming if word.span is not None and word.span.end <= window.end - SURE
        )
        agreed = coming if quiet else coming[: max(old, _common_prefix(coming, self._expected))]
        before, self._expected = self._expected, list(coming[len(agreed) :])
        committed = self._commit(agreed)
        following = self._expected[0].text if self._expected else None
        stop = self._open > 0 and ends_sentence(self._committed[-1].text, following)
        known = (
            ends_sentence(before[len(agreed) - 1].text)
            if 0 < len(agreed) <= len(before)
            else self._stop
        )
        self._stop = stop
        return committed, stop and known and following is not None

    def _context_words(self) -> list[Word]:
        return [
            word
            for word in self._committed
            if word.span is not None and word.span.end > self._start - BEFORE
        ]

    def _renew_surface(self, words: Sequence[Word]) -> None:
        """Give the words of the open sentence the case and full stops of the newest pass, as far
        back as it agrees."""
        for back in range(1, min(self._open, len(words)) + 1):
            if plain(words[-back]) != plain(self._committed[-back]):
                return
            self._committed[-back] = self._committed[-back].model_copy(
                update={"text": words[-back].text}
            )

    def _commit(self, agreed: Sequence[Word]) -> tuple[Word, ...]:
        """Keep words for good; their times never run backwards."""
        done: list[Word] = []
        for word in agreed:
            before = (
                self._committed[-1].span.start
                if self._committed and self._committed[-1].span
                else 0.0
            )
            if word.span is not None and word.span.start < before:
                word = word.model_copy(
                    update={"span": Span(before, max(word.span.end, before + FRAME / SAMPLE_RATE))}
                )
            self._committed.append(word)
            done.append(word)
        self._open += len(done)
        return tuple(done)

    def _close(
        self, silence: float, *, at_stop: bool, last: bool
    ) -> tuple[list[Sentence], float | None]:
        """Return the sentences that no later word can belong to, and the second up to which they
        reach.

        A sentence is closed by a word after it; the last one by silence behind its full stop, or a
        pause. at_stop: the last one ends where it does, for two passes set a full stop there, or
        the recogniser reads on no further.
        """
        words = self._committed[len(self._committed) - self._open :]
        sentences = split_sentences(words, pause=self.settings.pause, longest=self.settings.longest)
        ended = words and ends_sentence(words[-1].text) and not self._expected and silence >= SILENT
        if sentences and not (
            last or at_stop or ended or (silence >= self.settings.pause and not self._expected)
        ):
            sentences = sentences[:-1]
        self._open -= sum(len(sentence.words) for sentence in sentences)
        return sentences, sentences[-1].span.end if sentences else None

    def _forget(
        self, window: AudioWindow, closed: float | None, *, silent_from: float | None
    ) -> None:
        """Leave sound behind that was read for good, and in any case what is more than LONGEST.

        silent_from: where the voice has fallen silent, if no sentence is open.
        """
        if silent_from is not None:
            self._leave_behind(window, max(silent_from, window.end - KEPT))
        first_open = (
            self._committed[-self._open] if self._open else next(iter(self._expected), None)
        )
        if closed is not None and first_open is not None and first_open.span is not None:
            closed = max(closed, (closed + first_open.span.start) / 2)
        if closed is not None and window.end - self._start > ENOUGH:
            self._leave_behind(window, closed)
        if window.end - self._start > LONGEST:
            said = (
                self._committed[-1].span.end
                if self._committed and self._committed[-1].span
                else 0.0
            )
            self._leave_behind(window, max(said, window.end - LONGEST / 2))
        self._committed = self._context_words() if not self._open else self._committed

    def _evidence(self, sentence: Sentence, window: AudioWindow) -> SpeechEvidence:
        voice = window.voiced(sentence.span.start, sentence.span.end)
        return SpeechEvidence(float(voice.mean()) if len(voice) else 0.0, self._likely)

    def _leave_behind(self, window: AudioWindow, second: float) -> None:
        """Let the sound begin at `second`; whole frames go, so that the detector's stay aligned."""
        count = max(0, int((second - self._start) * SAMPLE_RATE / FRAME)) * FRAME
        heard = np.concatenate([self._context, window.samples[:count]])
        self._context = heard[
            len(heard) - min(int(CONTEXT * SAMPLE_RATE / FRAME), len(heard) // FRAME) * FRAME :
        ]
        self._samples = self._samples[count:]
        self._start += min(count, len(window.samples)) / SAMPLE_RATE


def plain(word: Word) -> str:
    """Return a word as two passes are compared: small letters and digits alone; a sign stays what
    it is."""
    return re.sub(r"[^\w']+", "", word.text.lower()) or word.text.strip()


def count_repeated(words: Sequence[Word], committed: Sequence[Word]) -> int:
    """Return how many of the first `words` of a pass are the words that were committed before.

    That prefix whose edit distance to them is least, where a word in another's place costs what
    their times differ, and the prefix what its end lies beside theirs; of equals the longest. Both
    lists hold timed words in spoken order.
    """
    if not committed:
        return 0
    texts, times = (
        [plain(word) for word in words],
        np.array([_seconds(word) for word in words]).reshape(-1, 2),
    )
    # of the committed words so far to each prefix; (N + 1,)
    distance = np.arange(len(words) + 1, dtype=np.float64)
    for row, word in enumerate(committed, start=1):
        before, distance = distance, np.empty_like(distance)
        distance[0], own, begin = row, plain(word), _seconds(word)[0]
        for column, text in enumerate(texts, start=1):
            other = (text != own) + APART * abs(times[column - 1, 0] - begin)
            distance[column] = min(
                before[column - 1] + other, before[column] + 1, distance[column - 1] + 1
            )
    said = _seconds(committed[-1])[1]
    ends = np.concatenate([times[:1, 0] if len(words) else [said], times[:, 1]])
    cost = distance + np.abs(ends - said)
    return int(len(cost) - 1 - np.argmin(cost[::-1]))


def _seconds(word: Word) -> tuple[float, float]:
    return (word.span.start, word.span.end) if word.span is not None else (0.0, 0.0)


def _common_prefix(words: Sequence[Word], others: Sequence[Word]) -> int:
    """Return how many first words two passes share."""
    same = (plain(a) == plain(b) for a, b in zip(words, others, strict=False))
    return next(
        (index for index, equal in enumerate(same) if not equal), min(len(words), len(others))
    )
