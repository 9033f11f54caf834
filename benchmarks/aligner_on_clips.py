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
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from real_clips import SLACK, pictures, records

from stepline.grounding.speech import steps_from_texts
from stepline.nasva.align import score_texts
from stepline.nasva.checkpoint import load_aligner
from stepline.nasva.model import Aligner
from stepline.nasva.predict import place_steps
from stepline.nasva.settings import AlignerSettings
from stepline.records import FeatureSequence, Step
from stepline.text import embed


def hits(labels: Sequence[dict[str, Any]], seconds: Sequence[float | None]) -> list[bool]:
    """Return for each labelled step that is shown whether its second is in one of its spans."""
    return [
        second is not None
        and any(start - SLACK <= second <= end + SLACK for start, end in label["shown"])
        for label, second in zip(labels, seconds, strict=True)
        if label["shown"]
    ]


def placed(
    network: Aligner, steps: Sequence[Step], features: FeatureSequence, speech: float
) -> list[float]:
    """Return the network's second of each step."""
    settings = AlignerSettings(speech=speech)
    fit = score_texts(network, features, embed([step.text for step in steps]), settings=settings)
    return list(place_steps(steps, fit, settings=settings).at)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("clips", type=Path)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--aligner", type=Path, action="append", required=True)
    args = parser.parse_args()
    truths = json.loads((args.clips / "labels.json").read_text(encoding="utf-8"))
    names = [name for name, truth in truths.items() if truth.get("steps")]
    known = records(args.clips, names, args.cache)
    networks = {str(path): load_aligner(path).aligner for path in args.aligner}
    trained = next(iter(networks.values()))
    networks["fresh weights"] = Aligner(trained.settings).eval()
    found: dict[str, list[bool]] = {}
    for name in names:
        transcript, labels = known[name].transcript, truths[name]["steps"]
        if transcript is None or not transcript.sentences:
            continue
        texts, features = (
            [label["text"] for label in labels],
            pictures(args.clips / name, args.cache).features,
        )
        assert features is not None
        steps = steps_from_texts(
            texts, transcript, embed([one.text for one in transcript.sentences]), embed(texts)
        )
        spoken = [None if step.said is None else step.said.center for step in steps]
        found.setdefault("speech", []).extend(hits(labels, spoken))
        for path, network in networks.items():
            for how, weight in (("alone", 0.0), ("beside speech", AlignerSettings().speech)):
                seconds = placed(network, steps, features, weight)
                found.setdefault(f"{path}, {how}", []).extend(hits(labels, seconds))
    for name, right in found.items():
        print(f"{name}: {np.mean(right):.3f} of {len(right)}")


if __name__ == "__main__":
    main()
