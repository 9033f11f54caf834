"""A network that self-training made of other videos, on real clips: does it place steps better than
speech does?

    python benchmarks/aligner_on_clips.py CLIPS --cache DIR --aligner RUN [--aligner RUN]

CLIPS and DIR as of `real_clips.py`. The labelled steps are given as lines. Of those that are shown,
it prints the share whose second is in a labelled span, 1 s of slack. It does so for the middle of
what is said of a line, for the network alone (`speech=0`), and next to speech as it comes. It also
does so for a network with fresh weights, which has learnt nothing.
"""

import argparse
import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from real_clips import SLACK_SECONDS, pictures, records

from stepline.grounding.speech import steps_from_texts
from stepline.models.nasva.align import score_texts
from stepline.models.nasva.checkpoint import load_aligner
from stepline.models.nasva.model import Aligner
from stepline.models.nasva.predict import place_steps
from stepline.models.nasva.settings import AlignerSettings
from stepline.records import FeatureSequence, Step
from stepline.text import embed


def hits(labels: Sequence[dict[str, Any]], seconds: Sequence[float | None]) -> list[bool]:
    """Return for each labelled step that is shown whether its second is in one of its spans."""
    right = []
    for label, second in zip(labels, seconds, strict=True):
        spans = label["shown"]
        if spans:
            right.append(second is not None and is_inside(second, spans))
    return right


def is_inside(second: float, spans: Sequence[Sequence[float]]) -> bool:
    """Say whether a second is in one of the spans, with slack."""
    return any(start - SLACK_SECONDS <= second <= end + SLACK_SECONDS for start, end in spans)


def placed(
    network: Aligner, steps: Sequence[Step], features: FeatureSequence, speech: float
) -> list[float]:
    """Return the network's second of each step."""
    settings = AlignerSettings(speech=speech)
    vectors = embed([step.text for step in steps])
    fit = score_texts(network, features, vectors, settings=settings)
    return list(place_steps(steps, fit, settings=settings).at)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("clips", type=Path)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--aligner", type=Path, action="append", required=True)
    options = parser.parse_args()
    truths = json.loads((options.clips / "labels.json").read_text(encoding="utf-8"))
    names = [name for name, truth in truths.items() if truth.get("steps")]
    clip_records = records(options.clips, names, options.cache)
    networks = {str(path): load_aligner(path).aligner for path in options.aligner}
    first = next(iter(networks.values()))
    networks["fresh weights"] = Aligner(first.settings).eval()
    speech_weights = {"alone": 0.0, "beside speech": AlignerSettings().speech}
    right_of_methods: dict[str, list[bool]] = defaultdict(list)
    for name in names:
        transcript = clip_records[name].transcript
        labels = truths[name]["steps"]
        if transcript is None or not transcript.sentences:
            continue
        features = pictures(options.clips / name, options.cache).features
        assert features is not None
        # Where speech alone places the steps
        texts = [label["text"] for label in labels]
        sentence_vectors = embed([sentence.text for sentence in transcript.sentences])
        steps = steps_from_texts(texts, transcript, sentence_vectors, embed(texts))
        centers = [step.said.center if step.said else None for step in steps]
        right_of_methods["speech"] += hits(labels, centers)
        # Where the networks do
        for path, network in networks.items():
            for method, weight in speech_weights.items():
                seconds = placed(network, steps, features, weight)
                right_of_methods[f"{path}, {method}"] += hits(labels, seconds)
    for name, right in right_of_methods.items():
        print(f"{name}: {np.mean(right):.3f} of {len(right)}")


if __name__ == "__main__":
    main()
