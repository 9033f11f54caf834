"""Where steps are shown, by what is said and seen, and which sentences are; no network is trained for it."""

from dataclasses import asdict
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from stepline import pipeline
from stepline.curate.stage import Work
from stepline.curate.stages.parts import Grounded, Judged, Placed, pack, result, to_bytes, unpack
from stepline.curate.stages.picture import unpacked
from stepline.judging import judged, load_judge
from stepline.records import Alignment

if TYPE_CHECKING:
    from stepline.nasva.infer import Loaded
    from stepline.request import StepsSettings
    from stepline.wys2.detecting import LoadedDetector


def ground(work: Work) -> bytes:
    """Return the steps with the seconds in which they are shown, and the alignment (K, T) that says so."""
    placed = result(Placed, work, "coarse")
    settings = work.recipe.steps
    seen = unpacked(work.results["encode"], settings.vision)
    if not placed.steps or (seen.features is None and seen.activity is None):
        unseen = [step.model_copy(update={"status": "said", "score": 0.0}) for step in placed.steps]
        return pack(Grounded(steps=tuple(unseen)), {})
    found = pipeline.place(placed.steps, placed.duration, placed.transcript, seen, settings, _aligner(settings))
    alignment = found.alignment
    told = Grounded(
        steps=found.steps,
        rate=alignment.rate,
        kind=alignment.kind,
        report=asdict(found.report),
        doubts=found.report.doubts,
    )
    return pack(told, {"scores": alignment.scores})


def judge(work: Work) -> bytes:
    """Return the transcript with P(the picture shows it) of every sentence."""
    settings = work.recipe.steps
    placed = result(Placed, work, "coarse")
    grounded, arrays = unpack(Grounded, work.results["ground"])
    alignment = None
    if grounded.kind is not None:
        texts = tuple(step.text for step in grounded.steps)
        alignment = Alignment(texts, arrays["scores"].astype(np.float32), grounded.rate, grounded.kind)
    seen = unpacked(work.results["encode"], settings.vision)
    if seen.features is None and seen.activity is None:
        return to_bytes(Judged(transcript=placed.transcript))
    detector = _detector(settings)
    transcript, who = judged(placed.transcript, grounded.steps, alignment, seen, settings.judge, detector)
    return to_bytes(Judged(transcript=transcript, judge=who))


@lru_cache(maxsize=1)
def _aligner(settings: "StepsSettings") -> "Loaded | None":
    return pipeline.load_aligner(settings)


@lru_cache(maxsize=1)
def _detector(settings: "StepsSettings") -> "LoadedDetector | None":
    return load_judge(settings.judge, settings.vision)
