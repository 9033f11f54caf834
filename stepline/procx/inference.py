"""The steps of silent videos: the network's proposals, those of them that are steps, and a sentence for each.

    described = describe(model, vocabulary, features)         # one video
    described.steps                                           # in the order of time

Source: ProcX section 5 and PDVC's code: the surest proposals, as many as the network counts.

All proposals of the network for some videos, and the sentences of those that are asked for.

Letters: B videos, N queries, M captions.

Which proposals are steps: the surest, as many as the network counts, or the surest together that do not overlap.

Letters: N proposals, k steps.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from stepline.errors import SettingsError, ShapeError
from stepline.procx.batch import stack_videos
from stepline.procx.beam_search import Caption, generate
from stepline.procx.dataset import speech_window
from stepline.procx.matcher import boxes_to_spans
from stepline.procx.model import ModelOutput, ProcX, chosen
from stepline.procx.settings import DescribeSettings, SearchSettings
from stepline.procx.vocabulary import Vocabulary, pad_tokens
from stepline.records import FeatureSequence, Matrix, Rejected, Sentence, Span, Step

Floats = npt.NDArray[np.float64]

SHORTEST = 0.05  # s; a proposal that is shorter inside the video is no step


@dataclass(frozen=True)
class Proposals:
    """What the network says of one video of `duration` seconds.

    confidence: (N,); boxes: (N, 2) start and end in seconds, inside it; counts: (C,) logits of 0 ... C - 1 steps.
    likelihood: (N,) of each one's caption, to be added to the confidence; None where captions have no say.
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


def select_proposals(proposals: Proposals, settings: DescribeSettings) -> list[int]:
    """Return the numbers of the proposals that are steps, in the order of time."""
    most = settings.count if settings.count is not None else max(proposals.count, settings.least)
    lengths = proposals.boxes[:, 1] - proposals.boxes[:, 0]
    usable = np.flatnonzero((lengths >= SHORTEST) & (proposals.confidence >= settings.floor))
    if settings.choose == "surest":
        ranked = usable[np.argsort(-proposals.scores[usable], kind="stable")]
        chosen = ranked[:most]
    else:
        chosen = usable[
            select_non_overlapping(proposals.boxes[usable], proposals.scores[usable], most, settings.overlap)
        ]
    return sorted(map(int, chosen), key=lambda number: (*proposals.boxes[number], number))


def select_non_overlapping(boxes: Floats, scores: Floats, most: int, overlap: float = 0.0) -> list[int]:
    """Return which at most `most` intervals (N, 2), no two overlapping, have the greatest sum of scores (N,).

    overlap: share of the shorter of two neighbours in which they may. Intervals that score 0 or less are never taken.
    Source: weighted interval scheduling (Kleinberg and Tardos 2006, section 6.1), with a limit; not in the paper.
    """
    order = [number for number in np.lexsort((boxes[:, 0], boxes[:, 1])) if scores[number] > 0]
    most = min(most, len(order))
    if not most:
        return []
    ends, starts = boxes[order, 1], boxes[order, 0]
    gains, lengths = scores[order], boxes[order, 1] - boxes[order, 0]
    shared = ends[:, None] - starts  # (N, N) row: the earlier one
    before = np.triu(shared <= overlap * np.minimum(lengths[:, None], lengths) + 1e-9, 1)
    before &= starts[:, None] <= starts  # one inside another comes not before it
    best = np.full((most + 1, len(order)), -np.inf)  # of k + 1 intervals of which this is the last
    best[1] = gains
    parents = np.zeros((most + 1, len(order)), dtype=np.int64)
    for count in range(2, most + 1):
        chances = np.where(before, best[count - 1][:, None], -np.inf)  # (N, N)
        parents[count] = chances.argmax(axis=0)
        best[count] = chances.max(axis=0) + gains
    taken, last = divmod(int(best.argmax()), best.shape[1])
    chosen = [last]
    for number in range(taken, 1, -1):
        chosen.append(int(parents[number, chosen[-1]]))
    return [int(order[place]) for place in reversed(chosen)]


def cut_overlaps(spans: Floats) -> Floats:
    """Return spans (k, 2) in the order of time, those that overlap the next one cut in the middle of the overlap."""
    cut: Floats = spans.copy()
    for first in range(len(cut) - 1):
        if cut[first, 1] > cut[first + 1, 0]:
            middle = (cut[first, 1] + cut[first + 1, 0]) / 2
            cut[first, 1] = cut[first + 1, 0] = middle
    return cut


CAPTIONS_AT_ONCE = 64  # captions; each holds the rows of its video, 2 MB in a network of the paper's size


@dataclass(frozen=True)
class ProposalBatch:
    """What the network made of B videos, and its proposals for each."""

    seen: ModelOutput
    videos: tuple[Proposals, ...]


@torch.no_grad()  # type: ignore[untyped-decorator]   # torch is untyped to mypy here
def propose(model: ProcX, values: Sequence[Matrix], durations: Sequence[float]) -> ProposalBatch:
    """Return the proposals for videos of features (T, C) and so many seconds; model: at rest.

    Raises ShapeError for features of another width.
    """
    batch = stack_videos(values, durations, model.settings.rows, model.settings.features)
    seen = model(batch.to(next(model.parameters()).device))
    said = seen.proposed
    sure = said.logits[-1].sigmoid().double().cpu().numpy()  # (B, N)
    spans = boxes_to_spans(said.boxes[-1].float()).clamp(0.0, 1.0).double().cpu().numpy()  # (B, N, 2)
    counts = said.counts[-1].double().cpu().numpy()  # (B, C)
    found = zip(durations, sure, spans, counts, strict=True)
    return ProposalBatch(seen, tuple(Proposals(length, p, span * length, count) for length, p, span, count in found))


def generate_captions(
    model: ProcX,
    proposing: ProposalBatch,
    asked: Sequence[Sequence[int]],
    search: SearchSettings,
    *,
    said: Sequence[Sequence[str]] | None = None,
    vocabulary: Vocabulary | None = None,
) -> list[list[Caption]]:
    """Return the captions of the asked queries of each video, in their order.

    said: what is spoken around each of them, with the vocabulary that reads it; None: nobody is listened to.
    """
    pairs = [(video, query) for video, queries in enumerate(asked) for query in queries]
    texts = None if said is None or vocabulary is None else [text for row in said for text in row]
    found: list[Caption] = []
    for first in range(0, len(pairs), CAPTIONS_AT_ONCE):
        part = slice(first, first + CAPTIONS_AT_ONCE)
        found += _some(model, proposing, pairs[part], search, vocabulary, None if texts is None else texts[part])
    rest = iter(found)
    return [[next(rest) for _ in queries] for queries in asked]


@torch.no_grad()  # type: ignore[untyped-decorator]
def _some(
    model: ProcX,
    proposing: ProposalBatch,
    pairs: Sequence[tuple[int, int]],
    search: SearchSettings,
    vocabulary: Vocabulary | None,
    texts: Sequence[str] | None,
) -> list[Caption]:
    """Return the captions of (video, query) pairs, with what is said around each where somebody listens."""
    device = proposing.seen.queries.device
    rows = torch.tensor(pairs, device=device)  # (M, 2)
    tokens: tuple[Tensor, Tensor] | tuple[None, None] = (None, None)
    if texts is not None and vocabulary is not None:
        longest = model.settings.captioner.longest_transcript
        heard, pad = pad_tokens([vocabulary.encode(text)[:longest] for text in texts])
        tokens = heard.to(device), pad.to(device)
    context = model.context(proposing.seen, chosen(-1, rows[:, 0], rows[:, 1]), *tokens)
    told: list[Caption] = generate(model.captioner, context, search)
    return told


def with_likelihood(
    model: ProcX, proposing: ProposalBatch, settings: DescribeSettings, said: Sequence[Sequence[str]] | None = None,
    vocabulary: Vocabulary | None = None,
) -> ProposalBatch:  # fmt: skip
    """Return the proposals with the likelihood of every query's greedy caption, as PDVC ranks them; untouched at 0.

    said: as in `generate_captions`, for all queries. Source: PDVC: weight x log P / tokens^2, added to confidence.
    """
    if not settings.caption_weight:
        return proposing
    everything = [range(len(video.confidence)) for video in proposing.videos]
    greedy = settings.search.model_copy(update={"beam": 1})
    rows = generate_captions(model, proposing, everything, greedy, said=said, vocabulary=vocabulary)
    both = zip(proposing.videos, rows, strict=True)
    return ProposalBatch(
        proposing.seen, tuple(replace(video, likelihood=_likelihood(row, settings)) for video, row in both)
    )


def _likelihood(row: Sequence[Caption], settings: DescribeSettings) -> Floats:
    lengths = np.array([len(one.tokens) + one.ended for one in row], dtype=np.float64)
    total = np.array([one.log_probability for one in row], dtype=np.float64)
    return np.asarray(settings.caption_weight * total / np.maximum(lengths, 1.0) ** settings.caption_power)


ProposalSelector: TypeAlias = Callable[
    [int, Proposals], Sequence[int]
]  # (number of the video, its proposals) to queries

NO_WORDS = "the network found no words for it"
TOO_SHORT = f"it lasts less than {SHORTEST:g} s inside the video"
DIGITS = 3  # of seconds and scores


@dataclass(frozen=True)
class VideoToDescribe:
    """A video to describe. values: (T, C), T may be 0; they cover `seconds`, of which the video has `end`.

    said: what is spoken, for a network that reads it.
    """

    values: Matrix
    seconds: float
    end: float
    said: tuple[Sentence, ...] = ()

    def __post_init__(self) -> None:
        if not (self.seconds > 0 and self.end > 0) or not np.isfinite(self.values).all():
            what = f"{self.seconds} s of features for {self.end} s"
            raise ShapeError(f"a video to describe needs finite features and a length above 0, not {what}")


@dataclass(frozen=True)
class Description:
    """Steps in the order of time, and proposals that were chosen but could not become one."""

    steps: tuple[Step, ...] = ()
    dropped: tuple[Rejected, ...] = ()


def describe(
    model: ProcX,
    vocabulary: Vocabulary,
    features: FeatureSequence,
    settings: DescribeSettings | None = None,
    *,
    duration: float | None = None,
    said: Sequence[Sentence] = (),
    around: float = 10.0,
) -> Description:
    """Return the steps of one video; without a feature row none. duration: its seconds, None: as the features say.

    said, around: what is spoken, and how many seconds around a step are read; used only where `settings.speech`.
    """
    if not len(features.values):
        return Description()
    seconds = features.duration
    clip = VideoToDescribe(
        features.values, seconds, seconds if duration is None else min(seconds, duration), tuple(said)
    )
    return describe_many(model, vocabulary, [clip], settings, around=around)[0]


def describe_many(
    model: ProcX,
    vocabulary: Vocabulary,
    clips: Sequence[VideoToDescribe],
    settings: DescribeSettings | None = None,
    *,
    around: float = 10.0,
    chooser: ProposalSelector | None = None,
) -> list[Description]:
    """Return what each video shows, in their order; none changes another.

    chooser: which queries of a video are steps, instead of what `settings` say. The model should be at rest (eval).
    Raises ShapeError for features of another width, SettingsError where speech is asked of a network without ears.
    """
    return StepDescriber(model, vocabulary, settings or DescribeSettings(), around, chooser).describe(clips)


@dataclass(frozen=True)
class StepDescriber:
    """A network with all that decides what it says; see `describe_many`."""

    model: ProcX
    vocabulary: Vocabulary
    settings: DescribeSettings
    around: float = 10.0
    chooser: ProposalSelector | None = None

    def __post_init__(self) -> None:
        if self.settings.speech and self.model.settings.captioner.kind == "lstm":
            raise SettingsError("speech=true: PDVC's captioner reads no speech; leave it out")

    def describe(self, clips: Sequence[VideoToDescribe]) -> list[Description]:
        """Return what each video shows, in their order."""
        size = self.settings.batch
        parts = [clips[first : first + size] for first in range(0, len(clips), size)]
        return [one for number, part in enumerate(parts) for one in self._some(part, number * size)]

    def _some(self, clips: Sequence[VideoToDescribe], first: int) -> list[Description]:
        """Return what the videos of one batch show; the first of them is number `first`."""
        found = propose(self.model, [clip.values for clip in clips], [clip.seconds for clip in clips])
        if self.settings.caption_weight:
            heard = self._heard(clips, found, [range(self.model.settings.queries)] * len(clips))
            found = with_likelihood(self.model, found, self.settings, heard, self.vocabulary)
        both = enumerate(zip(clips, found.videos, strict=True), start=first)
        asked = [self._choose(number, video) if len(clip.values) else [] for number, (clip, video) in both]
        heard = self._heard(clips, found, asked)
        rows = generate_captions(self.model, found, asked, self.settings.search, said=heard, vocabulary=self.vocabulary)
        told = zip(clips, found.videos, asked, rows, strict=True)
        return [self._told(clip, video, queries, row) for clip, video, queries, row in told]

    def _choose(self, number: int, video: Proposals) -> list[int]:
        return list(self.chooser(number, video)) if self.chooser else select_proposals(video, self.settings)

    def _heard(
        self, clips: Sequence[VideoToDescribe], found: ProposalBatch, asked: Sequence[Sequence[int]]
    ) -> list[list[str]] | None:
        """Return what is said around each asked query of each video; None where nobody listens."""
        if not self.settings.speech:
            return None
        rows = zip(clips, [video.boxes.tolist() for video in found.videos], asked, strict=True)
        return [[speech_window(clip.said, self.around, *boxes[one]) for one in row] for clip, boxes, row in rows]

    def _told(self, clip: VideoToDescribe, video: Proposals, queries: list[int], row: Sequence[Caption]) -> Description:
        spans = video.boxes[queries].reshape(-1, 2)
        if self.settings.choose == "apart" and not self.chooser:
            spans = cut_overlaps(spans)
        texts = [self.vocabulary.decode(one.tokens) for one in row]
        return _steps(spans, video.confidence[queries], texts, clip.end)


def _steps(spans: Floats, sure: Floats, texts: Sequence[str], end: float) -> Description:
    """Return steps in the order of time, numbered from 1."""
    steps: list[Step] = []
    dropped: list[Rejected] = []
    for (start, stop), score, text in zip(spans.tolist(), sure.tolist(), texts, strict=True):
        start, stop = round(start, DIGITS), round(min(stop, end), DIGITS)
        if not text or stop - start < SHORTEST:
            dropped.append(Rejected(what="step", text=text, reason=TOO_SHORT if text else NO_WORDS))
            continue
        span = Span(start, stop)
        score = round(score, DIGITS)
        steps.append(Step(id="0", text=text, spans=(span,), at=round(span.center, DIGITS), status="shown", score=score))
    steps.sort(key=lambda step: (step.spans[0].start, step.spans[0].end))
    numbered = (step.model_copy(update={"id": str(number)}) for number, step in enumerate(steps, start=1))
    return Description(tuple(numbered), tuple(dropped))
