"""The steps of silent videos: the network's proposals, those of them that are steps, and a sentence
for each.

For instance, 3 proposals of a video of 20 s. The logits `counts` = 0 1 3 are greatest at 2 steps.
So `select_proposals` takes the 2 most confident proposals and sorts them by time:

    query   confidence   box, s
    0       0.9          10-14        the second step
    1       0.8          2-6          the first step
    2       0.3          3-7          no step           select_proposals -> [1, 0]

In code:

    description = describe(model, vocabulary, features)         # one video
    description.steps                                           # in the order of time

Source: ProcX section 5 and PDVC's code: the most confident proposals, as many as the network
counts. A caption is written greedily.
Letters: B videos, N queries and so proposals of a video, C counts, M captions, k steps.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from stepline.errors import SettingsError, ShapeError
from stepline.models.procx.batch import stack_videos
from stepline.models.procx.captioner import CaptionContext
from stepline.models.procx.dataset import speech_window, timed_texts
from stepline.models.procx.matcher import QueryIndex, boxes_to_spans
from stepline.models.procx.model import ModelOutput, ProcX
from stepline.models.procx.settings import DescribeSettings
from stepline.models.procx.vocabulary import (
    BEGIN_TOKEN,
    END_TOKEN,
    PAD_TOKEN,
    Vocabulary,
    pad_tokens,
)
from stepline.networks.device import current_device, device_of
from stepline.records import FeatureSequence, Matrix, Rejected, Sentence, Span, Step

Floats = npt.NDArray[np.float64]

MIN_STEP_SECONDS = 0.05  # a proposal that is shorter inside the video is not a step
CAPTION_BATCH = 64  # captions; each holds the rows of its video, 2 MB at the paper's size
LENGTH_POWER = 2.0  # the likelihood of a caption is log P / tokens^this; PDVC's code
ROUND_DECIMALS = 3  # of seconds and scores
NO_WORDS = "the network found no words for it"
TOO_SHORT = f"it lasts less than {MIN_STEP_SECONDS:g} s inside the video"


@dataclass(frozen=True)
class Proposals:
    """What the network says of one video of `duration` seconds.

    confidence: (N,).
    boxes: (N, 2) start and end in seconds, inside it.
    counts: (C,) logits of 0 ... C - 1 steps.
    likelihood: (N,) of each caption, to be added to the confidence. None: captions are not ranked.
    """

    duration: float
    confidence: Floats
    boxes: Floats
    counts: Floats
    likelihood: Floats | None = None

    @property
    def scores(self) -> Floats:
        """What proposals are ranked by, (N,)."""
        if self.likelihood is None:
            return self.confidence
        return self.confidence + self.likelihood

    @property
    def count(self) -> int:
        """How many steps the network counts."""
        return int(self.counts.argmax())

    def usable(self, floor: float) -> npt.NDArray[np.intp]:
        """Return the numbers of proposals that are long enough and have a confidence of `floor`."""
        starts, ends = self.boxes.T
        long_enough = ends - starts >= MIN_STEP_SECONDS
        return np.flatnonzero(long_enough & (self.confidence >= floor))


def select_proposals(proposals: Proposals, settings: DescribeSettings) -> list[int]:
    """Return the numbers of the proposals that are steps, in the order of time."""
    # How many: as asked, else as many as the network counts.
    limit = settings.count
    if limit is None:
        limit = max(proposals.count, settings.least)
    usable = proposals.usable(settings.floor)
    # Which: the most confident.
    rows = np.argsort(-proposals.scores[usable], kind="stable")[:limit]
    queries = usable[rows].tolist()
    return sorted(queries, key=lambda query: (*proposals.boxes[query], query))


class StepwiseDecoder(Protocol):
    """A captioner that can write word by word."""

    longest: int

    def begin(self, context: CaptionContext) -> Any:
        """Return the state from which captions are written."""

    def step(self, tokens: Tensor, state: Any) -> Tensor:
        """Return the logits (M, V) of what comes after the tokens (M,). `state` then holds them."""


@dataclass(frozen=True)
class Caption:
    """A caption: its tokens without marks, its log P with the end mark, and whether it came to its
    end."""

    tokens: tuple[int, ...]
    log_probability: float
    ended: bool


@torch.no_grad()  # type: ignore[untyped-decorator]   # torch is untyped to mypy here
def generate(decoder: StepwiseDecoder, context: CaptionContext) -> list[Caption]:
    """Return the caption of the most likely next tokens for each of the context's M queries. One
    that reaches the most tokens is cut there.

    Other captions of the batch never change one. The decoder should be at rest (eval), or dropout
    speaks too.
    """
    count = len(context.queries)
    device = context.queries.device
    last = torch.full((count,), BEGIN_TOKEN, device=device)  # (M,)
    total = torch.zeros(count, device=device)
    ended = torch.zeros(count, dtype=torch.bool, device=device)
    tokens: list[Tensor] = []
    state = decoder.begin(context)
    # Marks other than the end are never said, nor is the end before any word.
    impossible = [PAD_TOKEN, BEGIN_TOKEN, END_TOKEN]
    while len(tokens) < decoder.longest and not bool(ended.all()):
        scores = decoder.step(last, state).float().log_softmax(dim=-1)  # (M, V)
        scores[:, impossible] = float("-inf")
        impossible = [PAD_TOKEN, BEGIN_TOKEN]
        best, last = scores.max(dim=1)  # (M,) each
        # A caption that has ended gains neither words nor log P.
        total = torch.where(ended, total, total + best)
        last = torch.where(ended, PAD_TOKEN, last)
        tokens.append(last)
        ended = ended | (last == END_TOKEN)

    captions = []
    # What follows an end is padding, and so a mark.
    rows = torch.stack(tokens, dim=1).tolist() if tokens else []
    for row, log_p, has_end in zip(rows, total.tolist(), ended.tolist(), strict=True):
        words = tuple(token for token in row if token not in (PAD_TOKEN, END_TOKEN))
        captions.append(Caption(words, log_p, has_end))
    return captions


@dataclass(frozen=True)
class ProposalBatch:
    """What the network made of B videos, and its proposals for each."""

    output: ModelOutput
    videos: tuple[Proposals, ...]


@torch.no_grad()  # type: ignore[untyped-decorator]
def propose(model: ProcX, values: Sequence[Matrix], durations: Sequence[float]) -> ProposalBatch:
    """Return the proposals for videos of features (T, C) and of `durations` seconds. The model
    should be at rest (eval).

    Raises ShapeError for features of another width.
    """
    batch = stack_videos(values, durations, model.settings.rows, model.settings.features)
    with current_device().autocast():
        output = model(batch.to(device_of(model)))

    # of the last decoder layer
    logits = output.predictions.logits[-1].float()  # (B, N)
    boxes = output.predictions.boxes[-1].float()
    spans = boxes_to_spans(boxes).clamp(0.0, 1.0)  # (B, N, 2)
    tensors = (logits.sigmoid(), spans, output.predictions.counts[-1])
    arrays = [tensor.double().cpu().numpy() for tensor in tensors]
    videos = []
    for duration, confidence, fractions, counts in zip(durations, *arrays, strict=True):
        videos.append(Proposals(duration, confidence, fractions * duration, counts))
    return ProposalBatch(output, tuple(videos))


@torch.no_grad()  # type: ignore[untyped-decorator]
def generate_captions(
    model: ProcX,
    proposals: ProposalBatch,
    queries: Sequence[Sequence[int]],
    *,
    speech: Sequence[Sequence[str]] | None = None,
    vocabulary: Vocabulary | None = None,
) -> list[list[Caption]]:
    """Return the captions of each video's `queries`, in their order.

    speech: what is said around each query, with the vocabulary that reads it. None: speech is not
    read.
    """
    device = proposals.output.queries.device
    max_tokens = model.settings.captioner.longest_transcript

    # all queries of all videos, a batch at a time
    pairs = [(video, query) for video, row in enumerate(queries) for query in row]
    texts = [text for row in speech or () for text in row]
    captions: list[Caption] = []
    for first in range(0, len(pairs), CAPTION_BATCH):
        part = slice(first, first + CAPTION_BATCH)
        video, query = torch.tensor(pairs[part], device=device).unbind(1)  # (M,) each
        tokens: Tensor | None = None
        pad: Tensor | None = None
        if speech is not None and vocabulary is not None:
            transcripts = [vocabulary.encode(text)[:max_tokens] for text in texts[part]]
            tokens, pad = pad_tokens(transcripts)  # (M, A) each
            tokens = tokens.to(device)
            pad = pad.to(device)
        with current_device().autocast():
            index = QueryIndex.last_layer(video, query)
            context = model.context(proposals.output, index, tokens, pad)
            captions += generate(model.captioner, context)

    # by video again
    rest = iter(captions)
    return [[next(rest) for _ in row] for row in queries]


def caption_likelihood(captions: Sequence[Caption], weight: float) -> Floats:
    """Return weight x log P / tokens^2 of captions, (N,), which PDVC adds to the confidence of their
    queries."""
    total = np.array([caption.log_probability for caption in captions], dtype=np.float64)
    # the end mark counts as a token
    lengths = [max(len(caption.tokens) + caption.ended, 1) for caption in captions]
    return weight * total / np.array(lengths, dtype=np.float64) ** LENGTH_POWER


@dataclass(frozen=True)
class VideoToDescribe:
    """A video's features (T, C), T may be 0. They cover `seconds`, the video has `end` seconds.

    speech: the sentences said in it, for a network that reads them.
    """

    values: Matrix
    seconds: float
    end: float
    speech: tuple[Sentence, ...] = ()

    def __post_init__(self) -> None:
        if not (self.seconds > 0 and self.end > 0) or not np.isfinite(self.values).all():
            length = f"{self.seconds} s of features for {self.end} s"
            raise ShapeError(
                f"a video to describe needs finite features and a length above 0, not {length}"
            )


@dataclass(frozen=True)
class Description:
    """Steps in the order of time, and proposals that were selected but could not become one."""

    steps: tuple[Step, ...] = ()
    dropped: tuple[Rejected, ...] = ()


def describe(
    model: ProcX,
    vocabulary: Vocabulary,
    features: FeatureSequence,
    settings: DescribeSettings | None = None,
    *,
    duration: float | None = None,
    speech: Sequence[Sentence] = (),
    around: float = 10.0,
) -> Description:
    """Return the steps of one video, without a feature row none.

    duration: its seconds, None: as the features say.
    speech, around: what is said, and how many seconds around a step are read. They are used only
    where `settings.speech`.
    """
    if not len(features.values):
        return Description()
    # The network saw the features' seconds, and no step goes past the video's own.
    seconds = features.duration
    end = min(seconds, duration) if duration is not None else seconds
    video = VideoToDescribe(features.values, seconds, end, tuple(speech))
    (description,) = describe_many(model, vocabulary, [video], settings, around=around)
    return description


def describe_many(
    model: ProcX,
    vocabulary: Vocabulary,
    videos: Sequence[VideoToDescribe],
    settings: DescribeSettings | None = None,
    *,
    around: float = 10.0,
) -> list[Description]:
    """Return what each video shows, in their order. None changes another.

    The model should be at rest (eval).
    Raises ShapeError for features of another width, SettingsError where the settings ask a network
    to read speech that cannot.
    """
    settings = settings or DescribeSettings()
    if settings.speech and model.settings.captioner.kind == "lstm":
        raise SettingsError("speech=true: PDVC's captioner reads no speech; leave it out")
    descriptions: list[Description] = []
    for first in range(0, len(videos), settings.batch):
        part = videos[first : first + settings.batch]
        descriptions += _describe_batch(model, vocabulary, part, settings, around)
    return descriptions


def _describe_batch(
    model: ProcX,
    vocabulary: Vocabulary,
    videos: Sequence[VideoToDescribe],
    settings: DescribeSettings,
    around: float,
) -> Iterator[Description]:
    batch = propose(model, [video.values for video in videos], [video.seconds for video in videos])

    def write_captions(queries: Sequence[Sequence[int]]) -> list[list[Caption]]:
        speech: list[list[str]] | None = None
        if settings.speech:
            speech = []
            for video, proposals, row in zip(videos, batch.videos, queries, strict=True):
                texts = timed_texts(video.speech)
                boxes = proposals.boxes.tolist()
                speech.append([speech_window(texts, around, *boxes[query]) for query in row])
        captions: list[list[Caption]] = generate_captions(
            model, batch, queries, speech=speech, vocabulary=vocabulary
        )
        return captions

    # which of the proposals are steps
    ranked = list(batch.videos)
    if settings.caption_weight:
        rows = write_captions([range(len(video.confidence)) for video in batch.videos])
        for number, captions in enumerate(rows):
            likelihood = caption_likelihood(captions, settings.caption_weight)
            ranked[number] = replace(ranked[number], likelihood=likelihood)
    queries = []
    for video, proposals in zip(videos, ranked, strict=True):
        queries.append(select_proposals(proposals, settings) if len(video.values) else [])

    # a sentence for each
    sentences = write_captions(queries)
    for video, proposals, steps, captions in zip(videos, ranked, queries, sentences, strict=True):
        confidence = proposals.confidence[steps]  # (k,)
        spans = proposals.boxes[steps]  # (k, 2)
        yield _description(video, confidence, spans, vocabulary, captions)


def _description(
    video: VideoToDescribe,
    confidence: Floats,
    spans: Floats,
    vocabulary: Vocabulary,
    captions: Sequence[Caption],
) -> Description:
    """Return the selected proposals of a video as steps in the order of time, numbered from 1.
    confidence: (k,)."""
    steps: list[Step] = []
    dropped: list[Rejected] = []
    rows = zip(spans.tolist(), confidence.tolist(), captions, strict=True)
    for (start, end), score, caption in rows:
        text = vocabulary.decode(caption.tokens)
        # Rounded first, so that the lengths below are those that are written.
        start = round(start, ROUND_DECIMALS)
        end = round(min(end, video.end), ROUND_DECIMALS)
        if not text:
            dropped.append(Rejected(what="step", text=text, reason=NO_WORDS))
            continue
        if end - start < MIN_STEP_SECONDS:
            dropped.append(Rejected(what="step", text=text, reason=TOO_SHORT))
            continue
        span = Span(start, end)
        at = round(span.center, ROUND_DECIMALS)
        score = round(score, ROUND_DECIMALS)
        step = Step(id="0", text=text, spans=(span,), at=at, status="shown", score=score)
        steps.append(step)
    steps.sort(key=lambda step: (step.spans[0].start, step.spans[0].end))
    # Numbered last, so that dropped proposals leave no gap.
    numbered = []
    for number, step in enumerate(steps, start=1):
        numbered.append(step.model_copy(update={"id": str(number)}))
    return Description(tuple(numbered), tuple(dropped))
