"""Steps of silent videos: the network's proposals, the selected ones, and a sentence for each.

For instance, 3 proposals of a video of 20 s, for which the network counts 2 steps.
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
Letters: B videos, N queries and so proposals of a video, M captions, k steps.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from stepline.models.procx.batch import stack_videos
from stepline.models.procx.captioner import CaptionContext
from stepline.models.procx.matcher import QueryIndex, boxes_to_spans
from stepline.models.procx.model import ModelOutput, ProcX
from stepline.models.procx.settings import DescribeSettings
from stepline.models.procx.vocabulary import BEGIN_TOKEN, END_TOKEN, PAD_TOKEN, Vocabulary
from stepline.networks.device import current_device, device_of
from stepline.records import FeatureSequence, Matrix, Rejected, Span, Step

Floats = npt.NDArray[np.float64]

MIN_STEP_SECONDS = 0.05  # a proposal that is shorter inside the video is not a step
CAPTION_BATCH = 64  # captions; each holds the rows of its video, 2 MB at the paper's size
LENGTH_POWER = 2.0  # the likelihood of a caption is log P / tokens^this; PDVC's code
ROUND_DECIMALS = 3  # of seconds and scores
NO_WORDS = "the network found no words for it"
TOO_SHORT = f"it lasts less than {MIN_STEP_SECONDS:g} s inside the video"


@dataclass(frozen=True)
class Proposals:
    """The network's proposals for one video.

    Attributes:
        confidence: (N,) that a query found a step.
        boxes: (N, 2) start and end in seconds, inside the video.
        count: number of steps that the network counts.
        likelihood: (N,) of each caption, added to the confidence. None: captions are not
            ranked.
    """

    confidence: Floats
    boxes: Floats
    count: int
    likelihood: Floats | None = None


def select_proposals(proposals: Proposals, settings: DescribeSettings) -> list[int]:
    """Return the numbers of the proposals that are steps, in the order of time.

    Args:
        proposals: of one video.
        settings: how many steps, and the least confidence.
    """
    # How many: as asked, else as many as the network counts.
    limit = settings.count
    if limit is None:
        limit = max(proposals.count, settings.least)
    # Which: the most confident that are long enough.
    starts, ends = proposals.boxes.T
    is_usable = (ends - starts >= MIN_STEP_SECONDS) & (proposals.confidence >= settings.floor)
    usable = np.flatnonzero(is_usable)
    scores = proposals.confidence
    if proposals.likelihood is not None:
        scores = scores + proposals.likelihood
    queries = usable[np.argsort(-scores[usable], kind="stable")[:limit]].tolist()
    return sorted(queries, key=lambda query: (*proposals.boxes[query], query))


@dataclass(frozen=True)
class Caption:
    """A caption that the network wrote.

    Attributes:
        tokens: numbers of its tokens, without marks.
        log_probability: log P of the tokens and the end mark.
        is_complete: whether it came to its end mark.
    """

    tokens: tuple[int, ...]
    log_probability: float
    is_complete: bool


class StepwiseDecoder(Protocol):
    """A captioner that writes word by word: `Captioner` or `LstmCaptioner`."""

    longest: int

    def begin(self, context: CaptionContext) -> Any:
        """Return the state from which captions are written."""

    def step(self, tokens: Tensor, state: Any) -> Tensor:
        """Return the logits (M, V) of what comes after the tokens (M,), and add these to the
        state."""


@torch.no_grad()  # type: ignore[untyped-decorator]   # torch is untyped to mypy here
def generate(decoder: StepwiseDecoder, context: CaptionContext) -> list[Caption]:
    """Return a caption of each of the context's M queries, written greedily. A caption that
    reaches the most tokens is cut there.

    Other captions of the batch never change one. The decoder should be in evaluation mode.
    """
    count = len(context.queries)
    device = context.queries.device
    last = torch.full((count,), BEGIN_TOKEN, device=device)  # (M,)
    total = torch.zeros(count, device=device)
    ended = torch.zeros(count, dtype=torch.bool, device=device)
    tokens: list[list[int]] = []
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
        tokens.append(last.tolist())
        ended = ended | (last == END_TOKEN)
    captions = []
    for number, (log_p, has_end) in enumerate(zip(total.tolist(), ended.tolist(), strict=True)):
        # What follows an end is padding, and so a mark.
        words = [row[number] for row in tokens if row[number] not in (PAD_TOKEN, END_TOKEN)]
        captions.append(Caption(tuple(words), log_p, has_end))
    return captions


@torch.no_grad()  # type: ignore[untyped-decorator]
def propose(
    model: ProcX, values: Sequence[Matrix], durations: Sequence[float]
) -> tuple[ModelOutput, list[Proposals]]:
    """Return the network's output for videos, and the proposals of each.

    Args:
        model: in evaluation mode.
        values: feature rows (T, C) of each video.
        durations: seconds of each video.

    Raises ShapeError for features of another width.
    """
    batch = stack_videos(values, durations, model.settings.rows, model.settings.features)
    with current_device().autocast():
        output = model(batch.to(device_of(model)))

    # of the last decoder layer
    logits = output.predictions.logits[-1].float()  # (B, N)
    boxes = output.predictions.boxes[-1].float()
    spans = boxes_to_spans(boxes).clamp(0.0, 1.0)  # (B, N, 2)
    counts = output.predictions.counts[-1].argmax(dim=1)  # (B,)
    confidences = logits.sigmoid().double().cpu().numpy()
    fractions = spans.double().cpu().numpy()
    videos = []
    for row, duration in enumerate(durations):
        seconds = fractions[row] * duration
        videos.append(Proposals(confidences[row], seconds, int(counts[row])))
    return output, videos


@torch.no_grad()  # type: ignore[untyped-decorator]
def generate_captions(
    model: ProcX, output: ModelOutput, queries: Sequence[Sequence[int]]
) -> list[list[Caption]]:
    """Return the captions of each video's queries, in their order.

    Args:
        model: in evaluation mode.
        output: of the model, for B videos.
        queries: numbers of the queries of each video.
    """
    pairs = [(video, query) for video, row in enumerate(queries) for query in row]
    captions: list[Caption] = []
    for first in range(0, len(pairs), CAPTION_BATCH):
        part = torch.tensor(pairs[first : first + CAPTION_BATCH], device=output.queries.device)
        video, query = part.unbind(1)  # (M,) each
        with current_device().autocast():
            context = model.caption_context(output, QueryIndex.last_layer(video, query))
            captions += generate(model.captioner, context)
    remaining = iter(captions)
    return [[next(remaining) for _ in row] for row in queries]


def caption_likelihood(captions: Sequence[Caption], weight: float) -> Floats:
    """Return weight x log P / tokens^2 of captions, (N,), which PDVC adds to the confidence of
    their queries."""
    total = np.array([caption.log_probability for caption in captions], dtype=np.float64)
    # the end mark counts as a token
    lengths = [max(len(caption.tokens) + caption.is_complete, 1) for caption in captions]
    return weight * total / np.array(lengths, dtype=np.float64) ** LENGTH_POWER


@dataclass(frozen=True)
class VideoToDescribe:
    """A video whose steps are asked for.

    Attributes:
        values: (T, C) feature rows, T may be 0.
        feature_seconds: that the rows cover.
        video_seconds: of the video, after which no step ends.
    """

    values: Matrix
    feature_seconds: float
    video_seconds: float


@dataclass(frozen=True)
class Description:
    """Steps in the order of time, and in `dropped` the selected proposals that could not become
    steps."""

    steps: tuple[Step, ...] = ()
    dropped: tuple[Rejected, ...] = ()


def describe(
    model: ProcX,
    vocabulary: Vocabulary,
    features: FeatureSequence,
    settings: DescribeSettings | None = None,
    *,
    duration: float | None = None,
) -> Description:
    """Return the steps of one video, none without a feature row.

    Args:
        model: in evaluation mode.
        vocabulary: of the model's captions.
        features: of the video.
        settings: which proposals are steps.
        duration: seconds of the video. None: those that the features cover.
    """
    if not len(features.values):
        return Description()
    # The network saw the features' seconds, and no step goes past the video's own.
    seconds = features.duration
    end = min(seconds, duration) if duration is not None else seconds
    video = VideoToDescribe(features.values, seconds, end)
    (description,) = describe_many(model, vocabulary, [video], settings)
    return description


def describe_many(
    model: ProcX,
    vocabulary: Vocabulary,
    videos: Sequence[VideoToDescribe],
    settings: DescribeSettings | None = None,
) -> list[Description]:
    """Return the steps of each video, in the order of the videos. None changes another.

    Args:
        model: in evaluation mode.
        vocabulary: of the model's captions.
        videos: with their features.
        settings: which proposals are steps, and how many videos are looked at together.

    Raises ShapeError for features of another width.
    """
    settings = settings or DescribeSettings()
    descriptions: list[Description] = []
    for first in range(0, len(videos), settings.batch):
        part = videos[first : first + settings.batch]
        descriptions += _describe_batch(model, vocabulary, part, settings)
    return descriptions


def _describe_batch(
    model: ProcX,
    vocabulary: Vocabulary,
    videos: Sequence[VideoToDescribe],
    settings: DescribeSettings,
) -> Iterator[Description]:
    output, proposals = propose(
        model, [video.values for video in videos], [video.feature_seconds for video in videos]
    )
    if settings.caption_weight:
        all_queries = [range(len(video.confidence)) for video in proposals]
        for number, captions in enumerate(generate_captions(model, output, all_queries)):
            likelihood = caption_likelihood(captions, settings.caption_weight)
            proposals[number] = replace(proposals[number], likelihood=likelihood)
    queries = []
    for video, own_proposals in zip(videos, proposals, strict=True):
        queries.append(select_proposals(own_proposals, settings) if len(video.values) else [])
    sentences = generate_captions(model, output, queries)
    for video, own, selected, captions in zip(videos, proposals, queries, sentences, strict=True):
        confidence = own.confidence[selected]  # (k,)
        spans = own.boxes[selected]  # (k, 2)
        yield _description(video, confidence, spans, vocabulary, captions)


def _description(
    video: VideoToDescribe,
    confidence: Floats,
    spans: Floats,
    vocabulary: Vocabulary,
    captions: Sequence[Caption],
) -> Description:
    """Return the selected proposals of a video as steps in the order of time, numbered from 1.

    Args:
        video: that they are of.
        confidence: (k,) of the proposals.
        spans: (k, 2) start and end in seconds.
        vocabulary: of the captions.
        captions: k of them.
    """
    steps: list[Step] = []
    dropped: list[Rejected] = []
    rows = zip(spans.tolist(), confidence.tolist(), captions, strict=True)
    for (start, end), score, caption in rows:
        text = vocabulary.decode(caption.tokens)
        # Rounded first, so that the lengths below are those that are written.
        start = round(start, ROUND_DECIMALS)
        end = round(min(end, video.video_seconds), ROUND_DECIMALS)
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
