"""What a choice of proposals is worth, on videos with gaps (youcook2) and without (tasty).

One network per world and form. Only the choice of its proposals differs. Places and texts have
their own scores. Places: SODA-D, which reads no sentence. Texts: METEOR over steps paired one to
one by IoU. A tiling is also split into its parts: count, order (no overlap) and cover (no gap). The
count is as the network counts, or of the greatest expected F1.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from research.procx.comparisons import ARM_TRIALS
from research.procx.corpus import ProcxCorpus, baseline_steps, procx_corpus
from research.procx.rows import Baseline, Form, ProcxSize
from research.procx.tiling import tile_proposals, tiling_selector
from research.procx.trials import (
    Events,
    ProcxTrials,
    events_by_video,
    oracle_selection,
    score_events,
)
from research.study import interval, markdown_table, spread
from stepline.evaluate.events import Event
from stepline.evaluate.soda import soda
from stepline.files.atomic_files import write_atomic
from stepline.models.procx.batch import StepSample
from stepline.models.procx.inference import (
    Floats,
    Proposals,
    ProposalSelector,
    VideoToDescribe,
    describe_many,
    place_steps,
    propose,
)
from stepline.models.procx.model import ProcX
from stepline.models.procx.settings import DescribeSettings

COVER_COSTS = (0.0, 0.25, 0.5, 1.0, 2.0, 4.0)
COMPARED_BASELINES: Sequence[Baseline] = ("uniform, nearest", "prior, nearest")
BATCH_VIDEOS = 16  # videos
TEXT_METRICS = ("SODA-C", "SODA-D", "texts", "steps")
# Columns of the tables, by what is scored.
KIND_METRICS: Mapping[str, Sequence[str]] = {
    "places": ("SODA-D", "gain", "low", "high", "steps"),
    "described": TEXT_METRICS,
    "unseen": TEXT_METRICS,
}


@dataclass(frozen=True)
class DecoderStudy:
    """Networks in `folder`, trained where they are lacking, and their scores in `result`."""

    folder: Path
    result: Path
    command: str
    size: ProcxSize = field(default_factory=ProcxSize)
    arm: str = "ProcX"  # a name of `ARM_TRIALS`
    patience: int = 0  # as of a trial

    def run(
        self, form: Form, world: int, seed: int, rate: float | None = None, steps: int | None = None
    ) -> None:
        """Score all choices of one network's proposals, unless it has been done."""
        tree: dict[str, Any] = {"networks": []}
        if self.result.exists():
            tree = json.loads(self.result.read_text(encoding="utf-8"))
        identity = {"arm": self.arm, "form": form, "world": world, "seed": seed}
        for scored in tree["networks"]:
            # of results without the name of the arm, all were ProcX
            if identity.items() <= {"arm": "ProcX", **scored}.items():
                return
        corpus = procx_corpus(world, self.size, self.folder)
        trial = ARM_TRIALS[self.arm].changed(
            form=form,
            seed=world,
            network_seed=seed,
            rate=rate,
            steps=steps,
            patience=self.patience,
            size=self.size,
        )
        network = ProcxTrials(self.folder, ("surest",), ()).network(trial, corpus)
        if not isinstance(network, ProcX):
            raise TypeError("a decoder's network is ProcX")
        scores = scores_of(network, corpus, form)
        tree["networks"].append({**identity, **scores})
        tree["command"] = self.command
        tree["size"] = self.size.model_dump(mode="json")
        write_atomic(self.result, json.dumps(tree, indent=1) + "\n")


def scores_of(network: ProcX, corpus: ProcxCorpus, form: Form) -> dict[str, Any]:
    """Return "places", "described" and "unseen", each by the name of the choice.

    unseen: what does not look at the video.
    """
    part = corpus.captioned[form]
    # places alone
    choices = placed(part.test, proposals_of(network, part.test))
    places = {}
    for name, events in choices.items():
        places[name] = place_scores(part.reference, events, choices["surest"])

    # places with sentences
    videos = [VideoToDescribe(video.values, video.duration, video.duration) for video in part.test]
    oracle = oracle_selection([part.reference[video.id] for video in part.test])
    described = {}
    for name, selector in {**CHOICE_SELECTORS, "oracle": oracle}.items():
        descriptions = describe_many(network, corpus.vocabulary, videos, selector=selector)
        described[name] = _text_scores(part.reference, events_by_video(part.test, descriptions))

    # baselines
    unseen = {}
    for baseline in COMPARED_BASELINES:
        events = baseline_steps(part.train, part.test, baseline)
        unseen[baseline] = _text_scores(part.reference, events)
    return {"places": places, "described": described, "unseen": unseen}


def _text_scores(reference: Events, events: Events) -> dict[str, float]:
    scores = score_events(reference, events)
    return {metric: scores[metric] for metric in TEXT_METRICS}


def settings_selector(choose: Literal["surest", "apart"]) -> ProposalSelector:
    """Return the selector that a setting of `procx.choose` means."""
    return lambda _, proposals: place_steps(proposals, DescribeSettings(choose=choose))


CHOICE_SELECTORS: Mapping[str, ProposalSelector] = {
    "surest": settings_selector("surest"),
    "apart": settings_selector("apart"),
    "tile, cover 0": tiling_selector(cover=0.0),
    "tile, cover 1": tiling_selector(cover=1.0),
}


def proposals_of(network: ProcX, samples: Sequence[StepSample]) -> list[Proposals]:
    """Return a network's proposals for each video."""
    proposals: list[Proposals] = []
    for first in range(0, len(samples), BATCH_VIDEOS):
        part = samples[first : first + BATCH_VIDEOS]
        values = [sample.values for sample in part]
        durations = [sample.duration for sample in part]
        proposals += propose(network, values, durations).videos
    return proposals


def placed(samples: Sequence[StepSample], proposals: Sequence[Proposals]) -> dict[str, Events]:
    """Return the steps without words of every choice."""
    choices: dict[str, dict[str, list[Event]]] = {}
    for sample, video_proposals in zip(samples, proposals, strict=True):
        for name, spans in _spans_by_choice(video_proposals, len(sample.spans)).items():
            events = [(start, end, "") for start, end in spans.tolist()]
            choices.setdefault(name, {})[sample.id] = events
    return dict(choices)


def _spans_by_choice(proposals: Proposals, true_count: int) -> dict[str, Floats]:
    """Return the spans (k, 2) that every choice takes of one video's proposals."""
    _, surest = CHOICE_SELECTORS["surest"](0, proposals)
    _, apart = CHOICE_SELECTORS["apart"](0, proposals)
    spans = {
        "surest": surest,
        "surest, stretched": stretched(surest, proposals.duration),
        "apart": apart,
    }
    counts = {"": None, " as counted": len(surest), " of true count": true_count}
    for cover in COVER_COSTS:
        for name, count in counts.items():
            _, tiles = tile_proposals(proposals, cover=cover, count=count)
            spans[f"tile{name}, cover {cover:g}"] = tiles
    return spans


def stretched(spans: Floats, duration: float) -> Floats:
    """Return spans (k, 2) in the order of their middles, stretched half way to their neighbours."""
    if not len(spans):
        return spans
    middles = np.sort(spans.mean(axis=1))
    ordered = spans[np.argsort(spans.mean(axis=1), kind="stable")]
    half_ways = (ordered[:-1, 1] + ordered[1:, 0]) / 2
    cuts = np.clip(half_ways, middles[:-1], middles[1:])
    edges = np.concatenate(([0.0], cuts, [duration]))
    return np.stack([edges[:-1], edges[1:]], axis=1)


def place_scores(reference: Events, events: Events, surest: Events) -> dict[str, float]:
    """Return SODA-D in per cent, its gain over the most certain, and steps per video.

    low, high: the gain's 95 % t-interval over videos.
    """
    per_video = soda(reference, events, kind="d").per_video
    surest_per_video = soda(reference, surest, kind="d").per_video
    f1_scores = []
    gains = []
    for video, (_, _, f1) in per_video.items():
        f1_scores.append(f1)
        gains.append(100 * (f1 - surest_per_video[video][2]))
    low, high = interval(gains)
    return {
        "SODA-D": 100 * float(np.mean(f1_scores)),
        "gain": float(np.mean(gains)),
        "low": low,
        "high": high,
        "steps": float(np.mean([len(steps) for steps in events.values()])),
    }


def as_markdown(tree: Mapping[str, Any]) -> str:
    """Return places and texts of every choice and form, as means over networks (least to most)."""
    by_form: dict[str, list[Any]] = {}
    for network in tree["networks"]:
        by_form.setdefault(network["form"], []).append(network)
    tables = []
    for form, networks in by_form.items():
        for kind, metrics in KIND_METRICS.items():
            rows = []
            for name in networks[0][kind]:
                row = [name]
                for metric in metrics:
                    row.append(spread([network[kind][name][metric] for network in networks]))
                rows.append(row)
            head = [f"{form}, {kind}, {len(networks)} networks", *metrics]
            tables.append(markdown_table(head, rows))
    return "\n".join(tables)
