"""The steps of silent videos: the network's proposals, those of them that are steps, and a sentence
for each.

For instance, 3 proposals of a video of 20 s. The logits `counts` = 0 1 3 are greatest at 2 steps.
So `place_steps` takes the 2 most confident proposals and sorts them by time:

    query   confidence   box, s
    0       0.9          10-14        the second step
    1       0.8          2-6          the first step
    2       0.3          3-7          no step           place_steps -> [1, 0], [[2, 6], [10, 14]]

In code:

    description = describe(model, vocabulary, features)         # one video
    description.steps                                           # in the order of time

Source: ProcX section 5 and PDVC's code: the most confident proposals, as many as the network
counts. Beyond the paper: the most confident set of proposals that do not overlap.
Letters: B videos, N queries and so proposals of a video, C counts, M captions, k steps.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from stepline.errors import SettingsError, ShapeError
from stepline.models.procx.batch import stack_videos
from stepline.models.procx.beam_search import Caption, generate
from stepline.models.procx.dataset import speech_window, timed_texts
from stepline.models.procx.matcher import QueryIndex, boxes_to_spans
from stepline.models.procx.model import ProcX
from stepline.models.procx.output import ModelOutput
from stepline.models.procx.settings import DescribeSettings, SearchSettings
from stepline.models.procx.vocabulary import Vocabulary, pad_tokens
from stepline.networks.device import current_device, device_of
from stepline.records import FeatureSequence, Matrix, Rejected, Sentence, Span, Step

Floats = npt.NDArray[np.float64]

MIN_STEP_SECONDS = 0.05  # a proposal that is shorter inside the video is not a step
CAPTION_BATCH = 64  # captions; each holds the rows of its video, 2 MB at the paper's size
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


# (number of the video, its proposals) -> which of them are steps, and their (k, 2) seconds
ProposalSelector: TypeAlias = Callable[[int, Proposals], tuple[list[int], Floats]]


def place_steps(proposals: Proposals, settings: DescribeSettings) -> tuple[list[int], Floats]:
    """Return the numbers of the proposals that are steps, in the order of time, and where each is,
    (k, 2) seconds."""
    queries = select_proposals(proposals, settings)
    spans = proposals.boxes[queries]
    if settings.choose == "apart":
        spans = cut_overlaps(spans)
    return queries, spans


def select_proposals(proposals: Proposals, settings: DescribeSettings) -> list[int]:
    """Return the numbers of the proposals that are steps, in the order of time."""
    # How many: as asked, else as many as the network counts.
    limit = settings.count
    if limit is None:
        limit = max(proposals.count, settings.least)
    usable = proposals.usable(settings.floor)
    scores = proposals.scores[usable]
    # Which: the most confident, or the best set without overlap.
    if settings.choose == "surest":
        rows = np.argsort(-scores, kind="stable")[:limit].tolist()
    else:
        boxes = proposals.boxes[usable]
        rows = select_non_overlapping(boxes, scores, limit, settings.overlap)
    queries = usable[rows].tolist()
    return sorted(queries, key=lambda query: (*proposals.boxes[query], query))


def select_non_overlapping(
    boxes: Floats, scores: Floats, limit: int, overlap: float = 0.0
) -> list[int]:
    """Return which at most `limit` intervals (N, 2), no two overlapping, have the greatest sum of
    scores (N,).

    overlap: fraction of the shorter of two neighbours in which they may. One that scores 0 or less
    is never selected.
    Source: weighted interval scheduling with a limit (Kleinberg and Tardos 2006, section 6.1). It
    is not in the paper.
    """
    by_end = np.lexsort((boxes[:, 0], boxes[:, 1]))
    order = by_end[scores[by_end] > 0]
    limit = min(limit, len(order))
    if not limit:
        return []
    starts, ends = boxes[order].T
    lengths = ends - starts

    # which interval may come right before which: (N, N), row = the earlier one
    overlaps = ends[:, None] - starts
    shorter = np.minimum(lengths[:, None], lengths)
    # The tolerance lets intervals touch whatever rounding made of them.
    is_apart = overlaps <= overlap * shorter + 1e-9
    before = np.triu(is_apart, 1)
    before &= starts[:, None] <= starts  # an interval inside another does not come before it

    # best[k]: the greatest sum of k intervals that end with each one. parents: the one before it
    best = np.full((limit + 1, len(order)), -np.inf)
    best[1] = scores[order]
    parents = np.zeros(best.shape, dtype=np.int64)
    for count in range(2, limit + 1):
        sums = best[count - 1][:, None]
        totals = np.where(before, sums, -np.inf)  # (N, N)
        parents[count] = totals.argmax(axis=0)
        best[count] = totals.max(axis=0) + best[1]

    # walk back from the last interval of the best set
    count, last = divmod(int(best.argmax()), len(order))
    rows = [last]
    for size in range(count, 1, -1):
        parent = parents[size, rows[-1]]
        rows.append(int(parent))
    return [int(order[row]) for row in reversed(rows)]


def cut_overlaps(spans: Floats) -> Floats:
    """Return spans (k, 2) in the order of time, those that overlap the next one cut in the middle
    of the overlap."""
    cut: Floats = spans.copy()
    for first in range(len(cut) - 1):
        end = cut[first, 1]
        next_start = cut[first + 1, 0]
        if end > next_start:
            middle = (end + next_start) / 2
            cut[first, 1] = middle
            cut[first + 1, 0] = middle
    return cut


@dataclass(frozen=True)
class ProposalBatch:
    """What the network made of B videos, and its proposals for each."""

    output: ModelOutput
    videos: tuple[Proposals, ...]


@torch.no_grad()  # type: ignore[untyped-decorator]   # torch is untyped to mypy here
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
    search: SearchSettings,
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
            captions += generate(model.captioner, context, search)

    # by video again
    rest = iter(captions)
    return [[next(rest) for _ in row] for row in queries]


def with_likelihood(
    model: ProcX,
    proposals: ProposalBatch,
    settings: DescribeSettings,
    speech: Sequence[Sequence[str]] | None = None,
    vocabulary: Vocabulary | None = None,
) -> ProposalBatch:
    """Return the proposals with the likelihood of every query's greedy caption, as PDVC ranks them,
    unchanged where `caption_weight` is 0.

    speech: as in `generate_captions`, for all queries. Source: PDVC: weight x log P / tokens^2,
    added to confidence.
    """
    if not settings.caption_weight:
        return proposals
    queries = _all_queries(proposals)
    # Every query gets its greedy caption, whatever search writes the final ones.
    greedy = settings.search.model_copy(update={"beam": 1})
    rows = generate_captions(
        model, proposals, queries, greedy, speech=speech, vocabulary=vocabulary
    )
    videos = []
    for video, captions in zip(proposals.videos, rows, strict=True):
        lengths = [max(caption.length, 1) for caption in captions]
        totals = [caption.log_probability for caption in captions]
        total = np.array(totals, dtype=np.float64)  # (N,)
        divisor = np.array(lengths, dtype=np.float64) ** settings.caption_power
        likelihood = settings.caption_weight * total / divisor  # (N,)
        videos.append(replace(video, likelihood=likelihood))
    return replace(proposals, videos=tuple(videos))


def _all_queries(proposals: ProposalBatch) -> list[range]:
    return [range(len(video.confidence)) for video in proposals.videos]


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
    selector: ProposalSelector | None = None,
) -> list[Description]:
    """Return what each video shows, in their order. None changes another.

    selector: which queries of a video are steps, instead of what `settings` say. The model should
    be at rest (eval).
    Raises ShapeError for features of another width, SettingsError where the settings ask a network
    to read speech that cannot.
    """
    settings = settings or DescribeSettings()
    return StepDescriber(model, vocabulary, settings, around, selector).describe(videos)


@dataclass(frozen=True)
class StepDescriber:
    """A network with all that decides what it says, see `describe_many`."""

    model: ProcX
    vocabulary: Vocabulary
    settings: DescribeSettings
    around: float = 10.0
    selector: ProposalSelector | None = None

    def __post_init__(self) -> None:
        if self.settings.speech and self.model.settings.captioner.kind == "lstm":
            raise SettingsError("speech=true: PDVC's captioner reads no speech; leave it out")

    def describe(self, videos: Sequence[VideoToDescribe]) -> list[Description]:
        """Return what each video shows, in their order."""
        descriptions: list[Description] = []
        for first in range(0, len(videos), self.settings.batch):
            batch = videos[first : first + self.settings.batch]
            descriptions += self._describe_batch(batch, first)
        return descriptions

    def _describe_batch(self, videos: Sequence[VideoToDescribe], first: int) -> list[Description]:
        """Return what the videos of one batch show. The first of them is number `first`."""
        # what the network proposes, ranked as the settings say
        values = [video.values for video in videos]
        seconds = [video.seconds for video in videos]
        batch = propose(self.model, values, seconds)
        if self.settings.caption_weight:
            speech = self._speech(videos, batch, _all_queries(batch))
            batch = with_likelihood(self.model, batch, self.settings, speech, self.vocabulary)

        # which of the proposals are steps, and where
        queries: list[list[int]] = []
        spans: list[Floats] = []
        for number, video in enumerate(videos, start=first):
            steps, places = self._select(number, video, batch.videos[number - first])
            queries.append(steps)
            spans.append(places)

        # a sentence for each
        captions = generate_captions(
            self.model,
            batch,
            queries,
            self.settings.search,
            speech=self._speech(videos, batch, queries),
            vocabulary=self.vocabulary,
        )
        descriptions = []
        rows = zip(videos, batch.videos, queries, spans, captions, strict=True)
        for video, proposals, steps, places, sentences in rows:
            scores = proposals.confidence[steps]  # (k,)
            description = _description(video, scores, places, self.vocabulary, sentences)
            descriptions.append(description)
        return descriptions

    def _select(
        self, number: int, video: VideoToDescribe, proposals: Proposals
    ) -> tuple[list[int], Floats]:
        """Return which proposals of the video of this number are steps, and where, (k, 2)
        seconds."""
        if not len(video.values):
            return [], proposals.boxes[:0]
        if self.selector is not None:
            return self.selector(number, proposals)
        return place_steps(proposals, self.settings)

    def _speech(
        self,
        videos: Sequence[VideoToDescribe],
        batch: ProposalBatch,
        queries: Sequence[Sequence[int]],
    ) -> list[list[str]] | None:
        """Return what is said around each video's `queries`. None where the settings do not read
        it."""
        if not self.settings.speech:
            return None
        windows = []
        for video, proposals, row in zip(videos, batch.videos, queries, strict=True):
            texts = timed_texts(video.speech)
            boxes = proposals.boxes.tolist()
            windows.append([speech_window(texts, self.around, *boxes[query]) for query in row])
        return windows


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
