"""What a choice of proposals is worth: places and texts apart, on videos with gaps (youcook2) and
without (tasty).

One network per world and form. Only the choice of its proposals differs. Places: SODA-D, which
reads no sentence. Texts: METEOR over steps paired one to one by IoU. What a tiling does is taken
apart. The parts are count (as many as the network counts, or of the greatest expected F1), order
(no overlap), cover (no gap).
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from research.procx.corpus import ProcxCorpus, baseline_steps, procx_corpus
from research.procx.rows import PROCX_TRIAL, Baseline, Form, ProcxSize
from research.procx.tiling import tile_proposals, tiling_selector
from research.procx.trials import Events, ProcxTrials, oracle_selection, score_events
from research.study import interval, markdown_table, spread
from stepline.atomic_files import write_atomic
from stepline.evaluate.soda import soda
from stepline.procx.batch import StepSample
from stepline.procx.inference import (
    Floats,
    Proposals,
    ProposalSelector,
    VideoToDescribe,
    describe_many,
    place_steps,
    propose,
)
from stepline.procx.model import ProcX
from stepline.procx.settings import DescribeSettings

COVER_COSTS = (0.0, 0.25, 0.5, 1.0, 2.0, 4.0)
COMPARED_BASELINES: Sequence[Baseline] = ("uniform, nearest", "prior, nearest")
BATCH_VIDEOS = 16  # videos
TEXT_METRICS = ("SODA-C", "SODA-D", "texts", "steps")


@dataclass(frozen=True)
class DecoderStudy:
    """Networks in `folder` (trained where they are lacking), and what came of them in `result`,
    written as it comes."""

    folder: Path
    result: Path
    command: str
    size: ProcxSize = field(default_factory=ProcxSize)

    def run(
        self, form: Form, world: int, seed: int, rate: float | None = None, steps: int | None = None
    ) -> None:
        """Score all choices of one network's proposals, unless it has been done."""
        tree = (
            json.loads(self.result.read_text(encoding="utf-8"))
            if self.result.exists()
            else {"networks": []}
        )
        place = {"form": form, "world": world, "seed": seed}
        if any(place.items() <= one.items() for one in tree["networks"]):
            return
        corpus = procx_corpus(world, self.size, self.folder)
        trial = PROCX_TRIAL.changed(
            form=form, seed=world, network_seed=seed, rate=rate, steps=steps, size=self.size
        )
        network = ProcxTrials(self.folder, ("surest",), ()).network(trial, corpus)
        if not isinstance(network, ProcX):
            raise TypeError("a decoder's network is ProcX")
        tree["networks"].append({**place, **scores_of(network, corpus, form)})
        tree |= {"command": self.command, "size": self.size.model_dump(mode="json")}
        write_atomic(self.result, json.dumps(tree, indent=1) + "\n")


def scores_of(network: ProcX, corpus: ProcxCorpus, form: Form) -> dict[str, Any]:
    """Return "places", "described" and "unseen" (what does not look at the video), each by the name
    of the choice."""
    part = corpus.captioned[form]
    proposals = proposals_of(network, part.test)
    choices = placed(part.test, proposals)
    places = {
        name: place_scores(part.reference, given, choices["surest"])
        for name, given in choices.items()
    }
    watched = [VideoToDescribe(one.values, one.duration, one.duration) for one in part.test]
    described = {}
    oracle = oracle_selection([part.reference[one.id] for one in part.test])
    for name, selector in {**CHOICE_SELECTORS, "oracle": oracle}.items():
        steps = describe_many(network, corpus.vocabulary, watched, selector=selector)
        given = {
            one.id: [(step.spans[0].start, step.spans[0].end, step.text) for step in each.steps]
            for one, each in zip(part.test, steps, strict=True)
        }
        found = score_events(part.reference, given)
        described[name] = {metric: found[metric] for metric in TEXT_METRICS}
    unseen = {}
    for baseline in COMPARED_BASELINES:
        given = baseline_steps(part.train, part.test, baseline)
        found = score_events(part.reference, given)
        unseen[baseline] = {metric: found[metric] for metric in TEXT_METRICS}
    return {"places": places, "described": described, "unseen": unseen}


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
    found: list[Proposals] = []
    for first in range(0, len(samples), BATCH_VIDEOS):
        part = samples[first : first + BATCH_VIDEOS]
        found += propose(
            network, [one.values for one in part], [one.duration for one in part]
        ).videos
    return found


def placed(samples: Sequence[StepSample], proposals: Sequence[Proposals]) -> dict[str, Events]:
    """Return the steps without words of every choice."""
    given: dict[str, dict[str, Floats]] = {}
    for sample, proposed in zip(samples, proposals, strict=True):
        surest = CHOICE_SELECTORS["surest"](0, proposed)[1]
        own = {"surest": surest, "surest, stretched": stretched(surest, proposed.duration)}
        own["apart"] = CHOICE_SELECTORS["apart"](0, proposed)[1]
        counts = {"": None, " as counted": len(surest), " of true count": len(sample.spans)}
        for cover in COVER_COSTS:
            for name, count in counts.items():
                tiling = tile_proposals(proposed, cover=cover, count=count)
                own[f"tile{name}, cover {cover:g}"] = tiling[1]
        for name, spans in own.items():
            given.setdefault(name, {})[sample.id] = spans
    return {
        name: {
            video: [(start, end, "") for start, end in spans.tolist()]
            for video, spans in videos.items()
        }
        for name, videos in given.items()
    }


def stretched(spans: Floats, duration: float) -> Floats:
    """Return spans (k, 2) in the order of their middles, each up to half way to its neighbours:
    cover alone."""
    middles = np.sort(spans.mean(axis=1))
    ordered = spans[np.argsort(spans.mean(axis=1), kind="stable")]
    cuts = np.clip((ordered[:-1, 1] + ordered[1:, 0]) / 2, middles[:-1], middles[1:])
    edges = np.concatenate(([0.0], cuts, [duration]))
    return np.stack([edges[:-1], edges[1:]], axis=1) if len(spans) else spans


def place_scores(reference: Events, given: Events, surest: Events) -> dict[str, float]:
    """Return SODA-D in per cent, its gain over the most certain (95 % t-interval over videos), and
    steps per video."""
    own, other = (soda(reference, each, kind="d").per_video for each in (given, surest))
    gains = [100 * (own[video][2] - other[video][2]) for video in own]
    low, high = interval(gains)
    return {
        "SODA-D": 100 * float(np.mean([f1 for _, _, f1 in own.values()])),
        "gain": float(np.mean(gains)),
        "low": low,
        "high": high,
        "steps": float(np.mean([len(each) for each in given.values()])),
    }


def as_markdown(tree: Mapping[str, Any]) -> str:
    """Return places and texts of every choice and form, the mean over networks from least to
    most."""
    parts = []
    for form in dict.fromkeys(one["form"] for one in tree["networks"]):
        networks = [one for one in tree["networks"] if one["form"] == form]
        for kind, metrics in (
            ("places", ("SODA-D", "gain", "low", "high", "steps")),
            ("described", TEXT_METRICS),
            ("unseen", TEXT_METRICS),
        ):
            rows = [
                [
                    name,
                    *(spread([one[kind][name][metric] for one in networks]) for metric in metrics),
                ]
                for name in networks[0][kind]
            ]
            parts.append(
                markdown_table([f"{form}, {kind}, {len(networks)} networks", *metrics], rows)
            )
    return "\n".join(parts)
