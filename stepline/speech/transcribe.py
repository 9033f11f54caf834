"""Speech recognition of a stream of audio: windows, words, sentences, removal of hallucinations.

The audio of stepline/cli/demo/demo.mp4 gives 16 sentences, and none is left out. The first ones of
whisper-tiny.en:

    (0.6, 3.3)   "Hi everyone, welcome back to my kitchen."
    (4.0, 7.9)   "Today I'm making my favorite banana pancakes and they are so easy."
    (9.1, 11.1)  "First of all, slice the banana,"
"""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from stepline.media.audio import AudioBlock, Samples
from stepline.records import Rejected, Sentence, Span, Transcript
from stepline.speech.audio_windows import (
    EMPTY_SAMPLES,
    FRAME_SECONDS,
    VOICE_PROBABILITY,
    AudioWindow,
    AudioWindower,
    WindowTranscript,
    speech_seconds,
)
from stepline.speech.hallucinations import (
    REPETITION_REASON,
    SpeechEvidence,
    hallucination_reasons,
    is_low_confidence_reason,
    repeated_sentences,
)
from stepline.speech.recogniser import MULTILINGUAL_MODEL, SWITCH_SPEECH_SECONDS, RecogniserSwitch
from stepline.speech.second_pass import fit_to_voice, rerecognise_doubtful
from stepline.speech.sentences import ends_sentence, split_sentences, start_and_end
from stepline.speech.settings import AsrSettings

if TYPE_CHECKING:
    from stepline.speech.whisper import Models

log = logging.getLogger(__name__)

DEFAULT_ASR_SETTINGS = AsrSettings()
# of speech after a window's last word, from which the next window starts at that word's end
UNREAD_SECONDS = 1.5
REREAD_SECONDS = 0.2  # before a cut sentence, at which it is read again
MAX_DROPPED_CHARS = 300  # of a dropped text that are kept
# of speech between two sentences, from which a warning says so. In 23 English clips it is 2 at most,
# in a clip that changes to Spanish 14
MIN_UNREAD_SPEECH_SECONDS = 5.0
# P(word) below which a word is doubted, and the share of such words from which a transcript is
# poor. Of 23 English clips read by tiny.en four have .096 to .23: all four are garbled when read.
# The others have .1 of 20 words, or at most .083.
DOUBTED_WORD_PROBABILITY = 0.5
MAX_DOUBTED_FRACTION = 0.09
MIN_DOUBTED_WORDS = 3


@dataclass(frozen=True)
class TranscriptionResult:
    """A transcript, with the sentences that were rejected.

    Attributes:
        transcript: the accepted sentences.
        dropped: each rejected sentence with its reason.
        warnings: messages for the user, each with a cure.
    """

    transcript: Transcript
    dropped: tuple[Rejected, ...] = ()
    warnings: tuple[str, ...] = ()


def transcribe(
    blocks: Iterable[AudioBlock],
    settings: AsrSettings = DEFAULT_ASR_SETTINGS,
    *,
    models: "Models | None" = None,
    start: float = 0.0,
) -> TranscriptionResult:
    """Return the recognised sentences of an audio stream, and those rejected as hallucinations.

    Memory holds one window, or one batch of windows on a GPU. A sentence may start in one window
    and end in the next. No audio gives an empty transcript.

    Args:
        blocks: audio blocks of any length, in order.
        settings: settings of speech recognition.
        models: name -> loaded Whisper model, shared with the caller and extended. None: not shared.
        start: second of the whole video at which the audio begins, for warnings.

    Raises ModelError if the model is missing or damaged, SettingsError for a language that it does
    not know.
    """
    recogniser = RecogniserSwitch(settings, models)
    windower = AudioWindower(settings)
    collector = SentenceCollector(settings, start)
    stream = windower.windows(blocks)
    while windows := list(islice(stream, recogniser.at_once)):
        last = windows[-1]

        # what the first pass over the windows left out
        transcripts = []
        for window, first_pass in zip(windows, recogniser.read_many(windows), strict=True):
            # else the next window begins where this one has no words yet
            trailing_voice = window.last or window is not last
            second_pass = rerecognise_doubtful(
                window, first_pass, recogniser.read, trailing_voice=trailing_voice
            )
            fitted = fit_to_voice(window, second_pass.words)
            transcripts.append(replace(second_pass, words=tuple(fitted)))

        # sentences, and where the next window begins
        words = [word for transcript in transcripts for word in transcript.words]
        sentences = split_sentences(words, pause=settings.pause, longest=settings.longest)
        in_last = [sentence for sentence in sentences if sentence.span.end > last.start]
        next_start = _next_window_start(in_last, last)
        if next_start is not None:
            end = windower.set_next_start(next_start)
            sentences = [sentence for sentence in sentences if sentence.span.start < end]
        collector.add(sentences, windows, transcripts)
    return collector.result(recogniser)


class SentenceCollector:
    """Collects the accepted sentences of a video, and the rejected ones with reasons."""

    def __init__(self, settings: AsrSettings, start: float = 0.0) -> None:
        self._settings = settings
        self._start = start
        self.accepted: list[Sentence] = []
        self._dropped: list[tuple[Sentence, str]] = []
        self._language: str | None = None
        self._voiced: list[Samples] = []  # the seconds of the frames with speech
        self._voiced_until = 0.0

    def add(
        self,
        sentences: Sequence[Sentence],
        windows: Sequence[AudioWindow],
        transcripts: Sequence[WindowTranscript],
    ) -> None:
        """Add the sentences of windows that were recognised together.

        Args:
            sentences: sentences split from the words of these windows.
            windows: the windows of audio.
            transcripts: one transcript per window.
        """
        evidence = [_measure_evidence(sentence, windows, transcripts) for sentence in sentences]
        reasons = hallucination_reasons(sentences, evidence, self._settings)
        for sentence, reason in zip(sentences, reasons, strict=True):
            if reason is None:
                self.accepted.append(sentence)
            else:
                self._dropped.append((sentence, reason))
        # Windows overlap.
        for window in windows:
            seconds = (
                window.start
                + np.flatnonzero(window.voice_probabilities >= VOICE_PROBABILITY) * FRAME_SECONDS
            )
            self._voiced.append(seconds[seconds >= self._voiced_until].astype(np.float32))
            self._voiced_until = window.end
        if sentences:
            for transcript in transcripts:
                self._language = transcript.language or self._language

    def result(self, recogniser: RecogniserSwitch) -> TranscriptionResult:
        """Return the transcript of the whole video.

        recogniser: the recogniser that was used.
        """
        # A loop may extend over windows.
        ordered = sorted(self.accepted, key=start_and_end)
        looped = repeated_sentences(ordered)
        sentences = []
        for number, sentence in enumerate(ordered):
            if number in looped:
                self._dropped.append((sentence, REPETITION_REASON))
            else:
                sentences.append(sentence)
        log.info("heard %d sentences, left out %d", len(sentences), len(self._dropped))

        # The English model takes all speech for English, so without sentences it knows no language.
        is_guess = not sentences and recogniser.english_only and self._settings.language is None
        advice = self._advice(sentences, recogniser)
        warnings = self._doubt_warnings(sentences, recogniser)
        if advice:
            warnings = (f"most of the speech is not understood; {advice}",)
        dropped = []
        for sentence, reason in self._dropped:
            if advice and reason != REPETITION_REASON and is_low_confidence_reason(reason):
                reason = f"{reason}; {advice}"
            text = sentence.text[:MAX_DROPPED_CHARS]
            dropped.append(Rejected(what="sentence", text=text, reason=reason))
        transcript = Transcript(
            language=None if is_guess else self._language,
            sentences=tuple(sentences),
            recogniser=recogniser.name,
        )
        return TranscriptionResult(transcript, tuple(dropped), warnings)

    def _advice(self, sentences: Sequence[Sentence], recogniser: RecogniserSwitch) -> str:
        """Return the recogniser's advice if rejected, unlikely words take most of the speech, else "".

        Less than SWITCH_SPEECH_SECONDS of them are too few to indicate another language.

        Args:
            sentences: the accepted sentences.
            recogniser: the recogniser that was used.
        """
        accepted_seconds = sum(sentence.span.duration for sentence in sentences)
        unlikely_seconds = sum(
            sentence.span.duration
            for sentence, reason in self._dropped
            if is_low_confidence_reason(reason)
        )
        if unlikely_seconds <= max(SWITCH_SPEECH_SECONDS, accepted_seconds):
            return ""
        return recogniser.advice

    def _doubt_warnings(
        self, sentences: Sequence[Sentence], recogniser: RecogniserSwitch
    ) -> tuple[str, ...]:
        """Return warnings about speech without words, and about many unlikely words.

        Args:
            sentences: the accepted sentences, in order.
            recogniser: the recogniser that was used.
        """
        warnings = []
        voiced = np.concatenate([EMPTY_SAMPLES, *self._voiced])
        unread = find_unrecognised_speech(voiced, [sentence.span for sentence in sentences])
        if unread:
            seconds = sum(count for _, count in unread)
            problem = (
                f"{seconds:.0f} s of speech, from second {self._start + unread[0][0]:.0f} on, are "
                "not understood"
            )
            cure = recogniser.advice or "give its language (--language) or its words (--captions)"
            warnings.append(f"{problem}; {cure}")
        probabilities = [
            word.confidence
            for sentence in sentences
            for word in sentence.words
            if word.confidence is not None
        ]
        doubted = sum(value < DOUBTED_WORD_PROBABILITY for value in probabilities)
        if doubted >= max(MIN_DOUBTED_WORDS, MAX_DOUBTED_FRACTION * len(probabilities)):
            cure = "give its words (--captions)"
            if recogniser.english_only:
                cure = f"`--model {MULTILINGUAL_MODEL}` hears better"
            problem = f"{doubted} of {len(probabilities)} words are unsure, so steps may be wrong"
            warnings.append(f"{problem}; {cure}")
        return tuple(warnings)


def find_unrecognised_speech(voiced: Samples, spans: Sequence[Span]) -> list[tuple[float, float]]:
    """Return the long stretches of speech between recognised sentences, each as (start in seconds,
    seconds of speech).

    Args:
        voiced: (F,) the seconds of the frames with speech, in order.
        spans: spans of the accepted sentences, in order.
    """
    starts = [span.start for span in spans]
    ends = np.maximum.accumulate([-1.0, *(span.end for span in spans)])
    sentences_before = np.searchsorted(starts, voiced, side="right")
    is_unread = voiced > ends[sentences_before]
    stretches = []
    for number in np.unique(sentences_before[is_unread]):
        seconds = voiced[is_unread & (sentences_before == number)]
        if len(seconds) * FRAME_SECONDS >= MIN_UNREAD_SPEECH_SECONDS:
            stretches.append((float(seconds[0]), len(seconds) * FRAME_SECONDS))
    return stretches


def _measure_evidence(
    sentence: Sentence, windows: Sequence[AudioWindow], transcripts: Sequence[WindowTranscript]
) -> SpeechEvidence:
    """Return the mean P(voice) of a sentence, and the mean log-probability of its first window.

    Args:
        sentence: the sentence.
        windows: the windows of audio that were recognised together.
        transcripts: one transcript per window.
    """
    start, end = start_and_end(sentence)
    overlapping = [
        number for number, window in enumerate(windows) if window.start < end and start < window.end
    ]
    numbers = overlapping or [len(windows) - 1]
    rows = [windows[number].voice_probabilities_between(start, end) for number in numbers]
    probabilities = np.concatenate(rows)
    mean_probability = float(probabilities.mean()) if len(probabilities) else 0.0
    return SpeechEvidence(mean_probability, transcripts[numbers[0]].log_probability)


def _next_window_start(sentences: Sequence[Sentence], window: AudioWindow) -> float | None:
    """Return the second at which the next window starts, None for the end of this window.

    It is the end of the last word if voice follows it, or the start of a last sentence that the end
    of the window cuts off.

    Args:
        sentences: sentences that end in the window.
        window: the window of audio.
    """
    if window.last or not sentences:
        return None
    last = sentences[-1]
    if (
        speech_seconds(window.voice_probabilities_between(last.span.end, window.end))
        > UNREAD_SECONDS
    ):
        return last.span.end
    if (not ends_sentence(last.text) or last.text.endswith("...")) and len(sentences) > 1:
        return max(sentences[-2].span.end, last.span.start - REREAD_SECONDS)
    return None
