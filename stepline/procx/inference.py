"""The steps of silent videos: the network's proposals, those of them that are steps, and a sentence
for each.

    described = describe(model, vocabulary, features)         # one video
    described.steps                                           # in the order of time

Source: ProcX section 5 and PDVC's code: the surest proposals, as many as the network counts; or,
beyond the paper, the surest together that do not overlap, or those that together fill the video.
Letters: B videos, N queries and so proposals of a video, C counts, M captions, k steps.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from scipy.special import softmax
from torch import Tensor

from stepline.device import current_device, device_of
from stepline.errors import SettingsError, ShapeError
from stepline.procx.batch import stack_videos
from stepline.procx.beam_search import Caption, generate
from stepline.procx.dataset import speech_window, timed_texts
from stepline.procx.matcher import QueryIndex, boxes_to_spans
from stepline.procx.model import ModelOutput, ProcX
from stepline.procx.settings import DescribeSettings, SearchSettings
from stepline.procx.tiling import expected_f1, tile
from stepline.procx.vocabulary import Vocabulary, pad_tokens
from stepline.records import FeatureSequence, Matrix, Rejected, Sentence, Span, Step

Floats = npt.NDArray[np.float64]

SHORTEST = 0.05  # s; a proposal that is shorter inside the video is no step
CAPTIONS_AT_ONCE = 64  # each holds the rows of its video, 2 MB in a network of the paper's size
DIGITS = 3  # of seconds and scores
NO_WORDS = "the network found no words for it"
TOO_SHORT = f"it lasts less than {SHORTEST:g} s inside the video"


@dataclass(frozen=True)
class Proposals:
    """What the network says of one video of `duration` seconds.

    confidence: (N,); boxes: (N, 2) start and end in seconds, inside it; counts: (C,) logits of 0
    ... C - 1 steps.
    likelihood: (N,) of each caption, to be added to the confidence; None where captions have no
    say.
    """

    duration: float
    confidence: Floats
    boxes: Floats
    counts: Floats
    likelihood: Floats | None = None

    @property
    def scores(self) -> Floats:
        """What proposals are ranked by, (N,)."""
        return self.confidence if self.likelihood is None else self.confidence + self.likelihood

    @property
    def count(self) -> int:
        """How many steps the network counts."""
        return int(self.counts.argmax())


def place_steps(proposals: Proposals, settings: DescribeSettings) -> tuple[list[int], Floats]:
    """Return the numbers of the proposals that are steps, in the order of time, and where each is,
    (k, 2) seconds."""
    if settings.choose == "tile":
        return tile_proposals(proposals, settings)
    queries = select_proposals(proposals, settings)
    spans = proposals.boxes[queries].reshape(-1, 2)
    return queries, cut_overlaps(spans) if settings.choose == "apart" else spans


def tile_proposals(proposals: Proposals, settings: DescribeSettings) -> tuple[list[int], Floats]:
    """Return the proposals that together fill the video best, and the segment of each, (k, 2);
    `tiling.py` says how.

    Of a fixed count as many as there can be; else at least `settings.least`, and the count of the
    greatest expected F1.
    """
    lengths = proposals.boxes[:, 1] - proposals.boxes[:, 0]
    usable = np.flatnonzero((lengths >= SHORTEST) & (proposals.confidence >= settings.floor))
    chances = softmax(proposals.counts)  # (C,)
    most = len(chances) - 1 if settings.count is None else settings.count
    expected = max(1.0, float(chances @ np.arange(len(chances))))
    found = tile(
        proposals.boxes[usable],
        np.maximum(proposals.scores[usable], 0.0),
        proposals.duration,
        most=most,
        cost=settings.cover * expected / proposals.duration,
    )
    if settings.count is not None:
        best = found[-1]
    else:
        best = max(
            found[min(settings.least, len(found) - 1) :],
            key=lambda each: expected_f1(each, chances),
        )
    return [int(usable[number]) for number in best.proposals], best.spans


def select_proposals(proposals: Proposals, settings: DescribeSettings) -> list[int]:
    """Return the numbers of the proposals that are steps, in the order of time."""
    if settings.choose == "tile":
        return tile_proposals(proposals, settings)[0]
    most = settings.count if settings.count is not None else max(proposals.count, settings.least)
    lengths = proposals.boxes[:, 1] - proposals.boxes[:, 0]
    usable = np.flatnonzero((lengths >= SHORTEST) & (proposals.confidence >= settings.floor))
    if settings.choose == "surest":
        ranked = usable[np.argsort(-proposals.scores[usable], kind="stable")]
        selected = ranked[:most]
    else:
        boxes, scores = proposals.boxes[usable], proposals.scores[usable]
        selected = usable[select_non_overlapping(boxes, scores, most, settings.overlap)]
    return sorted(map(int, selected), key=lambda number: (*proposals.boxes[number], number))


def select_non_overlapping(
    boxes: Floats, scores: Floats, most: int, overlap: float = 0.0
) -> list[int]:
    """Return which at most `most` intervals (N, 2), no two overlapping, have the greatest sum of
    scores (N,).

    overlap: fraction of the shorter of two neighbours in which they may. None that scores 0 or less
    is taken.
    Source: weighted interval scheduling (Kleinberg and Tardos 2006, section 6.1), with a limit; not
    in the paper.
    """
    order = [number for number in np.lexsort((boxes[:, 0], boxes[:, 1])) if scores[number] > 0]
    most = min(most, len(order))
    if not most:
        return []
    ends, starts = boxes[order, 1], boxes[order, 0]
    gains, lengths = scores[order], boxes[order, 1] - boxes[order, 0]
    overlaps = ends[:, None] - starts  # (N, N) row: the earlier one
    before = np.triu(overlaps <= overlap * np.minimum(lengths[:, None], lengths) + 1e-9, 1)
    before &= starts[:, None] <= starts  # one inside another comes not before it
    best = np.full((most + 1, len(order)), -np.inf)  # of k + 1 intervals of which this is the last
    best[1] = gains
    parents = np.zeros((most + 1, len(order)), dtype=np.int64)
    for count in range(2, most + 1):
        totals = np.where(before, best[count - 1][:, None], -np.inf)  # (N, N)
        parents[count] = totals.argmax(axis=0)
        best[count] = totals.max(axis=0) + gains
    taken, last = divmod(int(best.argmax()), best.shape[1])
    selected = [last]
    for number in range(taken, 1, -1):
        selected.append(int(parents[number, selected[-1]]))
    return [int(order[index]) for index in reversed(selected)]


def cut_overlaps(spans: Floats) -> Floats:
    """Return spans (k, 2) in the order of time, those that overlap the next one cut in the middle
    of the overlap."""
    cut: Floats = spans.copy()
    for first in range(len(cut) - 1):
        if cut[first, 1] > cut[first + 1, 0]:
            middle = (cut[first, 1] + cut[first + 1, 0]) / 2
            cut[first, 1] = cut[first + 1, 0] = middle
    return cut


@dataclass(frozen=True)
class ProposalBatch:
    """What the network made of B videos, and its proposals for each."""

    output: ModelOutput
    videos: tuple[Proposals, ...]


@torch.no_grad()  # type: ignore[untyped-decorator]   # torch is untyped to mypy here
def propose(model: ProcX, values: Sequence[Matrix], durations: Sequence[float]) -> ProposalBatch:
    """Return the proposals for videos of features (T, C) and so many seconds; model: at rest.

    Raises ShapeError for features of another width.
    """
    batch = stack_videos(values, durations, model.settings.rows, model.settings.features)
    with current_device().autocast():
        output = model(batch.to(device_of(model)))
    predictions = output.predictions
    confidence = predictions.logits[-1].float().sigmoid().double().cpu().numpy()  # (B, N)
    # (B, N, 2)
    spans = boxes_to_spans(predictions.boxes[-1].float()).clamp(0.0, 1.0).double().cpu().numpy()
    counts = predictions.counts[-1].double().cpu().numpy()  # (B, C)
    rows = zip(durations, confidence, spans, counts, strict=True)
    return ProposalBatch(
        output, tuple(Proposals(length, p, span * length, count) for length, p, span, count in rows)
    )


def generate_captions(
    model: ProcX,
    proposals: ProposalBatch,
    asked: Sequence[Sequence[int]],
    search: SearchSettings,
    *,
    speech: Sequence[Sequence[str]] | None = None,
    vocabulary: Vocabulary | None = None,
) -> list[list[Caption]]:
    """Return the captions of the asked queries of each video, in their order.

    speech: what is said around each of them, with the vocabulary that reads it; None: it is not
    read.
    """
    pairs = [(video, query) for video, queries in enumerate(asked) for query in queries]
    texts = (
        None if speech is None or vocabulary is None else [text for row in speech for text in row]
    )
    captions: list[Caption] = []
    for first in range(0, len(pairs), CAPTIONS_AT_ONCE):
        part = slice(first, first + CAPTIONS_AT_ONCE)
        captions += _caption_part(
            model,
            proposals,
            pairs[part],
            search,
            vocabulary,
            None if texts is None else texts[part],
        )
    rest = iter(captions)
    return [[next(rest) for _ in queries] for queries in asked]


@torch.no_grad()  # type: ignore[untyped-decorator]
def _caption_part(
    model: ProcX,
    proposals: ProposalBatch,
    pairs: Sequence[tuple[int, int]],
    search: SearchSettings,
    vocabulary: Vocabulary | None,
    texts: Sequence[str] | None,
) -> list[Caption]:
    """Return the captions of (video, query) pairs, with what is said around each where that is
    read."""
    device = proposals.output.queries.device
    rows = torch.tensor(pairs, device=device)  # (M, 2)
    speech: tuple[Tensor, Tensor] | tuple[None, None] = (None, None)
    if texts is not None and vocabulary is not None:
        longest = model.settings.captioner.longest_transcript
        # (M, A) each
        tokens, pad = pad_tokens([vocabulary.encode(text)[:longest] for text in texts])
        speech = tokens.to(device), pad.to(device)
    with current_device().autocast():
        context = model.context(
            proposals.output, QueryIndex.last_layer(rows[:, 0], rows[:, 1]), *speech
        )
        captions: list[Caption] = generate(model.captioner, context, search)
    return captions


def with_likelihood(
    model: ProcX,
    proposals: ProposalBatch,
    settings: DescribeSettings,
    speech: Sequence[Sequence[str]] | None = None,
    vocabulary: Vocabulary | None = None,
) -> ProposalBatch:
    """Return the proposals with the likelihood of every query's greedy caption, as PDVC ranks them;
    untouched at 0.

    speech: as in `generate_captions`, for all queries. Source: PDVC: weight x log P / tokens^2,
    added to confidence.
    """
    if not settings.caption_weight:
        return proposals
    everything = [range(len(video.confidence)) for video in proposals.videos]
    greedy = settings.search.model_copy(update={"beam": 1})
    rows = generate_captions(
        model, proposals, everything, greedy, speech=speech, vocabulary=vocabulary
    )
    videos = []
    for video, captions in zip(proposals.videos, rows, strict=True):
        lengths = np.array(
            [len(caption.tokens) + caption.ended for caption in captions], dtype=np.float64
        )
        total = np.array([caption.log_probability for caption in captions], dtype=np.float64)
        # (N,)
        likelihood = (
            settings.caption_weight * total / np.maximum(lengths, 1.0) ** settings.caption_power
        )
        videos.append(replace(video, likelihood=likelihood))
    return ProposalBatch(proposals.output, tuple(videos))


# (number of the video, its proposals) to queries
ProposalSelector: TypeAlias = Callable[[int, Proposals], Sequence[int]]


@dataclass(frozen=True)
class VideoToDescribe:
    """A video's features (T, C), T may be 0; they cover `seconds`, of which the video has `end`.

    speech: the sentences said in it, for a network that reads them.
    """

    values: Matrix
    seconds: float
    end: float
    speech: tuple[Sentence, ...] = ()

    def __post_init__(self) -> None:
        if not (self.seconds > 0 and self.end > 0) or not np.isfinite(self.values).all():
            what = f"{self.seconds} s of features for {self.end} s"
            raise ShapeError(
                f"a video to describe needs finite features and a length above 0, not {what}"
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
    """Return the steps of one video; without a feature row none. duration: its seconds, None: as
    the features say.

    speech, around: what is said, and how many seconds around a step are read; used only where
    `settings.speech`.
    """
    if not len(features.values):
        return Description()
    seconds = features.duration
    end = seconds if duration is None else min(seconds, duration)
    video = VideoToDescribe(features.values, seconds, end, tuple(speech))
    return describe_many(model, vocabulary, [video], settings, around=around)[0]


def describe_many(
    model: ProcX,
    vocabulary: Vocabulary,
    videos: Sequence[VideoToDescribe],
    settings: DescribeSettings | None = None,
    *,
    around: float = 10.0,
    selector: ProposalSelector | None = None,
) -> list[Description]:
    """Return what each video shows, in their order; none changes another.

    selector: which queries of a video are steps, instead of what `settings` say. The model should
    be at rest (eval).
    Raises ShapeError for features of another width, SettingsError where speech is asked of a
    network that reads none.
    """
    return StepDescriber(
        model, vocabulary, settings or DescribeSettings(), around, selector
    ).describe(videos)


@dataclass(frozen=True)
class StepDescriber:
    """A network with all that decides what it says; see `describe_many`."""

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
        size = self.settings.batch
        firsts = range(0, len(videos), size)
        return [
            each
            for first in firsts
            for each in self._describe_batch(videos[first : first + size], first)
        ]

    def _describe_batch(self, videos: Sequence[VideoToDescribe], first: int) -> list[Description]:
        """Return what the videos of one batch show; the first of them is number `first`."""
        proposals = propose(
            self.model, [video.values for video in videos], [video.seconds for video in videos]
        )
        if self.settings.caption_weight:
            speech = self._speech(
                videos, proposals, [range(self.model.settings.queries)] * len(videos)
            )
            proposals = with_likelihood(
                self.model, proposals, self.settings, speech, self.vocabulary
            )
        asked: list[list[int]] = []
        places: list[Floats] = []
        for number, (video, proposed) in enumerate(
            zip(videos, proposals.videos, strict=True), start=first
        ):
            queries, spans = [], proposed.boxes[:0]
            if len(video.values) and self.selector is not None:
                queries = list(self.selector(number, proposed))
                spans = proposed.boxes[queries].reshape(-1, 2)
            elif len(video.values):
                queries, spans = place_steps(proposed, self.settings)
            asked.append(queries)
            places.append(spans)
        speech = self._speech(videos, proposals, asked)
        captions = generate_captions(
            self.model,
            proposals,
            asked,
            self.settings.search,
            speech=speech,
            vocabulary=self.vocabulary,
        )
        rows = zip(videos, proposals.videos, asked, places, captions, strict=True)
        return [
            _description(video, proposed.confidence[queries], spans, self.vocabulary, row)
            for video, proposed, queries, spans, row in rows
        ]

    def _speech(
        self,
        videos: Sequence[VideoToDescribe],
        proposals: ProposalBatch,
        asked: Sequence[Sequence[int]],
    ) -> list[list[str]] | None:
        """Return what is said around each asked query of each video; None where it is not read."""
        if not self.settings.speech:
            return None
        said = (timed_texts(video.speech) for video in videos)
        rows = zip(
            said, [proposed.boxes.tolist() for proposed in proposals.videos], asked, strict=True
        )
        return [
            [speech_window(texts, self.around, *boxes[query]) for query in row]
            for texts, boxes, row in rows
        ]


def _description(
    video: VideoToDescribe,
    confidence: Floats,
    spans: Floats,
    vocabulary: Vocabulary,
    captions: Sequence[Caption],
) -> Description:
    """Return the chosen proposals of a video as steps in the order of time, numbered from 1.
    confidence: (k,)."""
    steps: list[Step] = []
    dropped: list[Rejected] = []
    for (start, end), score, caption in zip(
        spans.tolist(), confidence.tolist(), captions, strict=True
    ):
        text = vocabulary.decode(caption.tokens)
        start, end = round(start, DIGITS), round(min(end, video.end), DIGITS)
        if not text or end - start < SHORTEST:
            dropped.append(Rejected(what="step", text=text, reason=TOO_SHORT if text else NO_WORDS))
            continue
        span, score = Span(start, end), round(score, DIGITS)
        at = round(span.center, DIGITS)
        steps.append(Step(id="0", text=text, spans=(span,), at=at, status="shown", score=score))
    steps.sort(key=lambda step: (step.spans[0].start, step.spans[0].end))
    numbered = (
        step.model_copy(update={"id": str(number)}) for number, step in enumerate(steps, start=1)
    )
    return Description(tuple(numbered), tuple(dropped))
