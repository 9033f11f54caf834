"""All proposals of the network for some videos, and the sentences of those that are asked for.

Letters: B videos, N queries, M captions.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from stepline.procx.batch import videos
from stepline.procx.boxes import edges
from stepline.procx.captions import padded_tokens
from stepline.procx.choosing import Floats, Proposals
from stepline.procx.describe_settings import DescribeSettings
from stepline.procx.model import ProcX, Seen, chosen
from stepline.procx.search import Written, write
from stepline.procx.text_settings import SearchSettings
from stepline.procx.tokens import Vocabulary
from stepline.records import Matrix

AT_ONCE = 64  # captions; each holds the rows of its video, 2 MB in a network of the paper's size


@dataclass(frozen=True)
class Proposing:
    """What the network made of B videos, and its proposals for each."""

    seen: Seen
    videos: tuple[Proposals, ...]


@torch.no_grad()  # type: ignore[untyped-decorator]   # torch is untyped to mypy here
def propose(model: ProcX, values: Sequence[Matrix], durations: Sequence[float]) -> Proposing:
    """Return the proposals for videos of features (T, C) and so many seconds; model: at rest.

    Raises ShapeError for features of another width.
    """
    batch = videos(values, durations, model.settings.rows, model.settings.features)
    seen = model(batch.to(next(model.parameters()).device))
    said = seen.proposed
    sure = said.logits[-1].sigmoid().double().cpu().numpy()  # (B, N)
    spans = edges(said.boxes[-1].float()).clamp(0.0, 1.0).double().cpu().numpy()  # (B, N, 2)
    counts = said.counts[-1].double().cpu().numpy()  # (B, C)
    found = zip(durations, sure, spans, counts, strict=True)
    return Proposing(seen, tuple(Proposals(length, p, span * length, count) for length, p, span, count in found))


def written(
    model: ProcX,
    proposing: Proposing,
    asked: Sequence[Sequence[int]],
    search: SearchSettings,
    *,
    said: Sequence[Sequence[str]] | None = None,
    vocabulary: Vocabulary | None = None,
) -> list[list[Written]]:
    """Return the captions of the asked queries of each video, in their order.

    said: what is spoken around each of them, with the vocabulary that reads it; None: nobody is listened to.
    """
    pairs = [(video, query) for video, queries in enumerate(asked) for query in queries]
    texts = None if said is None or vocabulary is None else [text for row in said for text in row]
    found: list[Written] = []
    for first in range(0, len(pairs), AT_ONCE):
        part = slice(first, first + AT_ONCE)
        found += _some(model, proposing, pairs[part], search, vocabulary, None if texts is None else texts[part])
    rest = iter(found)
    return [[next(rest) for _ in queries] for queries in asked]


@torch.no_grad()  # type: ignore[untyped-decorator]
def _some(
    model: ProcX,
    proposing: Proposing,
    pairs: Sequence[tuple[int, int]],
    search: SearchSettings,
    vocabulary: Vocabulary | None,
    texts: Sequence[str] | None,
) -> list[Written]:
    """Return the captions of (video, query) pairs, with what is said around each where somebody listens."""
    device = proposing.seen.queries.device
    rows = torch.tensor(pairs, device=device)  # (M, 2)
    tokens: tuple[Tensor, Tensor] | tuple[None, None] = (None, None)
    if texts is not None and vocabulary is not None:
        longest = model.settings.captioner.longest_transcript
        heard, pad = padded_tokens([vocabulary.encode(text)[:longest] for text in texts])
        tokens = heard.to(device), pad.to(device)
    context = model.context(proposing.seen, chosen(-1, rows[:, 0], rows[:, 1]), *tokens)
    told: list[Written] = write(model.captioner, context, search)
    return told


def with_likelihood(
    model: ProcX, proposing: Proposing, settings: DescribeSettings, said: Sequence[Sequence[str]] | None = None,
    vocabulary: Vocabulary | None = None,
) -> Proposing:  # fmt: skip
    """Return the proposals with the likelihood of every query's greedy caption, as PDVC ranks them; untouched at 0.

    said: as in `written`, for all queries. Source: PDVC's code: weight x log P / tokens^2, added to the confidence.
    """
    if not settings.caption_weight:
        return proposing
    everything = [range(len(video.confidence)) for video in proposing.videos]
    greedy = settings.search.model_copy(update={"beam": 1})
    rows = written(model, proposing, everything, greedy, said=said, vocabulary=vocabulary)
    both = zip(proposing.videos, rows, strict=True)
    return Proposing(
        proposing.seen, tuple(replace(video, likelihood=_likelihood(row, settings)) for video, row in both)
    )


def _likelihood(row: Sequence[Written], settings: DescribeSettings) -> Floats:
    lengths = np.array([len(one.tokens) + one.ended for one in row], dtype=np.float64)
    total = np.array([one.log_probability for one in row], dtype=np.float64)
    return np.asarray(settings.caption_weight * total / np.maximum(lengths, 1.0) ** settings.caption_power)
