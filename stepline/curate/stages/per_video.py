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
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from stepline import media
from stepline.curate.settings import FilterSettings
from stepline.curate.stage import LeftOutError, VideoContext
from stepline.curate.stages.intermediate import (
    CoarseSteps,
    GroundedSteps,
    JudgedTranscript,
    ProbeResult,
    pack_grounding,
    read_result,
    round_seconds,
    unpack_grounding,
)
from stepline.device import Device, current_device
from stepline.errors import MediaError, WriterError
from stepline.pipeline.judging import judge_sentences
from stepline.pipeline.networks import load_aligner, load_judge, shared_recognisers
from stepline.pipeline.packed_features import pack, pack_features, to_bytes, unpack_features
from stepline.pipeline.pictures import NO_PICTURE, LookOptions, VisualFeatures, extract_features
from stepline.pipeline.placing import ask_witness, ground_steps
from stepline.pipeline.request import Request
from stepline.pipeline.speech import NO_SOUND, Speech, drop_speech_past_end, recognise_many
from stepline.records import FeatureSequence, FrozenModel, Rejected, Step, Transcript
from stepline.weights import sha256
from stepline.writing import WrittenSteps

if TYPE_CHECKING:
    from stepline.vision import Backbone, VisionSettings

P = ParamSpec("P")
T = TypeVar("T")


def probe(video: VideoContext) -> bytes:
    """Return what the video holds; of an item without a file, what its source tells."""
    if video.media is None:
        return to_bytes(
            ProbeResult(duration=video.item.duration or 0.0, picture=False, sound=False)
        )
    info = media.probe(video.media, video.recipe.steps.media)
    result = ProbeResult(
        duration=info.duration,
        picture=info.has_picture,
        sound=info.has_sound,
        width=info.width,
        height=info.height,
        digest=sha256(video.media),
        warnings=info.warnings,
    )
    return to_bytes(result)


def transcribe(video: VideoContext) -> bytes:
    """Return what is said: the captions where the item has some, else what a recogniser hears."""
    settings = video.recipe.steps
    if video.captions is not None:
        from stepline.asr import read_captions

        captions = read_captions(video.captions, video_id=video.item.id, settings=settings.asr)
        return to_bytes(Speech(transcript=captions.transcript, dropped=captions.dropped))
    if video.media is None:
        return to_bytes(Speech(transcript=Transcript(), warnings=(NO_SOUND,)))
    return transcribe_many([video])[0]


def transcribe_many(videos: Sequence[VideoContext]) -> list[bytes]:
    """Return what `transcribe` does of each video; what a recogniser hears, a GPU hears in one
    batch."""
    settings = videos[0].recipe.steps
    sounds = {
        video.item.id: (
            Request(video.media, video.item.id),
            media.probe(video.media, settings.media),
        )
        for video in videos
        if video.captions is None and video.media is not None
    }
    models = shared_recognisers(settings.asr, current_device())
    loaded = len(models)
    heard = dict(
        zip(sounds, recognise_many([*sounds.values()], settings, models=models), strict=True)
    )
    for video in videos:
        if video.item.id in heard and settings.asr.recogniser == "whisper":
            # A silent video loads no model, so that the worker's first video is not always the one
            # that pays.
            video.notes["loaded"], loaded = len(models) - loaded, len(models)
    return [
        to_bytes(heard[video.item.id]) if video.item.id in heard else transcribe(video)
        for video in videos
    ]


PROVISIONAL = "provisional"  # in a writer's note: another writer served this part
# in its reason: the model answered, and no use can be made of it
ITS_OWN = ("of the reply", "the reply is")
CHARACTERS = 4  # a token, of English
LINE = 5  # characters of a reply's line beside its text: a number, a point, a blank, an end


def write(video: VideoContext) -> bytes:
    """Return the steps that a writer makes of the transcript. Raises WriterError where its model
    was silent."""
    from stepline.writing import write_steps

    settings = video.recipe.steps.writing
    transcript = read_result(Speech, video, "transcribe").transcript
    written = write_steps(transcript, settings)
    late = unanswered(written.notes)
    if late is not None:
        raise WriterError(f"{late}; --retry-failed asks again")
    if settings.writer == "llm":
        from stepline.writing.llm.prompts import (
            build_prompt,
            chosen_prompt,
            find_model_orders,
            split_into_chunks,
        )

        # About how many tokens went to the language model and came back, four characters each.
        chunks = split_into_chunks(
            transcript, settings.llm.sentences_per_chunk, find_model_orders(transcript)
        )
        prompt = chosen_prompt(settings.llm.prompt_file)
        prompts = sum(len(build_prompt(prompt, chunk)) for chunk in chunks)
        replies = sum(len(step.text) + LINE for step in written.steps)
        video.notes.update(
            tokens_in=prompts / CHARACTERS,
            tokens_out=replies / CHARACTERS,
            requests=float(len(chunks)),
        )
    return to_bytes(written)


def unanswered(notes: Sequence[str]) -> str | None:
    """Return the first note of a part that a server or a deadline left open, as a later run would
    not; else None.

    A model's reply that nobody can use stays one, however often it is asked, and the extractive
    writer's steps stand.
    """
    provisional = (note for note in notes if PROVISIONAL in note)
    return next((note for note in provisional if not any(own in note for own in ITS_OWN)), None)


class FilterCounts(FrozenModel):
    """What the filter counted of a video that stays."""

    language: str | None
    words: int
    steps: int


LANGUAGE, SHORT, LONG = "it is in another language", "it is too short", "it is too long"
SILENT, SPARSE, FEW = "too little is said", "too little is said a minute", "it has too few steps"


def filter_video(video: VideoContext) -> bytes:
    """Return what was counted. Raises LeftOutError with the reason where the recipe leaves the
    video out."""
    probed, transcript = (
        read_result(ProbeResult, video, "probe"),
        read_result(Speech, video, "transcribe").transcript,
    )
    steps = len(read_result(WrittenSteps, video, "write").steps)
    words = sum(len(re.findall(r"\w+", sentence.text)) for sentence in transcript.sentences)
    duration = probed.duration or max(
        (sentence.span.end for sentence in transcript.sentences), default=0.0
    )
    counts = FilterCounts(language=transcript.language, words=words, steps=steps)
    if (reason := left_out_reason(counts, duration, video.recipe.filter)) is not None:
        raise LeftOutError(reason)
    return to_bytes(counts)


def left_out_reason(counts: FilterCounts, duration: float, settings: FilterSettings) -> str | None:
    """Return why a video stays out, None where it does not; the first reason of several.

    duration: seconds, 0 where it is not known. A language that nobody tells is no reason.
    """
    language = counts.language
    if duration and duration < settings.shortest:
        return SHORT
    if settings.longest is not None and duration > settings.longest:
        return LONG
    if counts.words < settings.words:
        return SILENT
    if (
        language is not None
        and settings.languages
        and language.lower().split("-")[0] not in settings.languages
    ):
        return LANGUAGE
    if duration and counts.words * 60 < settings.words_a_minute * duration:
        return SPARSE
    return FEW if counts.steps < settings.steps else None


def encode(video: VideoContext) -> bytes:
    """Return features (T, D), motion and shots of the video's pictures; ready features stand for a
    backbone."""
    settings = video.recipe.steps
    if video.features is not None:
        from stepline.features.files import read_feature_file

        ready = read_feature_file(
            video.features, rate=settings.vision.rate, unit=settings.vision.unit
        )
        backbone = ready.backbone if ready.backbone != "precomputed" else settings.vision.backbone
        return pack_features(
            VisualFeatures(FeatureSequence(ready.values, ready.rate, backbone), end=ready.duration)
        )
    if video.media is None:
        return pack_features(VisualFeatures(warnings=(NO_PICTURE,)))
    info = media.probe(video.media, settings.media)
    network = (
        _backbone(settings.vision)
        if info.has_picture and settings.vision.backbone != "none"
        else None
    )
    request = Request(video.media, video.item.id)
    return pack_features(extract_features(request, info, settings, LookOptions(backbone=network)))


def coarse(video: VideoContext) -> bytes:
    """Return the steps with the seconds in which they are said, without those that nobody says
    (NaSVA, section 3.1)."""
    speech, written = (
        read_result(Speech, video, "transcribe"),
        read_result(WrittenSteps, video, "write"),
    )
    probed, visual = (
        read_result(ProbeResult, video, "probe"),
        unpack_features(video.results["encode"]),
    )
    duration = round_seconds(max(speech.end, visual.end) or probed.duration)
    if duration <= 0:
        raise MediaError(
            "nothing in it can be decoded, and nobody tells how long it is; leave it out"
        )
    inside = drop_speech_past_end(duration, speech.transcript, written.steps, keep_all_steps=False)
    steps: tuple[Step, ...] = inside.steps
    unsaid: tuple[Rejected, ...] = ()
    if video.recipe.coarse.said == "likeness" and steps:
        from stepline.grounding.speech import coarse_spans
        from stepline.text import embed

        sentences = inside.transcript.sentences
        # (K, S)
        likeness = (
            embed([step.text for step in steps])
            @ embed([sentence.text for sentence in sentences]).T
        )
        settings = video.recipe.steps.nasva.coarse
        steps, unsaid = coarse_spans(
            steps, sentences, likeness, duration=duration, settings=settings
        )
    warnings = (
        *probed.warnings,
        *speech.warnings,
        *visual.warnings,
        *written.notes,
        *inside.warnings,
    )
    result = CoarseSteps(
        duration=duration,
        transcript=inside.transcript,
        steps=steps,
        dropped=(*speech.dropped, *written.dropped, *inside.dropped, *unsaid),
        warnings=tuple(dict.fromkeys(warnings)),  # each once
    )
    return to_bytes(result)


def ground(video: VideoContext) -> bytes:
    """Return the steps with the seconds in which they are shown, and the alignment (K, T) that says
    so.

    A vision-language model is asked about those whose place is open, where the recipe names one.
    Raises WriterError where it was silent.
    """
    said, settings = read_result(CoarseSteps, video, "coarse"), video.recipe.steps
    visual = _read_features(video)
    if not said.steps or (visual.features is None and visual.activity is None):
        unseen = [step.model_copy(update={"status": "said", "score": 0.0}) for step in said.steps]
        return pack(GroundedSteps(steps=tuple(unseen)), {})
    grounding = ground_steps(
        said.steps, said.duration, said.transcript, visual, settings, _aligner(settings)
    )
    if video.media is None or not settings.vision.witness.named:
        return pack_grounding(grounding)
    request = Request(video.media, video.item.id)
    answers = ask_witness(request, grounding, visual, settings, said.duration)
    late = unanswered(answers.notes)
    if late is not None:
        raise WriterError(f"{late}; --retry-failed asks again")
    video.notes.update({name: float(str(answers.report[name])) for name in ("requests", "tokens")})
    return pack_grounding(
        replace(grounding, steps=answers.steps, alignment=answers.alignment), answers
    )


def judge(video: VideoContext) -> bytes:
    """Return the transcript with P(the picture shows it) of every sentence."""
    transcript, settings = read_result(CoarseSteps, video, "coarse").transcript, video.recipe.steps
    grounded, alignment = unpack_grounding(video.results["ground"])
    visual = _read_features(video)
    if visual.features is None and visual.activity is None:
        return to_bytes(JudgedTranscript(transcript=transcript))
    detector = _detector(settings.judge, settings.vision)
    transcript, who = judge_sentences(
        transcript, grounded.steps, alignment, visual, settings.judge, detector
    )
    return to_bytes(JudgedTranscript(transcript=transcript, judge=who))


def _read_features(video: VideoContext) -> VisualFeatures:
    """Return the video's features with the backbone that encodes texts into their space."""
    visual = unpack_features(video.results["encode"])
    if visual.features is None:
        return visual
    return replace(visual, backbone=_backbone(video.recipe.steps.vision))


def _kept(load: Callable[P, T]) -> Callable[P, T]:
    """Return a loader that keeps what it loads from one video to the next, for each of two devices
    its own.

    Of two stages that ask it, one may have a GPU; one that has it may fall back to the CPU.
    """

    @lru_cache(maxsize=2)
    def load_on(_: Device, *args: P.args, **options: P.kwargs) -> T:
        return load(*args, **options)

    return lambda *args, **options: load_on(current_device(), *args, **options)


@_kept
def _backbone(settings: "VisionSettings") -> "Backbone":
    from stepline.vision import load_backbone

    return load_backbone(settings)


_aligner, _detector = _kept(load_aligner), _kept(load_judge)
