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
    """Steps that the network proposes for one video, one per decoder query.

    Attributes:
        confidence: (N,) confidence that each of the N queries found a step.
        boxes: (N, 2) start and end in seconds, inside the video.
        step_count: number of steps in the video, as predicted by the network.
        caption_log_likelihood: (N,) weighted log likelihood of each query's caption, added to the confidence.
            None: captions do not affect the ranking.
    """

    confidence: Floats
    boxes: Floats
    step_count: int
    caption_log_likelihood: Floats | None = None


def select_proposals(proposals: Proposals, settings: DescribeSettings) -> list[int]:
    """Return the indices of the proposals that become steps, in order of time.

    Args:
        proposals: proposals for one video.
        settings: `count`, `least` and `floor`: number of steps and least confidence.
    """
    # How many: as asked, else as many as the network counts.
    limit = settings.count
    if limit is None:
        limit = max(proposals.step_count, settings.least)
    # Which: the most confident that are long enough.
    starts, ends = proposals.boxes.T
    is_usable = (ends - starts >= MIN_STEP_SECONDS) & (proposals.confidence >= settings.floor)
    usable = np.flatnonzero(is_usable)
    scores = proposals.confidence
    if proposals.caption_log_likelihood is not None:
        scores = scores + proposals.caption_log_likelihood
    queries = usable[np.argsort(-scores[usable], kind="stable")[:limit]].tolist()
    return sorted(queries, key=lambda query: (*proposals.boxes[query], query))


@dataclass(frozen=True)
class Caption:
    """A generated caption.

    Attributes:
        tokens: token numbers, without begin and end mark.
        log_probability: log probability of the tokens.
    """

    tokens: tuple[int, ...]
    log_probability: float


class StepwiseDecoder(Protocol):
    """A captioner that generates captions word by word: `Captioner` or `LstmCaptioner`. `longest`
    is the largest number of tokens."""

    longest: int

    def begin(self, context: CaptionContext) -> Any:
        """Return the decoding state of the M captions of a context, before the first word."""

    def step(self, tokens: Tensor, state: Any) -> Tensor:
        """Return the logits (M, V) of the next token, and update the state with the given tokens.

        Args:
            tokens: (M,) number of the latest token of each caption.
            state: changed in place.
        """


@torch.no_grad()  # type: ignore[untyped-decorator]   # torch is untyped to mypy here
def generate(decoder: StepwiseDecoder, context: CaptionContext) -> list[Caption]:
    """Return a greedily decoded caption for each of the M queries of a context.

    A caption is cut at the largest number of tokens. It does not depend on the other captions.

    Args:
        decoder: captioner in evaluation mode.
        context: queries and video features of the captions.
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
        scores = scores.index_fill(1, torch.tensor(impossible, device=device), float("-inf"))
        impossible = [PAD_TOKEN, BEGIN_TOKEN]
        best, last = scores.max(dim=1)  # (M,) each
        # A caption gains neither words nor log P with its end and after it.
        ended = ended | (last == END_TOKEN)
        total = torch.where(ended, total, total + best)
        tokens.append(torch.where(ended, PAD_TOKEN, last).tolist())
    captions = []
    for number, log_p in enumerate(total.tolist()):
        words = [row[number] for row in tokens if row[number] != PAD_TOKEN]
        captions.append(Caption(tuple(words), log_p))
    return captions


@torch.no_grad()  # type: ignore[untyped-decorator]
def propose(
    model: ProcX, values: Sequence[Matrix], durations: Sequence[float]
) -> tuple[ModelOutput, list[Proposals]]:
    """Return the network's output for a batch of videos, and the proposals for each video.

    Args:
        model: network in evaluation mode.
        values: (T, C) feature rows of each video.
        durations: length of each video in seconds.

    Raises ShapeError for features of another width than the network's.
    """
    batch = stack_videos(values, durations, model.settings.rows, model.settings.features)
    with current_device().autocast():
        output = model(batch.to(device_of(model)))

    # of the last decoder layer
    logits = output.predictions.logits[-1].float()  # (B, N)
    boxes = output.predictions.boxes[-1].float()
    spans = boxes_to_spans(boxes).clamp(0.0, 1.0)  # (B, N, 2)
    counts = output.predictions.counts[-1].argmax(dim=1)  # (B,)
    confidences = logits.sigmoid().cpu().double().numpy()
    fractions = spans.cpu().double().numpy()
    videos = []
    for row, duration in enumerate(durations):
        seconds = fractions[row] * duration
        videos.append(Proposals(confidences[row], seconds, int(counts[row])))
    return output, videos


@torch.no_grad()  # type: ignore[untyped-decorator]
def generate_captions(
    model: ProcX, output: ModelOutput, queries: Sequence[Sequence[int]]
) -> list[list[Caption]]:
    """Return the captions of selected queries of each video, in the given order.

    Args:
        model: network in evaluation mode.
        output: output of the network for the videos.
        queries: numbers of the selected queries of each video.
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


def compute_caption_likelihood(captions: Sequence[Caption], weight: float) -> Floats:
    """Return weight x log P / tokens^2 for each of N captions, (N,). PDVC adds it to the
    confidence.

    Args:
        captions: generated captions.
        weight: factor of the log probability.
    """
    total = np.array([caption.log_probability for caption in captions], dtype=np.float64)
    lengths = [max(len(caption.tokens), 1) for caption in captions]
    return weight * total / np.array(lengths, dtype=np.float64) ** LENGTH_POWER


@dataclass(frozen=True)
class VideoToDescribe:
    """Features and length of a video whose steps are to be predicted.

    Attributes:
        values: (T, C) feature rows. T may be 0.
        feature_seconds: seconds of video that the rows cover.
        video_seconds: length of the video in seconds. Steps are cut there.
    """

    values: Matrix
    feature_seconds: float
    video_seconds: float


@dataclass(frozen=True)
class Description:
    """Predicted steps of a video.

    Attributes:
        steps: steps in order of time.
        dropped: selected proposals that could not become steps, with the reasons.
    """

    steps: tuple[Step, ...] = ()
    dropped: tuple[Rejected, ...] = ()


def describe(
    model: ProcX,
    vocabulary: Vocabulary,
    features: FeatureSequence,
    settings: DescribeSettings = DescribeSettings(),
    *,
    duration: float | None = None,
) -> Description:
    """Return the predicted steps of one video. A video without feature rows has none.

    Args:
        model: network in evaluation mode.
        vocabulary: tokens of the network's captions.
        features: feature rows of the video.
        settings: rules that decide which proposals become steps.
        duration: length of the video in seconds. None: the length that the features cover.
    """
    if not len(features.values):
        return Description()
    # The network saw the features' seconds, and no step goes past the video's own.
    seconds = features.duration
    end = min(seconds, duration) if duration is not None else seconds
    video = VideoToDescribe(features.values, seconds, end)
    (description,) = describe_videos(model, vocabulary, [video], settings)
    return description


def describe_videos(
    model: ProcX,
    vocabulary: Vocabulary,
    videos: Sequence[VideoToDescribe],
    settings: DescribeSettings = DescribeSettings(),
) -> list[Description]:
    """Return the predicted steps of each video. A video's steps do not depend on the other videos.

    Args:
        model: network in evaluation mode.
        vocabulary: tokens of the network's captions.
        videos: features and lengths of the videos.
        settings: rules that decide which proposals become steps, and the batch size.

    Raises ShapeError for features of another width than the network's.
    """
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
            likelihood = compute_caption_likelihood(captions, settings.caption_weight)
            proposals[number] = replace(proposals[number], caption_log_likelihood=likelihood)
    queries = [
        select_proposals(own, settings) if len(video.values) else []
        for video, own in zip(videos, proposals, strict=True)
    ]
    sentences = generate_captions(model, output, queries)
    for video, own, selected, captions in zip(videos, proposals, queries, sentences, strict=True):
        yield _description(
            video, own.confidence[selected], own.boxes[selected], vocabulary, captions
        )


def _description(
    video: VideoToDescribe,
    confidence: Floats,
    spans: Floats,
    vocabulary: Vocabulary,
    captions: Sequence[Caption],
) -> Description:
    """Return the selected proposals of a video as steps in order of time, numbered from 1.

    Args:
        video: the video.
        confidence: (k,) confidence of each selected proposal.
        spans: (k, 2) start and end of each proposal in seconds.
        vocabulary: tokens of the captions.
        captions: caption of each proposal.
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
        step = Step(
            id="0", text=text, spans=(span,), at=at, status="seen", basis="network", score=score
        )
        steps.append(step)
    steps.sort(key=lambda step: (step.spans[0].start, step.spans[0].end))
    # Numbered last, so that dropped proposals leave no gap.
    numbered = (step.model_copy(update={"id": str(n)}) for n, step in enumerate(steps, start=1))
    return Description(tuple(numbered), tuple(dropped))
