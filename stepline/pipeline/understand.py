"""From one video to its steps: the whole story, top to bottom, one function a stage.

    speech = recognise_speech(...)          sound    -> sentences
    written = propose_steps(...)            sentences -> steps, each citing its sentences
    visual = extract_features(...)          picture  -> feature rows, motion, cuts
    drop_speech_past_end(...)               captions may run on after the video's last second
    ground_steps(...)                       steps x picture -> where each is shown, and how sure
    ask_witness(...)                        a vision-language model, where one is named, is asked what is open
    with_seen_steps(...)                    those that a writer saw and nobody says, where it saw them
    describe_pictures(...)                  steps that no speech tells (pipeline/describe.py)
    judge_sentences(...)                    does the picture show what is said?

This is the only place that puts a Record together, and the only one that knows every stage. Sound
and picture are each decoded once, side by side: while one core recognises speech and writes steps,
the other sees.
"""

import contextlib
import math
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

import numpy as np
from pydantic import JsonValue

from stepline.device import current_device
from stepline.errors import MediaError, SettingsError
from stepline.grounding.correspondence import (
    AFTER,
    BEFORE,
    HARDLY_FIT,
    STANDING,
    is_phrase,
    is_said,
)
from stepline.outputs.text import one_line, shorten, shown_span
from stepline.pipeline.describe import (
    FROM_WITNESS,
    Descriptions,
    check_amounts,
    describe_pictures,
    with_seen_steps,
)
from stepline.pipeline.networks import Networks, fingerprint, load_networks
from stepline.pipeline.part import features_within, in_whole_video, part_info, transcript_within
from stepline.pipeline.request import Request, StepsSettings
from stepline.progress import Progress, StoppedError, read_ahead, trim_memory, with_progress
from stepline.records import (
    Alignment,
    FeatureSequence,
    FrozenModel,
    Record,
    Rejected,
    Span,
    Step,
    Transcript,
    Video,
)
from stepline.text.embedding import embedded_once
from stepline.version import __version__
from stepline.weights import sha256
from stepline.wys2.settings import JudgeSettings

if TYPE_CHECKING:
    import numpy.typing as npt

    from stepline.asr.whisper import Models
    from stepline.chat.pictures import PictureReader
    from stepline.grounding.ground import Grounding
    from stepline.media import MediaInfo, Thumbnails
    from stepline.nasva.checkpoint import LoadedAligner
    from stepline.nasva.predict import AlignerGrounding
    from stepline.vision import Activity, Backbone, PictureCues
    from stepline.vision_language import VisualAnswers
    from stepline.writing import WrittenSteps
    from stepline.wys2.predict import LoadedDetector

# s past the claimed end of a file up to which words are read; a file may be longer than it claims
BEYOND = 60.0
NO_SOUND = "it has no sound track"
ON_SCREEN = " on screen: "  # in a remark of `seen`, before what is written in the picture
NO_PICTURE = "no picture in it can be seen, so nothing counts as shown"

# how surely a face looks at the camera, and in how many of a step's seconds, to be told
PRESENTER, HALF = 0.5, 0.5
# lines of text in the picture that are told of a step, the largest, and letters of each
MOST_LINES, LINE = 2, 80

SECONDS_AHEAD = 30  # of sound, decoded while a window is recognised
FRAMES_AHEAD = 4  # of pictures, decoded while others are looked at
# an odd number puts one frame on the middle of a feature row; the others measure motion
FRAMES_A_ROW = 3
ENGLISH = ("en", "english")  # what the judgement by wording knows
# who judged, as `models["judge"]` says
BY_WORDS, BY_GROUNDING, BY_DETECTOR = "wording", "grounding", "detector"


@dataclass(frozen=True)
class StepsResult:
    """What `understand` returns: the record, and the alignment that a page draws; None where
    nothing was grounded."""

    record: Record
    alignment: Alignment | None


class Speech(FrozenModel):
    """What is said, what was left out of it, the last second of sound that could be read, and
    warnings."""

    transcript: Transcript
    dropped: tuple[Rejected, ...] = ()
    end: float = 0.0
    warnings: tuple[str, ...] = ()


class SpeechInVideo(FrozenModel):
    """The sentences and steps that lie within the video, what was left out, and a warning where
    something was."""

    transcript: Transcript
    steps: tuple[Step, ...]
    dropped: tuple[Rejected, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class VisualFeatures:
    """What the picture shows: features (T, D), motion and cuts, the backbone that saw it, the last
    second decoded.

    cues: what small detectors see beside it. All None where there is no picture to use.
    """

    features: FeatureSequence | None = None
    activity: "Activity | None" = None
    backbone: "Backbone | None" = None
    end: float = 0.0
    warnings: tuple[str, ...] = ()
    cues: "PictureCues | None" = None


@dataclass(frozen=True)
class PlacedSteps:
    """The steps where they are shown, and what says so: None where nothing was grounded, or no
    witness asked."""

    steps: tuple[Step, ...]
    alignment: Alignment | None
    grounding: "Grounding | AlignerGrounding | None"
    answers: "VisualAnswers | None"


@embedded_once()
def understand(
    request: Request,
    settings: StepsSettings,
    *,
    networks: Networks | None = None,
    progress: Progress | None = None,
    thumbnails: "Thumbnails | None" = None,
) -> StepsResult:
    """Return the steps of a video with the seconds in which they are shown.

    networks: what `load_networks` made of the same settings, where several videos share them.
    thumbnails: what keeps pictures of the seconds that are looked at, for a page.
    Raises a SteplineError when the video, the captions or a model cannot be read.
    """
    from stepline.media import probe

    whole = probe(request.path, settings.media)
    info = part_info(whole, request.part)
    networks = networks or load_networks(settings)
    # Before the reading: a file that is replaced meanwhile is then known by what was there first.
    digest, made_from = sha256(request.path), fingerprint(request, settings, networks)
    speech, written, visual = _listen_and_look(
        request, info, settings, networks, progress, thumbnails
    )
    trim_memory()
    duration = round(max(speech.end, visual.end) or info.duration, 3)
    if duration <= 0:
        raise MediaError(
            f"{request.path}: nothing in it can be decoded; convert it to mp4 and try again"
        )
    inside = drop_speech_past_end(
        duration, speech.transcript, written.steps, keep_all_steps=bool(request.texts)
    )
    transcript, judge = inside.transcript, None
    placed = _place_steps(request, info, inside, visual, settings, networks, duration)
    steps, alignment = placed.steps, placed.alignment
    read = partial(
        check_amounts,
        transcript=transcript,
        lines=visual.cues.lines if visual.cues else (),
        start=request.part.start if request.part is not None else 0.0,
    )
    if settings.writing.llm.pictures:
        steps = tuple(map(read, steps))
    pictures = describe_pictures(
        networks.describer, visual.features, transcript, steps, settings.procx, duration
    )
    if (
        settings.vision.witness.named
        and visual.features is not None
        and not (transcript.sentences or request.texts)
    ):
        pictures = describe_by_witness(request, visual, settings, duration, pictures)
        pictures = replace(pictures, steps=tuple(map(read, pictures.steps)))
    if info.has_picture:
        transcript, judge = judge_sentences(
            transcript,
            steps,
            alignment,
            visual,
            settings.judge,
            networks.detector,
            request.path if request.part is None else None,
        )
    doubts = placed.grounding.report.doubts if placed.grounding else ()
    asked = placed.answers.notes if placed.answers else ()
    warnings = (*info.warnings, *speech.warnings, *visual.warnings, *written.notes, *doubts, *asked)
    record = Record(
        id=request.id,
        video=Video(
            id=request.id,
            path=str(request.path.absolute()),
            duration=duration if request.part is None else round(whole.duration, 3),
            title=request.origin.title if request.origin else None,
            sha256=digest,
            origin=request.origin,
        ),
        transcript=transcript,
        steps=steps or pictures.steps,
        recipe=request.texts,
        captions=pictures.captions,
        dropped=speech.dropped + written.dropped + inside.dropped + pictures.dropped,
        warnings=tuple(dict.fromkeys((*warnings, *inside.warnings, *pictures.notes))),  # each once
        settings=made_from,
        models=_models_used(
            request,
            settings,
            visual,
            placed,
            asr=transcript.recogniser,
            judge=judge,
            describer=pictures.network,
        ),
    )
    if request.part is not None:
        record, alignment = in_whole_video(record, alignment, request.part.start)
    return StepsResult(record, alignment)


def _models_used(
    request: Request,
    settings: StepsSettings,
    visual: VisualFeatures,
    placed: PlacedSteps,
    *,
    asr: str | None,
    judge: JsonValue,
    describer: JsonValue,
) -> dict[str, JsonValue]:
    """Return what heard, wrote, saw, placed and judged, and the device where it is no CPU, as a
    record names them."""
    unwritten = request.texts or settings.procx.when == "alone"
    models: dict[str, JsonValue] = {
        "stepline": __version__,
        "asr": asr,
        "writer": None if unwritten else settings.writing.writer,
        "vision": visual.backbone.name if visual.backbone else None,
        "grounding": asdict(placed.grounding.report) if placed.grounding else None,
        "judge": judge,
        "describer": describer,
    }
    if placed.answers is not None:
        models["witness"] = placed.answers.report
    if current_device().label != "cpu":
        models["device"] = current_device().label
    return models


def _place_steps(
    request: Request,
    info: "MediaInfo",
    inside: SpeechInVideo,
    visual: VisualFeatures,
    settings: StepsSettings,
    networks: Networks,
    duration: float,
) -> PlacedSteps:
    """Return the steps where they are shown, by speech, pictures and a witness, with what speaks
    for and against each.

    Of a sound without a picture no step is shown. Steps that a writer saw and nobody says stand
    where it saw them.
    """
    from stepline.grounding.ground import GroundReport

    transcript = inside.transcript
    spoken = tuple(step for step in inside.steps if step.sources or step.at is None)
    grounding, answers, alignment = None, None, None
    if spoken and info.has_picture:
        grounding = ground_steps(
            spoken,
            duration,
            transcript,
            visual,
            settings,
            networks.aligner,
            written=not request.texts,
        )
        if settings.vision.witness.named:
            answers = ask_witness(request, grounding, visual, settings, duration)
            grounding = replace(grounding, steps=answers.steps, alignment=answers.alignment)
        unclear = (
            grounding.report.unclear if isinstance(grounding.report, GroundReport) else HARDLY_FIT
        )
        doing = doing_by_second(grounding.steps, transcript, visual)
        steps = tuple(
            describe_evidence(step, transcript, visual, unclear=unclear, doing=doing)
            for step in grounding.steps
        )
        alignment = grounding.alignment
    else:
        steps = tuple(
            step.model_copy(update={"status": "said" if step.said else "not found", "score": 0.0})
            for step in spoken
        )
    if len(spoken) < len(inside.steps):
        pieces, asked_before = _shots(visual, math.ceil(duration)), settings.vision.witness
        steps, alignment = with_seen_steps(
            inside.steps, steps, alignment, pieces, duration, asked_before
        )
    return PlacedSteps(steps, alignment, grounding, answers)


def _listen_and_look(
    request: Request,
    info: "MediaInfo",
    settings: StepsSettings,
    networks: Networks,
    progress: Progress | None,
    thumbnails: "Thumbnails | None",
) -> "tuple[Speech, WrittenSteps, VisualFeatures]":
    """Recognise, write and look side by side; what fails on one side stops the other, as Ctrl-C
    stops both.

    Hours of sound in which nobody speaks end the look too: no step is sought in the pictures then.
    """
    from stepline.writing import WrittenSteps

    stop = Event()

    def stop_if_failed(done: "Future[VisualFeatures]") -> None:
        if done.exception() is not None:
            stop.set()

    described = networks.describer is not None or settings.vision.witness.named
    with ThreadPoolExecutor(1, thread_name_prefix="see") as pool:
        looking = pool.submit(
            extract_features,
            request,
            info,
            settings,
            progress=progress,
            stop=stop,
            thumbnails=thumbnails,
            ahead=FRAMES_AHEAD,
        )
        looking.add_done_callback(stop_if_failed)
        try:
            speech = recognise_speech(
                request, info, settings, models=networks.recognisers, progress=progress, stop=stop
            )
            trim_memory()  # the recogniser's memory, before the grammar is loaded
            if speech.end > 0 and not (speech.transcript.sentences or request.texts or described):
                stop.set()
                with contextlib.suppress(StoppedError):
                    looking.result()  # raises what went wrong there
                return speech, WrittenSteps(), VisualFeatures()
            pool.submit(_load_text_encoder, looking)  # behind the looking, while steps are written
            written = propose_steps(
                request, _near_the_video(speech.transcript, info.duration), settings, info
            )
            return speech, written, looking.result()
        except StoppedError:
            looking.result()  # raises what went wrong there
            raise
        finally:
            stop.set()


def _load_text_encoder(looking: "Future[VisualFeatures]") -> None:
    """Load what embeds texts for the backbone that saw the pictures; where it cannot be read, its
    first user tells."""
    from stepline.text import load_encoder
    from stepline.vision.conse import ConSEBackbone

    if looking.exception() is None and isinstance(
        backbone := looking.result().backbone, ConSEBackbone
    ):
        load_encoder(backbone.text_model)


def _near_the_video(transcript: Transcript, duration: float) -> Transcript:
    """Return the sentences that begin within the length that the file claims, or soon after it.

    Captions may go on for hours, as those of another video: no step is written that
    `drop_speech_past_end` would drop.
    """
    near = [
        sentence for sentence in transcript.sentences if sentence.span.start < duration + BEYOND
    ]
    if duration <= 0 or len(near) == len(transcript.sentences):
        return transcript
    return transcript.model_copy(update={"sentences": tuple(near)})


def recognise_speech(
    request: Request,
    info: "MediaInfo",
    settings: StepsSettings,
    *,
    models: "Models | None" = None,
    progress: Progress | None = None,
    stop: Event | None = None,
) -> Speech:
    """Return what is said, by a recogniser, or as given captions say it. models: as `transcribe`
    takes them.

    Empty without a sound track, and where a network describes the pictures alone.
    """
    return recognise_many([(request, info)], settings, models=models, progress=progress, stop=stop)[
        0
    ]


def recognise_many(
    videos: "Sequence[tuple[Request, MediaInfo]]",
    settings: StepsSettings,
    *,
    models: "Models | None" = None,
    progress: Progress | None = None,
    stop: Event | None = None,
) -> list[Speech]:
    """Return what `recognise_speech` does of each of several videos, whose sound a GPU hears in one
    batch."""
    from stepline.asr import transcribe_many
    from stepline.media import AudioBlock, MediaReader

    known = [_speech_without_recogniser(request, info, settings) for request, info in videos]
    readers, sounds = [], []
    for (request, info), speech in zip(videos, known, strict=True):
        if speech is None:
            readers.append(
                MediaReader(
                    request.path,
                    frame_rate=None,
                    sound=True,
                    settings=settings.media,
                    part=request.part,
                )
            )
            ahead = read_ahead(readers[-1], SECONDS_AHEAD)
            sounds.append(
                with_progress(ahead, AudioBlock, "listening", info.duration, progress, stop)
            )
    transcribed = zip(readers, transcribe_many(sounds, settings.asr, models=models), strict=True)
    heard = (
        Speech(
            transcript=each.transcript,
            dropped=each.dropped,
            end=reader.end,
            warnings=reader.warnings + each.warnings,
        )
        for reader, each in transcribed
    )
    return [next(heard) if speech is None else speech for speech in known]


def _speech_without_recogniser(
    request: Request, info: "MediaInfo", settings: StepsSettings
) -> Speech | None:
    """Return what is said where nobody has to listen for it; else None."""
    if settings.procx.when == "alone" and not settings.procx.speech:
        return Speech(transcript=Transcript())
    if request.captions is not None:
        from stepline.asr import read_captions

        read = read_captions(request.captions, video_id=request.id, settings=settings.asr)
        return Speech(
            transcript=transcript_within(read.transcript, request.part), dropped=read.dropped
        )
    return None if info.has_sound else Speech(transcript=Transcript(), warnings=(NO_SOUND,))


def propose_steps(
    request: Request,
    transcript: Transcript,
    settings: StepsSettings,
    info: "MediaInfo | None" = None,
) -> "WrittenSteps":
    """Return the steps to look for: the user's own lines, else what a writer makes of the
    transcript.

    info: of the video, for a writer that is shown pictures of it.
    """
    from stepline.writing import WrittenSteps, write_steps

    if settings.procx.when == "alone":
        return WrittenSteps()
    if request.texts:
        from stepline.grounding.speech import steps_from_texts
        from stepline.text import embed

        sentences = embed([sentence.text for sentence in transcript.sentences])
        texts = embed(request.texts)
        return WrittenSteps(
            steps_from_texts(
                request.texts, transcript, sentences, texts, settings=settings.nasva.coarse
            )
        )
    pictures, llm = None, settings.writing.llm
    if settings.writing.writer == "llm" and llm.pictures and info is not None and info.has_picture:
        from stepline.chat.pictures import VideoPictures
        from stepline.vision_language.pictures import picture_reader

        start = request.part.start if request.part is not None else 0.0
        read = picture_reader(request.path, llm.picture_size, start=start, media=settings.media)
        pictures = VideoPictures(read, info.duration, start)
    return write_steps(transcript, settings.writing, pictures=pictures)


def extract_features(
    request: Request,
    info: "MediaInfo",
    settings: StepsSettings,
    *,
    backbone: "Backbone | None" = None,
    motion: bool = True,
    progress: Progress | None = None,
    stop: Event | None = None,
    thumbnails: "Thumbnails | None" = None,
    ahead: int = 0,
) -> VisualFeatures:
    """Return the features of a video's picture, row by row, with motion and cuts; empty without a
    picture or backbone.

    backbone: that of the settings, where several videos share it. motion: whether motion and cuts
    are measured.
    thumbnails: as `MediaReader` takes them. ahead: pictures that another thread decodes beforehand;
    for a GPU more. Ready features, where the settings name some, stand for what a network would
    see.
    """
    vision = settings.vision
    if not info.has_picture:
        return VisualFeatures(warnings=(NO_PICTURE,))
    if vision.backbone == "none":
        return VisualFeatures()
    from stepline.media import Frame, MediaReader
    from stepline.vision import (
        ActivityMeter,
        PrecomputedBackbone,
        VideoEncoder,
        frames_per_row,
        load_backbone,
    )
    from stepline.vision.cues import start_cues

    backbone = backbone or load_backbone(vision)
    ready = backbone.features(request.id) if isinstance(backbone, PrecomputedBackbone) else None
    ready = features_within(ready, request.part) if ready is not None else None
    encoder = VideoEncoder(backbone, rate=vision.rate, batch=current_device().batch(vision.batch))
    meter = ActivityMeter(rate=vision.rate, cut_ratio=vision.cut_ratio, cut_floor=vision.cut_floor)
    cues, unseen = start_cues(vision) if motion else (None, ())
    rate, measured = vision.rate * max(FRAMES_A_ROW, frames_per_row(backbone)), 0
    reader = MediaReader(
        request.path,
        frame_rate=rate,
        frame_size=vision.frame_size,
        sound=False,
        settings=settings.media,
        part=request.part,
        thumbnails=thumbnails,
    )
    if current_device().kind != "cpu":  # the CPU decodes about a batch while the GPU encodes one
        ahead = current_device().batch(FRAMES_AHEAD * FRAMES_A_ROW)
    with contextlib.closing(read_ahead(reader, ahead) if ahead else iter(reader)) as frames:
        for frame in with_progress(frames, Frame, "looking", info.duration, progress, stop):
            # Motion is measured at one pace, however many frames the backbone takes.
            if motion and frame.time * vision.rate * FRAMES_A_ROW >= measured:
                meter.add(frame)
                measured = math.floor(frame.time * vision.rate * FRAMES_A_ROW) + 1
            if cues is not None:
                cues.add(frame)
            if ready is None:
                encoder.add(frame)
    features = ready or encoder.finish()
    repeated = f"{len(encoder.repeated)} seconds have no picture; the one before stands for them"
    warnings = (*reader.warnings, *([repeated] if encoder.repeated else []), *unseen)
    activity = meter.finish() if motion else None
    return VisualFeatures(
        features, activity, backbone, reader.end, warnings, cues.finish() if cues else None
    )


def drop_speech_past_end(
    duration: float, transcript: Transcript, steps: Sequence[Step], *, keep_all_steps: bool
) -> SpeechInVideo:
    """Return the sentences that begin before `duration` seconds and the steps that rest on them.

    Later ones are captions of another video, or of one that was cut short. keep_all_steps: a step
    that rests on nothing else stays, as one that is not spoken of (the user's own lines).
    """
    sentences = tuple(
        sentence for sentence in transcript.sentences if sentence.span.start < duration
    )
    # sorted by start, so that the others keep their numbers
    late = transcript.sentences[len(sentences) :]
    if not late:
        return SpeechInVideo(transcript=transcript, steps=tuple(steps))
    shorter = transcript.model_copy(update={"sentences": sentences})
    reason = f"it is said after the video ends at {duration:.1f} s"
    dropped = [Rejected(what="sentence", text=sentence.text, reason=reason) for sentence in late]
    kept: list[Step] = []
    for step in steps:
        mended = _with_sources_inside(step, shorter)
        if step.sources and not mended.sources and not keep_all_steps:
            dropped.append(Rejected(what="step", text=mended.text, reason=reason))
        else:
            kept.append(mended)
    count = f"{len(late)} of {len(transcript.sentences)} sentences are"
    warning = f"{count} said after the video ends at {duration:.1f} s and left out; do the words belong to this video?"
    return SpeechInVideo(
        transcript=shorter, steps=tuple(kept), dropped=tuple(dropped), warnings=(warning,)
    )


def _with_sources_inside(step: Step, transcript: Transcript) -> Step:
    """Return the step with those of its sources that the transcript holds, said where they are."""
    sources = tuple(index for index in step.sources if index < len(transcript.sentences))
    if sources == step.sources:
        return step
    spans = [transcript.sentences[index].span for index in sources]
    said = (
        Span(min(span.start for span in spans), max(span.end for span in spans)) if spans else None
    )
    return step.model_copy(update={"sources": sources, "said": said})


def ground_steps(
    steps: Sequence[Step],
    duration: float,
    transcript: Transcript,
    visual: VisualFeatures,
    settings: StepsSettings,
    aligner: "LoadedAligner | None" = None,
    *,
    written: bool = True,
) -> "Grounding | AlignerGrounding":
    """Return the steps with the seconds in which they are shown, their scores and the alignment.

    aligner: a trained network that does it; else the default grounder, which needs none. written:
    whether the steps are what a writer found in the transcript, not the user's own lines.
    """
    vectors = (
        visual.backbone.encode_texts([step.text for step in steps]) if visual.backbone else None
    )
    if aligner is not None and visual.features is not None and vectors is not None:
        from stepline.nasva.predict import ground_by_aligner

        options = settings.nasva.aligner
        return ground_by_aligner(
            steps, aligner, visual.features, vectors, settings=options, duration=duration
        )
    from stepline.grounding.correspondence import load_weights
    from stepline.grounding.ground import ground

    backbone, said = visual.backbone, [sentence.text for sentence in transcript.sentences]
    known = backbone is not None and backbone.name in load_weights().mean_pictures
    return ground(
        steps,
        duration=duration,
        transcript=transcript,
        features=visual.features,
        step_vectors=vectors,
        activity=visual.activity,
        sentence_vectors=backbone.encode_texts(said)
        if backbone is not None and known and said
        else None,
        on_screen=visual.cues.lines if visual.cues is not None else (),
        written=written,
        settings=settings.nasva.ground,
    )


def ask_witness(
    request: Request,
    grounding: "Grounding | AlignerGrounding",
    visual: VisualFeatures,
    settings: StepsSettings,
    duration: float,
) -> "VisualAnswers":
    """Return what a vision-language model makes of the grounded steps, by pictures of the video
    itself."""
    from stepline.vision_language import GroundedVideo, ask_about_steps

    video = GroundedVideo(
        grounding.steps,
        grounding.alignment,
        _shots(visual, grounding.alignment.scores.shape[1]),
        _question_pictures(request, settings, duration),
        duration,
        request.part.start if request.part is not None else 0.0,
    )
    return ask_about_steps(video, settings.vision.witness, ground=settings.nasva.ground)


def describe_by_witness(
    request: Request,
    visual: VisualFeatures,
    settings: StepsSettings,
    duration: float,
    found: Descriptions,
) -> Descriptions:
    """Return the steps of a video in which nobody speaks, in a vision-language model's words for
    its pictures.

    found: what a network describes, if one is given; its places are asked about then.
    """
    from stepline.vision_language.describe import describe_places

    told = describe_places(
        _shots(visual, math.ceil(duration)),
        _question_pictures(request, settings, duration),
        duration=duration,
        settings=settings.vision.witness,
        found=found.steps,
        start=request.part.start if request.part is not None else 0.0,
    )
    network = found.network if isinstance(found.network, dict) else {}
    notes = (*found.notes, *told.notes, *([FROM_WITNESS] if told.steps else []))
    dropped = (*found.dropped, *told.dropped)
    return Descriptions(
        told.steps, found.captions, dropped, notes, {**network, "witness": told.report}
    )


def _shots(visual: VisualFeatures, seconds: int) -> list[slice]:
    """Return the shots of a video of so many seconds as slices of them; one where cuts are not
    known."""
    from stepline.grounding.evidence import shot_slices

    return shot_slices(visual.activity.cuts if visual.activity else (), seconds)


def _question_pictures(
    request: Request, settings: StepsSettings, duration: float
) -> "PictureReader":
    """Return what reads what a vision-language model is shown of a video, or of its part, by
    seconds."""
    from stepline.vision_language.pictures import question_pictures

    start = request.part.start if request.part is not None else 0.0
    witness = settings.vision.witness
    return question_pictures(
        request.path, witness, duration=duration, start=start, media=settings.media
    )


def doing_by_second(
    steps: Sequence[Step], transcript: Transcript, visual: VisualFeatures
) -> "npt.NDArray[np.float64] | None":
    """Return (T,): log odds of doing against talk in each second; None where no faces were looked
    for."""
    if visual.cues is None or not len(visual.cues.presenter) or visual.cues.rate != 1.0:
        return None
    from stepline.grounding.shots import doing_odds, told_and_chat

    presenter = visual.cues.presenter.astype(np.float64)
    return doing_odds(presenter, *told_and_chat(steps, transcript, len(presenter)))


def describe_evidence(
    step: Step,
    transcript: Transcript,
    visual: VisualFeatures,
    *,
    unclear: str = HARDLY_FIT,
    doing: "npt.NDArray[np.float64] | None" = None,
) -> Step:
    """Return the step with `seen`: what the picture says for and against it where it is shown, else
    while it is said.

    For it: a shot that begins with its sentence, its words on screen. Against it: a presenter's
    face for half of the time or longer, unless it is likelier at work (doing: (T,) log odds), what
    makes it unclear. Neither: other text that a person can compare.
    """
    span = shown_span(step) or step.said
    if span is None:
        return step
    seen = [f"against: {unclear}"] if step.status == "unclear" else []
    cuts = visual.activity.cuts if visual.activity is not None else ()
    sentences = [transcript.sentences[index] for index in step.sources]
    if any(-BEFORE <= cut - sentence.span.start <= AFTER for sentence in sentences for cut in cuts):
        seen.append("for: a new shot begins with its sentence")
    if visual.cues is not None:
        during = visual.cues.between(span.start, span.end)
        faces = during.presenter[np.isfinite(during.presenter)]
        works = doing is not None and float(doing[int(span.start) : math.ceil(span.end)].sum()) > 0
        if len(faces) and float((faces >= PRESENTER).mean()) >= HALF and not works:
            seen.append("against: a face looks into the camera, as a presenter's does")
        words = " ".join([step.text, *(sentence.text for sentence in sentences)])
        lines = [
            line
            for line in visual.cues.lines
            if line.span.overlap(span) > 0 and line.span.duration < STANDING
        ]
        lines = [line for line in lines if is_phrase(line.text) or is_said(line.text, words)]
        largest = sorted(lines, key=lambda line: -line.height)[:MOST_LINES]
        texts = {
            shorten(one_line(line.text), LINE): is_said(line.text, words)
            for line in lines
            if line in largest
        }
        seen += [
            f"{'for: its words stand' if own else 'text'}{ON_SCREEN}{text}"
            for text, own in texts.items()
        ]
    return step.model_copy(update={"seen": (*seen, *step.seen)})


def judge_sentences(
    transcript: Transcript,
    steps: Sequence[Step],
    alignment: Alignment | None,
    visual: VisualFeatures,
    settings: JudgeSettings,
    detector: "LoadedDetector | None" = None,
    media: Path | None = None,
) -> tuple[Transcript, str | None]:
    """Return the transcript with P(shown) of every sentence, and who judged; untouched, and None,
    where nobody can.

    steps: as grounded, row k of the alignment is step k; None where nothing was grounded. media:
    the video, which a detector of frames reads. Nobody can judge where nothing is said, or where
    the language is not the wording's and no detector was given.
    Raises SettingsError where a detector is given and there are no pictures, or none that it can
    read.
    """
    if not transcript.sentences:
        return transcript, None
    texts = [sentence.text for sentence in transcript.sentences]
    if detector is not None:
        from stepline.vision import PrecomputedBackbone
        from stepline.wys2.predict import encode_texts, judge_by_detector

        if (
            visual.features is None
            or visual.backbone is None
            or isinstance(visual.backbone, PrecomputedBackbone)
        ):
            what = "a detector needs pictures and texts of one kind"
            raise SettingsError(f"{detector.path}: {what}; set vision.backbone")
        seen: FeatureSequence | Path = visual.features
        if detector.network.settings.video == "s3d":
            if media is None:
                cure = "give the video to `stepline judge`, without --from and --to"
                raise SettingsError(f"{detector.path}: sees frames, not features; {cure}")
            seen = media
        vectors = encode_texts(detector.text, visual.backbone, texts)
        shown = judge_by_detector(detector, transcript.sentences, seen, vectors, settings.seconds)
        return _with_shown(transcript, shown), BY_DETECTOR
    if transcript.language is not None and transcript.language.lower().split("-")[0] not in ENGLISH:
        return transcript, None
    from stepline.wys2.judge import judge_by_grounding, judge_by_words

    if alignment is not None and visual.features is not None:
        shown = judge_by_grounding(
            transcript, steps, alignment, seconds=settings.seconds, weights=settings.weights
        )
        return _with_shown(transcript, shown), BY_GROUNDING
    from stepline.text import embed

    cited = {source for step in steps for source in step.sources}
    shown = judge_by_words(embed(texts), [number in cited for number in range(len(texts))])
    return _with_shown(transcript, shown), BY_WORDS


def _with_shown(transcript: Transcript, shown: Sequence[float]) -> Transcript:
    judged = zip(transcript.sentences, shown, strict=True)
    sentences = tuple(sentence.model_copy(update={"shown": round(p, 4)}) for sentence, p in judged)
    return transcript.model_copy(update={"sentences": sentences})
