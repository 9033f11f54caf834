"""Vid2Seq's form as a baseline next to ProcX: one network writes a video's steps as one sequence of
tokens.

    <start> <end> words ... <start> <end> words ...        in the order of time

    video = video layers(rows)                     rows see each other
    speech = speech layers(times and words)        only where speech is given
    P(next token) = softmax(norm(h) E^T + b)       h: writer layers(tokens so far; [video; speech])
                                                   E: all tokens

A time token is one of `bins` equal parts of the video's length. They follow the vocabulary's own
tokens. What a network writes need not be of this form. What cannot be a step is left out with its
reason:

    words before any time               NO_TIMES
    one time alone, then words          ONE_TIME
    an end that is before its start     REVERSED_TIMES
    two times without words             NO_WORDS
    more than two times in a row        the last two are taken, the others are SPARE_TIMES

A start and an end in one bin are that bin: a step is never without length. Half bytes that are not
a character become U+FFFD. Steps come back in the order in which they were written. They may
overlap.

Source: Yang et al., CVPR 2023. Differs: a small network from fresh weights in place of T5 and CLIP,
so that no language model is pre-trained. The denoising loss of its pre-training is left out.
Letters: B videos, R rows, C of a backbone, A tokens of speech, W written, D width, V all tokens.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import torch
import torch.nn.functional as F
from pydantic import Field, model_validator
from torch import Tensor, nn

from stepline.errors import ShapeError
from stepline.evaluate.events import Event
from stepline.models.procx.batch import StepSample, stack_videos
from stepline.models.procx.beam_search import generate
from stepline.models.procx.caption_context import CaptionContext
from stepline.models.procx.captioner import (
    EMBEDDING_STD,
    Attention,
    CaptionerLayer,
    DecoderState,
    KeyValueCache,
)
from stepline.models.procx.losses import caption_loss
from stepline.models.procx.settings import SearchSettings
from stepline.models.procx.vocabulary import (
    END_TOKEN,
    MARK_TOKENS,
    CaptionTokens,
    Vocabulary,
    pack_tokens,
    pad_tokens,
)
from stepline.models.training.loop import HeldOutScorer, Loss, Progress, TrainingTask, fit
from stepline.models.training.settings import TrainSettings
from stepline.records import Matrix, Rejected, Sentence
from stepline.settings import Count, Settings


class Vid2SeqSettings(Settings):
    """A network that reads feature rows, and speech where it is given.

    It writes one sequence per video.
    """

    features: Count = 512  # C of a feature row; S3D: 512, CLIP: 768
    rows: Count = 100  # that each video is resized to; Vid2Seq
    bins: Count = 100  # time tokens: equal parts of a video's length; Vid2Seq
    width: Count = 512  # D; T5-base: 768
    heads: Count = 8
    video_layers: Count = 2  # on feature rows; Vid2Seq: 12
    speech_layers: Count = 2  # on what is said; Vid2Seq: 12
    writer_layers: Count = 2  # that write; Vid2Seq: 12
    feed_forward: Count = 2048
    dropout: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.1  # Vid2Seq
    longest: Count = 256  # most tokens of a video's steps, the end mark included; Vid2Seq
    longest_speech: Count = 1000  # most tokens of what is said; Vid2Seq
    label_smoothing: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.1  # Vid2Seq

    @model_validator(mode="after")
    def _fits(self) -> "Vid2SeqSettings":
        if self.width % self.heads:
            raise ValueError(f"width {self.width} must be a multiple of heads {self.heads}")
        return self


# Learns the simulated world in minutes.
SMALL_VID2SEQ: Final = Vid2SeqSettings(
    rows=64, width=64, heads=4, speech_layers=1, feed_forward=128, longest=320, longest_speech=400
)


class Vid2Seq(nn.Module):  # type: ignore[misc]   # torch is untyped to mypy here
    """The baseline, fresh until weights are loaded. It writes word by word.

    token_count: of words and times.
    """

    def __init__(self, settings: Vid2SeqSettings, token_count: int) -> None:
        super().__init__()
        self.settings = settings
        self.longest = settings.longest
        width = settings.width
        # The order of these lines is that of the random draws of fresh weights.
        self.rows = nn.Linear(settings.features, width)
        self.rows_norm = nn.LayerNorm(width)
        self.row_places = nn.Embedding(settings.rows, width)
        self.words = nn.Embedding(token_count, width)
        self.places = nn.Embedding(settings.longest, width)
        self.speech_places = nn.Embedding(settings.longest_speech, width)
        # added to the rows of the video, and to those of the speech
        self.kinds = nn.Parameter(torch.randn(2, width) * EMBEDDING_STD)
        self.video_layers = self._layers(settings.video_layers, crosses=False)
        self.speech_layers = self._layers(settings.speech_layers, crosses=False)
        self.writer_layers = self._layers(settings.writer_layers, crosses=True)
        self.norm = nn.LayerNorm(width)
        self.bias = nn.Parameter(torch.zeros(token_count))
        self.drop = nn.Dropout(settings.dropout)
        for table in (self.row_places, self.words, self.places, self.speech_places):
            nn.init.normal_(table.weight, std=EMBEDDING_STD)

    def context(
        self, values: Tensor, speech: Tensor | None = None, speech_pad: Tensor | None = None
    ) -> CaptionContext:
        """Return what the sequences of B videos are about.

        values: (B, R, C). speech: (B, A) tokens. speech_pad: True at padding. Raises ShapeError for
        values of another shape than the network's, or more speech than it has places for.
        """
        rows, features = self.settings.rows, self.settings.features
        if values.ndim != 3 or values.shape[1:] != (rows, features):
            shape = tuple(values.shape)
            raise ShapeError(f"features must be (videos, {rows}, {features}), not {shape}; resize")
        if speech is not None and speech.shape[1] > self.settings.longest_speech:
            raise ShapeError(
                f"{speech.shape[1]} tokens of speech; cut them to {self.settings.longest_speech}"
            )
        embedded = self.rows_norm(self.rows(values)) + self.row_places.weight
        hidden = self.drop(embedded)  # (B, R, D)
        for layer in self.video_layers:
            hidden = layer(hidden)
        videos = torch.arange(len(hidden), device=hidden.device)
        return CaptionContext(
            hidden.mean(dim=1), hidden, videos, transcript=speech, transcript_pad=speech_pad
        )

    def forward(self, tokens: Tensor, context: CaptionContext) -> Tensor:
        """Return the logits (B, W, V) of what comes after each token (B, W).

        Padding is at the end. Raises ShapeError when there are more tokens than places.
        """
        length = tokens.shape[1]
        if length > self.longest:
            raise ShapeError(
                f"{length} tokens are more than the {self.longest} places; cut the sequences"
            )
        rows = self.drop(self.words(tokens) + self.places.weight[:length])  # (B, W, D)
        for layer, memory in zip(self.writer_layers, self._remember(context), strict=True):
            rows = layer(rows, memory, causal=True)
        return self._logits(rows)

    def begin(self, context: CaptionContext) -> DecoderState:
        """Return the state from which the sequences of this context are written."""
        return DecoderState(self._remember(context), [None] * len(self.writer_layers))

    def step(self, tokens: Tensor, state: DecoderState) -> Tensor:
        """Return the logits (B, V) of what comes after the last tokens (B,).

        `state` then holds them.
        """
        rows = self.words(tokens)[:, None] + self.places.weight[state.length]  # (B, 1, D)
        for index, layer in enumerate(self.writer_layers):
            rows, past = layer.step(rows, state.pasts[index], state.contexts[index])
            state.pasts[index] = past
        state.length += 1
        return self._logits(rows)[:, 0]

    def _layers(self, count: int, *, crosses: bool) -> nn.ModuleList:
        own = self.settings
        layers = nn.ModuleList()
        for _ in range(count):
            layer = CaptionerLayer(
                own.width, own.heads, own.feed_forward, own.dropout, crosses=crosses
            )
            layers.append(layer)
        return layers

    def _logits(self, rows: Tensor) -> Tensor:
        return F.linear(self.norm(rows), self.words.weight, self.bias)

    def _remember(self, context: CaptionContext) -> list[KeyValueCache]:
        """Return each writer layer's keys and values of the video and of the speech."""
        video_kind, speech_kind = self.kinds
        speech = self._speech_rows(context)
        memories = []
        for layer in self.writer_layers:
            attention: Attention = layer.across
            memory = attention.key_values(context.features + video_kind)
            if speech is not None:
                speech_memory = attention.key_values(speech + speech_kind, context.transcript_pad)
                memory = memory.concat(speech_memory)
            memories.append(memory)
        return memories

    def _speech_rows(self, context: CaptionContext) -> Tensor | None:
        """Return what is said as rows (B, A, D), after layers in which they see each other."""
        tokens = context.transcript
        if tokens is None or not tokens.shape[1]:
            return None
        length = tokens.shape[1]
        rows = self.drop(self.words(tokens) + self.speech_places.weight[:length])  # (B, A, D)
        pad = context.transcript_pad
        keep = None
        if pad is not None:
            # every word sees itself, so that a row of padding alone has no NaN
            itself = torch.eye(length, dtype=torch.bool, device=pad.device)
            keep = ~pad[:, None, None] | itself  # (B, 1, A, A)
        for layer in self.speech_layers:
            rows = layer(rows, keep=keep)
        return rows


NO_TIMES = "words without a time"
ONE_TIME = "words with one time alone"
REVERSED_TIMES = "its end is before its start"
NO_WORDS = "times without words"
SPARE_TIMES = "more times than two"


@dataclass(frozen=True)
class TimedVocabulary:
    """The vocabulary, and after its tokens the time tokens."""

    words: Vocabulary
    bins: int

    def __len__(self) -> int:
        return len(self.words) + self.bins

    def time(self, second: float, duration: float) -> int:
        """Return the token of a second, clipped to the video.

        The end of the video is in the last bin.
        """
        time_bin = int(second / duration * self.bins)
        return len(self.words) + min(max(time_bin, 0), self.bins - 1)

    def bin(self, token: int) -> int | None:
        """Return which time a token is, None for words and marks."""
        return token - len(self.words) if token >= len(self.words) else None


@dataclass(frozen=True)
class ParsedSteps:
    """The steps in a sequence, (start, end, sentence) in seconds, and what is not a step."""

    events: tuple[Event, ...]
    dropped: tuple[Rejected, ...]


def encode_events(
    events: Sequence[Event], duration: float, vocabulary: TimedVocabulary
) -> list[int]:
    """Return the tokens of a video's steps in the order of time, without marks.

    The end is the bin in which the last of its seconds lies. Raises ShapeError for a video without
    length.
    """
    if not duration > 0:
        raise ShapeError(f"a video's duration must be above 0 seconds, not {duration}")
    tokens: list[int] = []
    width = duration / vocabulary.bins
    for start, end, sentence in sorted(events, key=lambda event: event[:2]):
        first = vocabulary.time(start, duration)
        last = max(first, vocabulary.time(end - width / 2, duration))
        tokens += [first, last]
        tokens += vocabulary.words.encode(sentence)
    return tokens


def decode_events(
    tokens: Sequence[int], duration: float, vocabulary: TimedVocabulary
) -> ParsedSteps:
    """Return the steps of a sequence, read up to its end mark.

    Raises ShapeError for a token of another vocabulary.
    """
    count = len(vocabulary)
    if any(not 0 <= token < count for token in tokens):
        raise ShapeError(
            f"a token is not one of the {count} of this vocabulary; parse with the network's own"
        )
    events: list[Event] = []
    dropped: list[Rejected] = []
    for times, words in _time_word_groups(tokens, vocabulary):
        sentence = vocabulary.words.decode(words)
        # only the last two times count
        if len(times) > 2:
            text = f"{len(times) - 2} times before {sentence!r}"
            dropped.append(Rejected(what="step", text=text, reason=SPARE_TIMES))
        reason = _malformed_reason(times, sentence)
        if reason is None:
            first, last = times[-2:]
            start = first * duration / vocabulary.bins
            end = (last + 1) * duration / vocabulary.bins
            events.append((start, end, sentence))
        else:
            dropped.append(Rejected(what="step", text=sentence, reason=reason))
    return ParsedSteps(tuple(events), tuple(dropped))


def _malformed_reason(times: Sequence[int], sentence: str) -> str | None:
    """Return why a run of times and the words after it are not a step."""
    if len(times) < 2:
        return ONE_TIME if times else NO_TIMES
    if not sentence:
        return NO_WORDS
    return REVERSED_TIMES if times[-1] < times[-2] else None


def _time_word_groups(
    tokens: Sequence[int], vocabulary: TimedVocabulary
) -> Iterator[tuple[list[int], list[int]]]:
    """Yield each run of times, as bins, with the words after it.

    One of the two may be empty, never both.
    """
    times: list[int] = []
    words: list[int] = []
    for token in tokens:
        if token == END_TOKEN:
            break
        if token < len(MARK_TOKENS):
            continue
        time_bin = vocabulary.bin(token)
        if time_bin is None:
            words.append(token)
        elif words:
            yield times, words
            times = [time_bin]
            words = []
        else:
            times.append(time_bin)
    if times or words:
        yield times, words


@dataclass(frozen=True)
class VideoInput:
    """A video as the baseline gets it.

    values: (T, C) over `duration` seconds. speech: None where it is not read.
    """

    values: Matrix
    duration: float
    speech: tuple[Sentence, ...] | None = None


@dataclass(frozen=True)
class Vid2SeqSample:
    """A video to learn from: its steps in any order."""

    id: str
    video: VideoInput
    events: tuple[Event, ...]


def vid2seq_sample(
    sample: StepSample, narration: Sequence[Sentence] | None = None
) -> Vid2SeqSample:
    """Return a sample of ProcX as a sample of this baseline.

    narration: the whole of it, where it is to be read.
    """
    events: list[Event] = []
    for (start, end), sentence in zip(sample.spans, sample.sentences, strict=True):
        events.append((start, end, sentence))
    speech = None if narration is None else tuple(narration)
    video = VideoInput(sample.values, sample.duration, speech)
    return Vid2SeqSample(sample.id, video, tuple(events))


def train_vid2seq(
    samples: Sequence[Vid2SeqSample],
    folder: Path,
    *,
    vocabulary: TimedVocabulary,
    model: Vid2SeqSettings | None = None,
    settings: TrainSettings | None = None,
    start: Vid2Seq | None = None,
    scorer: HeldOutScorer[Vid2SeqSample] | None = None,
    report: Callable[[Progress], None] | None = None,
    device: str | torch.device = "cpu",
) -> Vid2Seq:
    """Return a network trained on the samples, in evaluation mode.

    It starts from fresh weights, or from those of `start`. A run in `folder` that was killed is
    taken up. Raises ShapeError when there is nothing to train on.
    """
    settings = settings or TrainSettings()
    torch.manual_seed(settings.seed)  # of fresh weights
    network = start or Vid2Seq(model or Vid2SeqSettings(), len(vocabulary))
    network.to(device)
    task = vid2seq_task(samples, vocabulary, network.settings)
    fit(network, task, settings, folder, report, scorer=scorer)
    return network


def vid2seq_task(
    samples: Sequence[Vid2SeqSample], vocabulary: TimedVocabulary, settings: Vid2SeqSettings
) -> TrainingTask[Vid2SeqSample]:
    """Return what training learns: the next token of every video's sequence.

    Videos of as many steps are in one batch.
    """

    def losses(network: nn.Module, batch: Sequence[Vid2SeqSample]) -> list[Loss]:
        device = next(network.parameters()).device
        packed = pack_sequences(batch, vocabulary, settings.longest).to(device)
        context = caption_context(network, [sample.video for sample in batch], vocabulary)
        logits = network(packed.tokens, context)
        return [caption_loss(logits, packed.targets, packed.token_pad, settings.label_smoothing)]

    return TrainingTask(samples, lambda sample: len(sample.events), lambda batch, _: batch, losses)


def pack_sequences(
    samples: Sequence[Vid2SeqSample], vocabulary: TimedVocabulary, longest: int
) -> CaptionTokens:
    """Return the videos' sequences as padded tensors.

    `truncated` of them were longer than `longest`, the end mark included.
    """
    sequences = []
    for sample in samples:
        sequences.append(encode_events(sample.events, sample.video.duration, vocabulary))
    return pack_tokens(sequences, longest)


def caption_context(
    network: Vid2Seq, videos: Sequence[VideoInput], vocabulary: TimedVocabulary
) -> CaptionContext:
    """Return the network's context: videos at its length, and their speech where it is read."""
    settings = network.settings
    device = next(network.parameters()).device
    values = [video.values for video in videos]
    durations = [video.duration for video in videos]
    stacked = stack_videos(values, durations, settings.rows, settings.features)
    speech: tuple[Tensor, Tensor] | tuple[None, None] = (None, None)
    if any(video.speech is not None for video in videos):
        sequences = [_speech_tokens(video, vocabulary) for video in videos]
        rows, pad = pad_tokens([tokens[: settings.longest_speech] for tokens in sequences])
        speech = rows.to(device), pad.to(device)
    context: CaptionContext = network.context(stacked.values.to(device), *speech)
    return context


def _speech_tokens(video: VideoInput, vocabulary: TimedVocabulary) -> list[int]:
    """Return what is said as a sequence of times and words.

    Sentences after the video's end are put at its end.
    """
    events: list[Event] = []
    for sentence in video.speech or ():
        events.append((sentence.span.start, sentence.span.end, sentence.text))
    return encode_events(events, video.duration, vocabulary)


@torch.no_grad()  # type: ignore[untyped-decorator]   # torch is untyped to mypy here
def predict_steps(
    network: Vid2Seq,
    vocabulary: TimedVocabulary,
    videos: Sequence[VideoInput],
    search: SearchSettings | None = None,
    *,
    at_once: int = 32,
) -> list[ParsedSteps]:
    """Return the steps of each video, none for a video without feature rows.

    The network should be in evaluation mode.
    """
    steps = [ParsedSteps((), ())] * len(videos)
    numbers = [number for number, video in enumerate(videos) if len(video.values)]
    for first in range(0, len(numbers), at_once):
        part = numbers[first : first + at_once]
        context = caption_context(network, [videos[number] for number in part], vocabulary)
        sequences = generate(network, context, search)
        for number, sequence in zip(part, sequences, strict=True):
            duration = videos[number].duration
            steps[number] = decode_events(sequence.tokens, duration, vocabulary)
    return steps
