"""The stages of one video, each from the bytes of those before it to its own, by the functions of
the main job.

probe        what the file holds
transcribe   what is said: captions, else a recogniser
write        the steps that a writer makes of it
filter       which videos are left out, as soon as it is known what they say: each with one reason
encode       features, motion and shots of the pictures
coarse       where each step is said (NaSVA, section 3.1)
ground       where each step is shown; no network is trained for it
judge        which sentences are shown
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import ParamSpec, TypeVar

from stepline import media
from stepline.curate.settings import FilterSettings
from stepline.curate.stage import LeftOutError, VideoContext
from stepline.curate.stages.intermediate import (
    CoarseSteps,
    GroundedSteps,
    JudgedTranscript,
    ProbeResult,
    dump_result,
    pack_arrays,
    pack_features,
    pack_grounding,
    read_result,
    round_seconds,
    unpack_features,
)
from stepline.errors import MediaError, ModelError, WriterError
from stepline.features.files import read_feature_file
from stepline.files.digests import sha256
from stepline.grounding.fusion import without_place
from stepline.grounding.speech import place_steps
from stepline.models.training.sources import TextEncoder, load_text_encoder
from stepline.networks.device import Device, current_device
from stepline.numeric import unit_rows
from stepline.pipeline.networks import load_aligner, load_judge_detector, shared_recognisers
from stepline.pipeline.pictures import NO_PICTURE, VisualFeatures, VisualOptions, extract_features
from stepline.pipeline.placing import JUDGED_BY_DETECTOR, ask_vlm, ground_steps, judge_sentences
from stepline.pipeline.request import Request, StepsSettings
from stepline.pipeline.speech import NO_SOUND_REASON, Speech, drop_speech_past_end, recognise_speech
from stepline.records import FeatureSequence, FrozenModel, Rejected, Step, Transcript
from stepline.speech import read_captions
from stepline.vision import Backbone, VisionSettings, load_backbone
from stepline.writing import WritingSettings, WrittenSteps, check_writer, write_steps

P = ParamSpec("P")
T = TypeVar("T")


def run_probe(video: VideoContext) -> bytes:
    """Return duration, streams and sha256 of the video file as a ProbeResult.

    Without a file, the duration is the one that the source states.
    """
    # Captions or features alone: the source knows how long the video is, if anyone does.
    if video.media is None:
        duration = video.item.duration or 0.0
        return dump_result(ProbeResult(duration=duration, picture=False, sound=False))
    info = media.probe(video.media, video.recipe.steps.media)
    return dump_result(
        ProbeResult(
            duration=info.duration,
            picture=info.has_picture,
            sound=info.has_sound,
            width=info.width,
            height=info.height,
            digest=sha256(video.media),
            warnings=info.warnings,
        )
    )


def run_transcribe(video: VideoContext) -> bytes:
    """Return the transcript: from captions if there are any, otherwise from speech recognition."""
    settings = video.recipe.steps
    if video.captions is not None:
        captions = read_captions(video.captions, video_id=video.item.id, settings=settings.asr)
        return dump_result(
            Speech(
                transcript=captions.transcript, dropped=captions.dropped, warnings=captions.warnings
            )
        )
    if video.media is None:
        return dump_result(Speech(transcript=Transcript(), warnings=(NO_SOUND_REASON,)))
    # Before minutes of recognition, whether the writer is there that comes after it.
    if settings.writing.writer == "llm" and "write" in video.recipe.stages:
        _check_writer_once(settings.writing)
    models = shared_recognisers(settings.asr, current_device())
    info = media.probe(video.media, settings.media)
    speech = recognise_speech(Request(video.media, video.item.id), info, settings, models=models)
    return dump_result(speech)


@lru_cache(maxsize=1)
def _check_writer_once(settings: WritingSettings) -> None:
    """Raise ModelError, which ends the run, if the writer's language model is not available."""
    try:
        check_writer(settings)
    except WriterError as error:
        raise ModelError(str(error)) from error


PROVISIONAL_WORD = "provisional"  # in a writer's note: another writer served this part
# In its reason: the model answered, and no use can be made of it.
REPLY_FAULTS = ("of the reply", "the reply is")


def run_write(video: VideoContext) -> bytes:
    """Return the steps that the step writer makes from the transcript.

    Raises WriterError if a language model did not answer.
    """
    settings = video.recipe.steps.writing
    written = write_steps(read_result(Speech, video, "transcribe").transcript, settings)
    # A part that was not answered would stay so in the store.
    late = find_unanswered_part(written.notes)
    if late is not None:
        raise WriterError(f"{late}; --retry-failed asks again")
    return dump_result(written)


def find_unanswered_part(notes: Sequence[str]) -> str | None:
    """Return the first note about a part of a video that a server did not answer, None without one.

    A part with a useless reply does not count, as asking again would not change it.

    notes: notes of a step writer or of a vision-language model.
    """
    for note in notes:
        if PROVISIONAL_WORD in note and not any(fault in note for fault in REPLY_FAULTS):
            return note
    return None


class FilterCounts(FrozenModel):
    """What the filter counts in a video.

    Attributes:
        language: language of the speech, None if unknown.
        words: number of spoken words.
        steps: number of steps.
    """

    language: str | None
    words: int
    steps: int


# Reasons of videos that are left out.
OTHER_LANGUAGE = "it is in another language"
TOO_SHORT = "it is too short"
TOO_LONG = "it is too long"
TOO_FEW_WORDS = "too little is said"
SLOW_SPEECH = "too little is said a minute"
TOO_FEW_STEPS = "it has too few steps"


def run_filter(video: VideoContext) -> bytes:
    """Return language, words and steps of a video as FilterCounts.

    Raises LeftOutError if the recipe leaves the video out.
    """
    speech = read_result(Speech, video, "transcribe")
    transcript = speech.transcript
    written = read_result(WrittenSteps, video, "write")
    words = re.findall(r"\w+", " ".join(sentence.text for sentence in transcript.sentences))
    counts = FilterCounts(language=transcript.language, words=len(words), steps=len(written.steps))
    duration = read_result(ProbeResult, video, "probe").duration
    # Captions alone end with their last sentence.
    if not duration:
        duration = _end_of_speech(transcript)
    reason = left_out_reason(counts, duration, video.recipe.filter)
    # Speech that was not understood is no silence.
    if reason in (TOO_FEW_WORDS, SLOW_SPEECH):
        reason = "; ".join((reason, *speech.warnings))
    if reason is not None:
        raise LeftOutError(reason)
    return dump_result(counts)


def _end_of_speech(transcript: Transcript) -> float:
    return max((sentence.span.end for sentence in transcript.sentences), default=0.0)


def left_out_reason(counts: FilterCounts, duration: float, settings: FilterSettings) -> str | None:
    """Return the first reason to leave a video out, None if it stays.

    An unknown language is no reason.

    Args:
        counts: language, words and steps of the video.
        duration: seconds, 0 if unknown.
        settings: limits of the filter.
    """
    if duration and duration < settings.shortest:
        return TOO_SHORT
    if settings.longest is not None and duration > settings.longest:
        return TOO_LONG
    if counts.words < settings.words:
        return TOO_FEW_WORDS
    if settings.languages and counts.language is not None:
        code, _, _ = counts.language.lower().partition("-")
        if code not in settings.languages:
            return OTHER_LANGUAGE
    if duration and counts.words * 60 < settings.words_a_minute * duration:
        return SLOW_SPEECH
    if counts.steps < settings.steps:
        return TOO_FEW_STEPS
    return None


def run_encode(video: VideoContext) -> bytes:
    """Return visual features (T rows, D), motion and shot boundaries of the video.

    Ready features replace the vision backbone.
    """
    settings = video.recipe.steps
    # Ready features need no network. They have no motion and no cuts.
    if video.features is not None:
        vision = settings.vision
        ready = read_feature_file(video.features, rate=vision.rate, unit=vision.unit)
        backbone = ready.backbone
        if backbone == "precomputed":
            backbone = vision.backbone
        features = FeatureSequence(ready.values, ready.rate, backbone)
        return pack_features(VisualFeatures(features, end=ready.duration))
    if video.media is None:
        return pack_features(VisualFeatures(warnings=(NO_PICTURE,)))
    info = media.probe(video.media, settings.media)
    # A file without pictures loads no backbone.
    network = None
    if info.has_picture and settings.vision.backbone != "none":
        network = _load_backbone(settings.vision)
    request = Request(video.media, video.item.id)
    return pack_features(extract_features(request, info, settings, VisualOptions(backbone=network)))


def run_coarse(video: VideoContext) -> bytes:
    """Return the steps with the seconds in which they are spoken, as CoarseSteps.

    Steps that are not spoken are dropped. Source: NaSVA, section 3.1.
    """
    probed = read_result(ProbeResult, video, "probe")
    speech = read_result(Speech, video, "transcribe")
    written = read_result(WrittenSteps, video, "write")
    visual = unpack_features(video.results["encode"])

    # How long the video is: what was decoded of it, else what its file says, else its captions.
    duration = round_seconds(max(speech.end, visual.end) or probed.duration)
    if duration <= 0 and (video.item.video is None and video.item.captions is not None):
        duration = round_seconds(_end_of_speech(speech.transcript))
    if duration <= 0:
        raise MediaError("nothing in it can be decoded, and its length is not known; leave it out")
    inside = drop_speech_past_end(duration, speech.transcript, written.steps, keep_all_steps=False)

    # Steps that the writer did not take from a sentence are placed by their likeness to one.
    steps: tuple[Step, ...] = inside.steps
    unsaid: tuple[Rejected, ...] = ()
    if video.recipe.coarse.said == "likeness" and steps:
        embed = _linking_encoder(video.recipe.steps)
        sentences = inside.transcript.sentences
        settings = video.recipe.steps.nasva.coarse
        step_probabilities = None
        if settings.matching == "line-model":
            from stepline.writing.extractive.writer import transcript_step_probabilities

            writing = video.recipe.steps.writing
            step_probabilities = transcript_step_probabilities(inside.transcript, writing)
        steps, unsaid = place_steps(
            steps,
            sentences,
            embed([step.text for step in steps]),
            embed([sentence.text for sentence in sentences]),
            duration=duration,
            settings=settings,
            step_probabilities=step_probabilities,
        )
    warnings = (
        *probed.warnings,
        *speech.warnings,
        *visual.warnings,
        *written.notes,
        *inside.warnings,
    )
    return dump_result(
        CoarseSteps(
            duration=duration,
            transcript=inside.transcript,
            steps=steps,
            dropped=(*speech.dropped, *written.dropped, *inside.dropped, *unsaid),
            warnings=tuple(dict.fromkeys(warnings)),  # without repetitions
        )
    )


def _linking_encoder(settings: StepsSettings) -> TextEncoder:
    """Return the text encoder g by which steps and sentences are compared, to unit vectors."""
    coarse = settings.nasva.coarse
    vision = settings.vision
    if coarse.matching == "line-model" or coarse.encoder == "minilm":
        return _load_text_encoder("minilm")
    if coarse.encoder != "backbone":
        encode = _load_text_encoder(coarse.encoder)
    elif vision.backbone in ("conse", "none", "precomputed"):
        return _load_text_encoder(vision.text_model)
    else:
        encode = _load_backbone(vision).encode_texts
    return lambda texts: unit_rows(encode(texts))


def run_ground(video: VideoContext) -> bytes:
    """Return the steps with the seconds in which they are shown, and their alignment (K, T).

    If the recipe names a vision-language model, it is asked about uncertain steps.

    Raises WriterError if that model did not answer.
    """
    settings = video.recipe.steps
    coarse = read_result(CoarseSteps, video, "coarse")
    steps = coarse.steps
    duration = coarse.duration
    visual = _read_features(video)
    if not steps or not (visual.features is not None or visual.activity is not None):
        unseen = tuple(without_place(step, 0.0) for step in steps)
        return pack_arrays(GroundedSteps(steps=unseen), {})
    # The default grounder or a trained network, and then a model that is asked.
    aligner = _aligner(settings)
    grounding = ground_steps(steps, duration, coarse.transcript, visual, settings, aligner)
    if video.media is None or not settings.vision.vlm.named:
        return pack_grounding(grounding)
    answers = ask_vlm(Request(video.media, video.item.id), grounding, visual, settings, duration)
    late = find_unanswered_part(answers.notes)
    if late is not None:
        raise WriterError(f"{late}; --retry-failed asks again")
    grounding = replace(grounding, steps=answers.steps, alignment=answers.alignment)
    return pack_grounding(grounding, answers)


def run_judge(video: VideoContext) -> bytes:
    """Return the transcript with a detector's P(shown) of each sentence, as a JudgedTranscript.

    Without a detector or pictures it is unchanged.
    """
    settings = video.recipe.steps
    transcript = read_result(CoarseSteps, video, "coarse").transcript
    visual = _read_features(video)
    detector = _detector(settings.judge, settings.vision)
    if detector is None or (visual.features is None and visual.activity is None):
        return dump_result(JudgedTranscript(transcript=transcript))
    transcript = judge_sentences(transcript, visual, settings.judge, detector)
    return dump_result(JudgedTranscript(transcript=transcript, judge=JUDGED_BY_DETECTOR))


def _read_features(video: VideoContext) -> VisualFeatures:
    """Return the visual features, with the backbone that encodes texts into the same space."""
    visual = unpack_features(video.results["encode"])
    if visual.features is None:
        return visual
    return replace(visual, backbone=_load_backbone(video.recipe.steps.vision))


def _cache_by_device(load: Callable[P, T]) -> Callable[P, T]:
    """Return the loader with a cache of its results for two devices.

    A worker with a GPU may fall back to the CPU.
    """

    @lru_cache(maxsize=2)
    def load_on(_: Device, *args: P.args, **options: P.kwargs) -> T:
        return load(*args, **options)

    return lambda *args, **options: load_on(current_device(), *args, **options)


@_cache_by_device
def _load_backbone(settings: VisionSettings) -> Backbone:
    return load_backbone(settings)


@_cache_by_device
def _load_text_encoder(name: str) -> TextEncoder:
    return load_text_encoder(name)


_aligner = _cache_by_device(load_aligner)
_detector = _cache_by_device(load_judge_detector)
