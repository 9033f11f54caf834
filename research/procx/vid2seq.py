"""Vid2Seq's form as a baseline next to ProcX: one network writes a video's steps as one sequence of
tokens.

    <start> <end> words ... <start> <end> words ...        in the order of time

    seen = video layers(rows)                      rows see each other
    heard = speech layers(times and words)         only where speech is given
    P(next token) = softmax(norm(h) E^T + b)       h: writer layers(tokens so far; [seen; heard]); E: all tokens

A time token is one of `bins` equal parts of the video's length. They follow the vocabulary's own
tokens. What a network writes need not be of this form, and what cannot be a step is left out with
its reason:

    words before any time               NO_TIMES
    one time alone, then words          ONE_TIME
    an end that is before its start     REVERSED
    two times without words             NO_WORDS
    more than two times in a row        the last two are taken, the others are SPARE_TIMES

The same bin as start and end is that bin: a step is never without length. Half bytes that are not a
character become U+FFFD. Steps come back in the order in which they were written. They may overlap.

Source: Yang et al., CVPR 2023. Differs: a small network from fresh weights in place of T5 and CLIP,
so that no language model is pre-trained. The denoising loss of its pre-training is left out.
Letters: B videos, R rows, C width of a backbone, A tokens of speech, W tokens written, D width. V
tokens of the vocabulary with times.
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
from stepline.procx.batch import StepSample, stack_videos
from stepline.procx.beam_search import generate
from stepline.procx.caption_context import CaptionContext
from stepline.procx.captioner import (
    EMBEDDING_STD,
    Attention,
    CaptionerLayer,
    DecoderState,
    KeyValueCache,
)
from stepline.procx.losses import caption_loss
from stepline.procx.settings import SearchSettings
from stepline.procx.vocabulary import (
    END_TOKEN,
    MARK_TOKENS,
    CaptionTokens,
    Vocabulary,
    pack_tokens,
    pad_tokens,
)
from stepline.records import Matrix, Rejected, Sentence
from stepline.settings import Count, Settings
from stepline.training.loop import Loss, Progress, TrainingTask, fit
from stepline.training.settings import TrainSettings


class Vid2SeqSettings(Settings):
    """A network that reads feature rows, and speech where it is given, and writes one sequence a
    video."""

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


SMALL_VID2SEQ: Final = Vid2SeqSettings(  # learns the simulated world in minutes
    rows=64, width=64, heads=4, speech_layers=1, feed_forward=128, longest=320, longest_speech=400
)


class Vid2Seq(nn.Module):  # type: ignore[misc]   # torch is untyped to mypy here
    """The baseline, fresh until weights are loaded. It writes word by word. token_count: of words
    and times."""

    def __init__(self, settings: Vid2SeqSettings, token_count: int) -> None:
        super().__init__()
        self.settings, self.longest = settings, settings.longest
        width = settings.width
        self.rows, self.rows_norm = nn.Linear(settings.features, width), nn.LayerNorm(width)
        self.row_places = nn.Embedding(settings.rows, width)
        self.words, self.places = (
            nn.Embedding(token_count, width),
            nn.Embedding(settings.longest, width),
        )
        self.speech_places = nn.Embedding(settings.longest_speech, width)
        # added to what is seen, and to what is heard
        self.kinds = nn.Parameter(torch.randn(2, width) * EMBEDDING_STD)
        self.video_layers = self._layers(settings.video_layers, crosses=False)
        self.speech_layers = self._layers(settings.speech_layers, crosses=False)
        self.writer_layers = self._layers(settings.writer_layers, crosses=True)
        self.norm, self.bias = nn.LayerNorm(width), nn.Parameter(torch.zeros(token_count))
        self.drop = nn.Dropout(settings.dropout)
        for table in (self.row_places, self.words, self.places, self.speech_places):
            nn.init.normal_(table.weight, std=EMBEDDING_STD)

    def context(
        self, values: Tensor, speech: Tensor | None = None, speech_pad: Tensor | None = None
    ) -> CaptionContext:
        """Return what the sequences of B videos are about. values: (B, R, C). speech: (B, A)
        tokens, and their mask.

        Raises ShapeError for values of another shape than the network's, or more speech than it has
        places for.
        """
        wanted = (self.settings.rows, self.settings.features)
        if values.ndim != 3 or values.shape[1:] != wanted:
            raise ShapeError(
                f"features must be (videos, {wanted[0]}, {wanted[1]}), not {tuple(values.shape)}; resize"
            )
        if speech is not None and speech.shape[1] > self.settings.longest_speech:
            raise ShapeError(
                f"{speech.shape[1]} tokens of speech; cut them to {self.settings.longest_speech}"
            )
        rows = self.drop(self.rows_norm(self.rows(values)) + self.row_places.weight)  # (B, R, D)
        for layer in self.video_layers:
            rows = layer(rows)
        videos = torch.arange(len(rows), device=rows.device)
        return CaptionContext(
            rows.mean(dim=1), rows, videos, transcript=speech, transcript_pad=speech_pad
        )

    def forward(self, tokens: Tensor, context: CaptionContext) -> Tensor:
        """Return the logits (B, W, V) of what comes after each token (B, W). Padding is at the
        end.

        Raises ShapeError when there are more tokens than places.
        """
        if tokens.shape[1] > self.longest:
            raise ShapeError(
                f"{tokens.shape[1]} tokens are more than the {self.longest} places; cut the sequences"
            )
        rows = self.drop(self.words(tokens) + self.places.weight[: tokens.shape[1]])  # (B, W, D)
        for layer, memory in zip(self.writer_layers, self._remember(context), strict=True):
            rows = layer(rows, memory, causal=True)
        return self._logits(rows)

    def begin(self, context: CaptionContext) -> DecoderState:
        """Return the state from which the sequences of this context are written."""
        return DecoderState(self._remember(context), [None] * len(self.writer_layers))

    def step(self, tokens: Tensor, state: DecoderState) -> Tensor:
        """Return the logits (B, V) of what comes after the last tokens (B,). `state` then holds
        them."""
        rows = self.words(tokens)[:, None] + self.places.weight[state.length]  # (B, 1, D)
        for place, layer in enumerate(self.writer_layers):
            rows, state.pasts[place] = layer.step(rows, state.pasts[place], state.contexts[place])
        state.length += 1
        return self._logits(rows)[:, 0]

    def _layers(self, count: int, *, crosses: bool) -> nn.ModuleList:
        own = self.settings
        return nn.ModuleList(
            CaptionerLayer(own.width, own.heads, own.feed_forward, own.dropout, crosses=crosses)
            for _ in range(count)
        )

    def _logits(self, rows: Tensor) -> Tensor:
        return F.linear(self.norm(rows), self.words.weight, self.bias)

    def _remember(self, context: CaptionContext) -> list[KeyValueCache]:
        """Return each writer layer's keys and values of what is seen and heard."""
        heard = self._heard(context)
        memories = []
        for layer in self.writer_layers:
            attention: Attention = layer.across
            memory = attention.key_values(context.features + self.kinds[0])
            if heard is not None:
                memory = memory.concat(
                    attention.key_values(heard + self.kinds[1], context.transcript_pad)
                )
            memories.append(memory)
        return memories

    def _heard(self, context: CaptionContext) -> Tensor | None:
        """Return what is said as rows (B, A, D), after layers in which they see each other."""
        tokens, pad = context.transcript, context.transcript_pad
        if tokens is None or not tokens.shape[1]:
            return None
        # (B, A, D)
        rows = self.drop(self.words(tokens) + self.speech_places.weight[: tokens.shape[1]])
        keep = None
        if pad is not None:  # every word sees itself, so that a row of padding alone has no NaN
            # (B, 1, A, A)
            keep = ~pad[:, None, None] | torch.eye(
                pad.shape[1], dtype=torch.bool, device=pad.device
            )
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
        """Return the token of a second, clipped to the video. The end of the video is in the last
        bin."""
        time_bin = int(second / duration * self.bins)
        return len(self.words) + min(max(time_bin, 0), self.bins - 1)

    def bin(self, token: int) -> int | None:
        """Return which time a token is, None for words and marks."""
        return token - len(self.words) if token >= len(self.words) else None


@dataclass(frozen=True)
class ParsedSteps:
    """The steps in a sequence, (start, end, sentence) in seconds, and what of it is not a
    step."""

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
        tokens += [
            first,
            max(first, vocabulary.time(end - width / 2, duration)),
            *vocabulary.words.encode(sentence),
        ]
    return tokens


def decode_events(
    tokens: Sequence[int], duration: float, vocabulary: TimedVocabulary
) -> ParsedSteps:
    """Return the steps of a sequence, read up to its end mark. A token of another vocabulary raises
    ShapeError."""
    if any(not 0 <= token < len(vocabulary) for token in tokens):
        raise ShapeError(
            f"a token is not one of the {len(vocabulary)} of this vocabulary; parse with the network's own"
        )
    events: list[Event] = []
    dropped: list[Rejected] = []
    for times, words in _time_word_groups(tokens, vocabulary):
        sentence = vocabulary.words.decode(words)
        reason = _malformed_reason(times, sentence)
        if len(times) > 2:
            dropped.append(
                Rejected(
                    what="step",
                    text=f"{len(times) - 2} times before {sentence!r}",
                    reason=SPARE_TIMES,
                )
            )
        if reason is None:
            first, last = times[-2:]
            events.append(
                (
                    first * duration / vocabulary.bins,
                    (last + 1) * duration / vocabulary.bins,
                    sentence,
                )
            )
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
    """Yield each run of times, as bins, with the words after it. Either may be empty, never
    both."""
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
            times, words = [time_bin], []
        else:
            times.append(time_bin)
    if times or words:
        yield times, words


@dataclass(frozen=True)
class VideoInput:
    """A video as the baseline gets it. values: (T, C) over `duration` seconds. speech: None where
    no one listens."""

    values: Matrix
    duration: float
    speech: tuple[Sentence, ...] | None = None


@dataclass(frozen=True)
class Vid2SeqSample:
    """A video to learn from: its steps in any order."""

    id: str
    video: VideoInput
    events: tuple[Event, ...]


def vid2seq_sample(sample: StepSample, said: Sequence[Sentence] | None = None) -> Vid2SeqSample:
    """Return a sample of ProcX as one of this baseline. said: its whole narration, where that is to
    be read."""
    events = tuple((*span, text) for span, text in zip(sample.spans, sample.sentences, strict=True))
    return Vid2SeqSample(
        sample.id,
        VideoInput(sample.values, sample.duration, None if said is None else tuple(said)),
        events,
    )


def train_vid2seq(
    samples: Sequence[Vid2SeqSample],
    folder: Path,
    *,
    vocabulary: TimedVocabulary,
    model: Vid2SeqSettings | None = None,
    settings: TrainSettings | None = None,
    start: Vid2Seq | None = None,
    report: Callable[[Progress], None] | None = None,
    device: str | torch.device = "cpu",
) -> Vid2Seq:
    """Return a network trained on the samples, from fresh weights or on from those of `start`, in
    evaluation mode.

    A run in `folder` that was killed is taken up. Raises ShapeError when there is nothing to train
    on.
    """
    settings = settings or TrainSettings()
    torch.manual_seed(settings.seed)  # of fresh weights
    network = start or Vid2Seq(model or Vid2SeqSettings(), len(vocabulary))
    network.to(device)
    fit(network, vid2seq_task(samples, vocabulary, network.settings), settings, folder, report)
    return network


def vid2seq_task(
    samples: Sequence[Vid2SeqSample], vocabulary: TimedVocabulary, settings: Vid2SeqSettings
) -> TrainingTask[Vid2SeqSample]:
    """Return what training learns: the next token of every video's sequence, videos of as many
    steps together."""

    def losses(network: nn.Module, chosen: Sequence[Vid2SeqSample]) -> list[Loss]:
        wanted = pack_sequences(chosen, vocabulary, settings.longest).to(
            next(network.parameters()).device
        )
        context = caption_context(network, [one.video for one in chosen], vocabulary)
        logits = network(wanted.tokens, context)
        return [caption_loss(logits, wanted.targets, wanted.token_pad, settings.label_smoothing)]

    return TrainingTask(samples, lambda one: len(one.events), lambda chosen, _: chosen, losses)


def pack_sequences(
    samples: Sequence[Vid2SeqSample], vocabulary: TimedVocabulary, longest: int
) -> CaptionTokens:
    """Return the videos' sequences as padded tensors. `cut`: how many were longer than `longest`,
    the end mark too."""
    return pack_tokens(
        [encode_events(one.events, one.video.duration, vocabulary) for one in samples], longest
    )


def caption_context(
    network: Vid2Seq, videos: Sequence[VideoInput], vocabulary: TimedVocabulary
) -> CaptionContext:
    """Return what the network writes about: videos at the network's length, and what is said where
    anyone listens."""
    settings = network.settings
    device = next(network.parameters()).device
    seen = stack_videos(
        [one.values for one in videos],
        [one.duration for one in videos],
        settings.rows,
        settings.features,
    )
    speech: tuple[Tensor, Tensor] | tuple[None, None] = (None, None)
    if any(one.speech is not None for one in videos):
        rows, pad = pad_tokens(
            [_speech_tokens(one, vocabulary)[: settings.longest_speech] for one in videos]
        )
        speech = rows.to(device), pad.to(device)
    context: CaptionContext = network.context(seen.values.to(device), *speech)
    return context


def _speech_tokens(video: VideoInput, vocabulary: TimedVocabulary) -> list[int]:
    """Return what is said as a sequence of times and words. Sentences after the video's end are
    put at its end."""
    events = [(one.span.start, one.span.end, one.text) for one in video.speech or ()]
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
    """Return the steps of each video, none where no row is known. The network should be in
    evaluation mode."""
    found: dict[int, ParsedSteps] = {
        number: ParsedSteps((), ()) for number, one in enumerate(videos) if not len(one.values)
    }
    asked = [number for number in range(len(videos)) if number not in found]
    for first in range(0, len(asked), at_once):
        part = asked[first : first + at_once]
        context = caption_context(network, [videos[number] for number in part], vocabulary)
        for number, one in zip(part, generate(network, context, search), strict=True):
            found[number] = decode_events(one.tokens, videos[number].duration, vocabulary)
    return [found[number] for number in range(len(videos))]
