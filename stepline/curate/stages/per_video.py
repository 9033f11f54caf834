"""What is said, the steps that a writer makes of it, and where each of these is said.

What the file holds, and what its pictures show.

Where steps are shown, by what is said and seen, and which sentences are; no network is trained for it.

Which videos are left out, as soon as it is known what they say: each with one reason.
"""

import re
from collections.abc import Sequence
from dataclasses import asdict
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from stepline import media
from stepline.curate.settings import FilterSettings
from stepline.curate.stage import LeftOutError, VideoContext
from stepline.curate.stages.intermediate import (
    Array,
    Drafted,
    Grounded,
    Judged,
    Looked,
    Placed,
    Probed,
    Spoken,
    pack,
    result,
    to_bytes,
    unpack,
    whole,
)
from stepline.errors import MediaError, WriterError
from stepline.pipeline import understand as pipeline
from stepline.pipeline.networks import load_aligner, load_judge
from stepline.pipeline.request import Request
from stepline.pipeline.understand import VisualFeatures, judge_sentences
from stepline.records import Alignment, FeatureSequence, FrozenModel, Rejected, Step, Transcript
from stepline.weights import sha256

if TYPE_CHECKING:
    from stepline.nasva.checkpoint import LoadedAligner
    from stepline.pipeline.request import StepsSettings
    from stepline.vision import Backbone, VisionSettings
    from stepline.wys2.predict import LoadedDetector


def probe(work: VideoContext) -> bytes:
    """Return what the video holds; of an item without a file, what its source tells."""
    if work.media is None:
        return to_bytes(Probed(duration=work.item.duration or 0.0, picture=False, sound=False))
    info = media.probe(work.media, work.recipe.steps.media)
    return to_bytes(
        Probed(
            duration=info.duration,
            picture=info.has_picture,
            sound=info.has_sound,
            width=info.width,
            height=info.height,
            digest=sha256(work.media),
            warnings=info.warnings,
        )
    )


def encode(work: VideoContext) -> bytes:
    """Return features (T, D), motion and shots of the video's pictures; ready features stand for a backbone."""
    if work.features is not None:
        from stepline.features.files import read_feature_file

        vision = work.recipe.steps.vision
        found = read_feature_file(work.features, rate=vision.rate, unit=vision.unit)
        named = found.backbone if found.backbone != "precomputed" else vision.backbone
        return packed(VisualFeatures(FeatureSequence(found.values, found.rate, named), end=found.duration))
    if work.media is None:
        return packed(VisualFeatures(warnings=(pipeline.NO_PICTURE,)))
    settings = work.recipe.steps
    info = media.probe(work.media, settings.media)
    return packed(pipeline.extract_features(Request(work.media, work.item.id), info, settings))


def packed(seen: VisualFeatures) -> bytes:
    """Return what was seen as a cell: halves, as a feature store keeps them."""
    arrays: dict[str, Array] = {}
    backbone, rate, cuts = None, 1.0, None
    if seen.features is not None:
        arrays["features"] = seen.features.values.astype(np.float16)
        backbone, rate = seen.features.backbone, seen.features.rate
    if seen.activity is not None:
        arrays |= {"motion": seen.activity.motion, "peaks": seen.activity.peaks}
        arrays["looks"] = seen.activity.looks.astype(np.float16)
        cuts, rate = tuple(float(cut) for cut in seen.activity.cuts), seen.activity.rate
    return pack(Looked(backbone=backbone, rate=rate, cuts=cuts, end=seen.end, warnings=seen.warnings), arrays)


def unpacked(data: bytes, vision: "VisionSettings | None" = None) -> VisualFeatures:
    """Return what was seen from a cell; vision: with the backbone of these settings, to encode texts with."""
    from stepline.vision import Activity

    looked, arrays = unpack(Looked, data)
    features, activity = None, None
    if "features" in arrays and looked.backbone is not None:
        features = FeatureSequence(arrays["features"].astype(np.float32), looked.rate, looked.backbone)
    if looked.cuts is not None:
        motion, peaks, looks = (arrays[name].astype(np.float32) for name in ("motion", "peaks", "looks"))
        activity = Activity(motion, looked.cuts, looked.rate, peaks, looks)
    backbone = held_backbone(vision) if vision is not None and features is not None else None
    return VisualFeatures(features, activity, backbone, looked.end, looked.warnings)


@lru_cache(maxsize=1)
def held_backbone(vision: "VisionSettings") -> "Backbone":
    """Return the backbone of the settings, which the process keeps."""
    from stepline.vision import load_backbone

    return load_backbone(vision)


PROVISIONAL = "provisional"  # in a writer's note: another writer served this part
ITS_OWN = ("of the reply", "the reply is")  # in its reason: the model answered, and no use can be made of it
CHARACTERS = 4  # a token, of English
LINE = 5  # characters of a reply's line beside its text: a number, a point, a blank, an end


def transcribe(work: VideoContext) -> bytes:
    """Return what is said: the captions where the item has some, else what a recogniser hears."""
    settings = work.recipe.steps
    if work.captions is not None:
        from stepline.asr import read_captions

        heard = read_captions(work.captions, video_id=work.item.id, settings=settings.asr)
        return to_bytes(Spoken(transcript=heard.transcript, dropped=heard.dropped))
    if work.media is None:
        return to_bytes(Spoken(transcript=Transcript(), warnings=(pipeline.NO_SOUND,)))
    info = media.probe(work.media, settings.media)
    speech = pipeline.recognise_speech(Request(work.media, work.item.id), info, settings)
    return to_bytes(
        Spoken(transcript=speech.transcript, dropped=speech.dropped, end=speech.end, warnings=speech.warnings)
    )


def write(work: VideoContext) -> bytes:
    """Return the steps that a writer makes of the transcript. Raises WriterError where its model was silent."""
    from stepline.writing import write_steps

    settings = work.recipe.steps.writing
    transcript = result(Spoken, work, "transcribe").transcript
    written = write_steps(transcript, settings)
    late = unanswered(written.notes)
    if late is not None:
        raise WriterError(f"{late}; --retry-failed asks again")
    if settings.writer == "llm":
        work.notes.update(_tokens(transcript, written.steps, settings.llm.sentences_per_chunk))
    return to_bytes(Drafted(steps=written.steps, dropped=written.dropped, notes=written.notes))


def unanswered(notes: Sequence[str]) -> str | None:
    """Return the first note of a part that a server or a deadline left open, as a later run would not; else None.

    A model's reply that nobody can use stays one, however often it is asked, and the extractive writer's steps stand.
    """
    provisional = (note for note in notes if PROVISIONAL in note)
    return next((note for note in provisional if not any(own in note for own in ITS_OWN)), None)


def _tokens(transcript: Transcript, steps: Sequence[Step], size: int) -> dict[str, float]:
    """Return about how many tokens went to a language model and came back, four characters each."""
    from stepline.writing.llm.prompts import cut, main_prompt, orders_to_the_model, question

    asked = [question(main_prompt(), chunk) for chunk in cut(transcript, size, orders_to_the_model(transcript))]
    told = sum(len(step.text) + LINE for step in steps)
    return {"tokens_in": sum(map(len, asked)) / CHARACTERS, "tokens_out": told / CHARACTERS}


def coarse(work: VideoContext) -> bytes:
    """Return the steps with the seconds in which they are said, without those that nobody says (NaSVA, section 3.1)."""
    spoken, drafted = result(Spoken, work, "transcribe"), result(Drafted, work, "write")
    probed, seen = result(Probed, work, "probe"), unpacked(work.results["encode"])
    duration = whole(max(spoken.end, seen.end) or probed.duration)
    if duration <= 0:
        raise MediaError("nothing in it can be decoded, and nobody tells how long it is; leave it out")
    kept = pipeline.drop_speech_past_end(duration, spoken.transcript, drafted.steps, keep_all_steps=False)
    steps: tuple[Step, ...] = kept.steps
    unsaid: tuple[Rejected, ...] = ()
    if work.recipe.coarse.said == "likeness" and kept.steps:
        steps, unsaid = _linked(kept.steps, kept.transcript, duration, work)
    warnings = (*probed.warnings, *spoken.warnings, *seen.warnings, *drafted.notes, *kept.warnings)
    return to_bytes(
        Placed(
            duration=duration,
            transcript=kept.transcript,
            steps=steps,
            dropped=(*spoken.dropped, *drafted.dropped, *kept.dropped, *unsaid),
            warnings=tuple(dict.fromkeys(warnings)),
        )
    )


def _linked(
    steps: tuple[Step, ...], transcript: Transcript, duration: float, work: VideoContext
) -> tuple[tuple[Step, ...], tuple[Rejected, ...]]:
    from stepline.grounding.speech import coarse_spans
    from stepline.text import embed

    sentences = transcript.sentences
    likeness = embed([step.text for step in steps]) @ embed([one.text for one in sentences]).T  # (K, S)
    return coarse_spans(steps, sentences, likeness, duration=duration, settings=work.recipe.steps.nasva.coarse)


def ground(work: VideoContext) -> bytes:
    """Return the steps with the seconds in which they are shown, and the alignment (K, T) that says so."""
    placed = result(Placed, work, "coarse")
    settings = work.recipe.steps
    seen = unpacked(work.results["encode"], settings.vision)
    if not placed.steps or (seen.features is None and seen.activity is None):
        unseen = [step.model_copy(update={"status": "said", "score": 0.0}) for step in placed.steps]
        return pack(Grounded(steps=tuple(unseen)), {})
    found = pipeline.ground_steps(placed.steps, placed.duration, placed.transcript, seen, settings, _aligner(settings))
    alignment = found.alignment
    told = Grounded(
        steps=found.steps,
        rate=alignment.rate,
        kind=alignment.kind,
        report=asdict(found.report),
        doubts=found.report.doubts,
    )
    return pack(told, {"scores": alignment.scores})


def judge(work: VideoContext) -> bytes:
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
    transcript, who = judge_sentences(placed.transcript, grounded.steps, alignment, seen, settings.judge, detector)
    return to_bytes(Judged(transcript=transcript, judge=who))


@lru_cache(maxsize=1)
def _aligner(settings: "StepsSettings") -> "LoadedAligner | None":
    return load_aligner(settings)


@lru_cache(maxsize=1)
def _detector(settings: "StepsSettings") -> "LoadedDetector | None":
    return load_judge(settings.judge, settings.vision)


class Kept(FrozenModel):
    """What the filter counted of a video that stays."""

    language: str | None
    words: int
    steps: int


LANGUAGE, SHORT, LONG = "it is in another language", "it is too short", "it is too long"
SILENT, SPARSE, FEW = "too little is said", "too little is said a minute", "it has too few steps"


def keep(work: VideoContext) -> bytes:
    """Return what was counted. Raises LeftOutError with the reason where the recipe leaves the video out."""
    settings = work.recipe.filter
    probed, spoken = result(Probed, work, "probe"), result(Spoken, work, "transcribe")
    steps = len(result(Drafted, work, "write").steps)
    words = sum(len(re.findall(r"\w+", one.text)) for one in spoken.transcript.sentences)
    language = spoken.transcript.language
    duration = probed.duration or max((one.span.end for one in spoken.transcript.sentences), default=0.0)
    reason = refusal(language, duration, words, steps, settings)
    if reason is not None:
        raise LeftOutError(reason)
    return to_bytes(Kept(language=language, words=words, steps=steps))


def refusal(language: str | None, duration: float, words: int, steps: int, settings: FilterSettings) -> str | None:
    """Return why a video stays out, None where it does not; the first reason of several.

    language: None where nobody tells it, which is no reason. duration: seconds, 0 where it is not known.
    """
    if duration and duration < settings.shortest:
        return SHORT
    if settings.longest is not None and duration > settings.longest:
        return LONG
    if words < settings.words:
        return SILENT
    if language is not None and settings.languages and language.lower().split("-")[0] not in settings.languages:
        return LANGUAGE
    if duration and words * 60 < settings.words_a_minute * duration:
        return SPARSE
    return FEW if steps < settings.steps else None
