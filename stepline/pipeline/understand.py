"""From one video to its steps: the whole story, one call a stage.

This is the only place that puts a Record together, and the only one that knows every stage. Sound and picture are
each decoded once, side by side: while one core recognises speech and writes steps, the other sees.

What is said after the video ends: captions of another video, or of one that was cut short.
"""

import logging
import math
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from threading import Event
from typing import TYPE_CHECKING, TypeAlias

from pydantic import JsonValue

from stepline import __version__
from stepline.errors import MediaError, SettingsError
from stepline.pipeline.describe import described, load_describer
from stepline.pipeline.judge import judged, load_judge
from stepline.pipeline.request import Request, StepsSettings, fingerprint
from stepline.progress import Progress, StoppedError, trim_memory, with_progress
from stepline.records import Alignment, Dropped, FeatureSequence, Record, Span, Step, Transcript, Video
from stepline.weights import sha256

if TYPE_CHECKING:
    from stepline.asr import TranscriptionResult
    from stepline.grounding.ground import Grounding
    from stepline.media import MediaInfo
    from stepline.nasva.checkpoint import LoadedAligner
    from stepline.nasva.predict import AlignerGrounding
    from stepline.vision import Activity, Backbone

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Kept:
    """What lies within the video, what was left out, and a warning (none where nothing was)."""

    transcript: Transcript
    steps: tuple[Step, ...]
    dropped: tuple[Dropped, ...] = ()
    warnings: tuple[str, ...] = ()


def within(duration: float, transcript: Transcript, steps: Sequence[Step], *, keep_all_steps: bool) -> Kept:
    """Return the sentences that begin before `duration` seconds and the steps that rest on them.

    keep_all_steps: a step that rests on nothing else stays, as one that is not spoken of (the user's own lines).
    """
    sentences = tuple(sentence for sentence in transcript.sentences if sentence.span.start < duration)
    late = transcript.sentences[len(sentences) :]  # sorted by start, so that the others keep their numbers
    if not late:
        return Kept(transcript, tuple(steps))
    shorter = transcript.model_copy(update={"sentences": sentences})
    mended = [_resting_on(step, shorter) for step in steps]
    pairs = zip(steps, mended, strict=True)
    lost = [new for old, new in pairs if old.sources and not new.sources and not keep_all_steps]
    reason = f"it is said after the video ends at {duration:.1f} s"
    dropped = (
        *(Dropped(what="sentence", text=sentence.text, reason=reason) for sentence in late),
        *(Dropped(what="step", text=step.text, reason=reason) for step in lost),
    )
    count = f"{len(late)} of {len(transcript.sentences)} sentences are"
    warning = f"{count} said after the video ends at {duration:.1f} s and left out; do the words belong to this video?"
    return Kept(shorter, tuple(step for step in mended if step not in lost), dropped, (warning,))


def _resting_on(step: Step, transcript: Transcript) -> Step:
    """Return the step with those of its sources that are left, said where they are."""
    sources = tuple(index for index in step.sources if index < len(transcript.sentences))
    if sources == step.sources:
        return step
    spans = [transcript.sentences[index].span for index in sources]
    said = Span(min(span.start for span in spans), max(span.end for span in spans)) if spans else None
    return step.model_copy(update={"sources": sources, "said": said})


__all__ = ["Request", "StepsSettings", "Understanding", "fingerprint", "hear", "place", "propose", "see", "understand"]


# What is said, the last second read, warnings.
Listened: TypeAlias = "tuple[TranscriptionResult, float, tuple[str, ...]]"
Proposed: TypeAlias = tuple[tuple[Step, ...], tuple[Dropped, ...], tuple[str, ...]]  # steps, what was left out, notes

NO_SOUND = "it has no sound track"
NO_PICTURE = "no picture in it can be seen, so nothing counts as shown"

LOOKS = 3  # frames a feature row: an odd number puts one on the middle of the row; the others measure motion


@dataclass(frozen=True)
class Understanding:
    """What `understand` returns: the record, and the alignment that a page draws."""

    record: Record
    alignment: Alignment | None


@dataclass(frozen=True)
class Seen:
    """What the picture gave: features (T, D) and motion, or nothing where there is no picture to use."""

    features: FeatureSequence | None = None
    activity: "Activity | None" = None
    backbone: "Backbone | None" = None
    end: float = 0.0
    warnings: tuple[str, ...] = ()


def understand(request: Request, settings: StepsSettings, *, progress: Progress | None = None) -> Understanding:
    """Return the steps of a video with the seconds in which they are shown.

    Raises a SteplineError when the video, the captions or a model cannot be read.
    """
    from stepline.media import probe

    info = probe(request.path, settings.media)
    # Before the reading: what is replaced meanwhile is then done again.
    digest, made_from = sha256(request.path), fingerprint(request, settings)
    loaded, detector = load_aligner(settings), load_judge(settings.judge, settings.vision)
    describer = load_describer(settings.procx, settings.vision)
    (heard, end, sound_warnings), (steps, dropped, notes), seen = _attend(request, info, settings, progress)
    trim_memory()
    duration = round(max(end, seen.end) or info.duration, 3)
    if duration <= 0:
        raise MediaError(f"{request.path}: nothing in it can be decoded; convert it to mp4 and try again")
    kept = within(duration, heard.transcript, steps, keep_all_steps=bool(request.texts))
    seeable = bool(kept.steps) and info.has_picture
    grounding = place(kept.steps, duration, kept.transcript, seen, settings, loaded) if seeable else None
    notes = (*notes, *grounding.report.doubts) if grounding else notes
    placed, alignment = (grounding.steps, grounding.alignment) if grounding else (_unshown(kept.steps), None)
    transcript, judge = kept.transcript, None
    pictures = described(describer, seen.features, transcript, placed, settings.procx, duration)
    if info.has_picture:
        transcript, judge = judged(transcript, placed, alignment, seen, settings.judge, detector)
    record = Record(
        id=request.id,
        video=Video(id=request.id, path=str(request.path.absolute()), duration=duration, sha256=digest),
        transcript=transcript,
        steps=placed or pictures.steps,
        recipe=request.texts,
        captions=pictures.captions,
        dropped=heard.dropped + dropped + kept.dropped + pictures.dropped,
        warnings=tuple(
            dict.fromkeys((*info.warnings, *sound_warnings, *seen.warnings, *notes, *kept.warnings, *pictures.notes))
        ),
        settings=made_from,
        models=_models(request, transcript, seen, settings, grounding) | {"judge": judge, "describer": pictures.told},
    )
    return Understanding(record, alignment)


def _attend(
    request: Request, info: "MediaInfo", settings: StepsSettings, progress: Progress | None
) -> tuple[Listened, Proposed, Seen]:
    """Listen, write and look side by side; what fails on one side stops the other, as Ctrl-C stops both."""
    stop = Event()
    with ThreadPoolExecutor(1, thread_name_prefix="see") as pool:
        seeing = pool.submit(see, request, info, settings, progress=progress, stop=stop)
        seeing.add_done_callback(lambda done: _stop_if_failed(done, stop))
        try:
            listened = hear(request, info, settings, progress=progress, stop=stop)
            trim_memory()  # the recogniser's, before the grammar is loaded
            proposed = propose(request, listened[0].transcript, settings)
            return listened, proposed, seeing.result()
        except StoppedError:
            seeing.result()  # raises what went wrong there
            raise
        finally:
            stop.set()


def _stop_if_failed(done: "Future[Seen]", stop: Event) -> None:
    if done.exception() is not None:
        stop.set()


def hear(
    request: Request,
    info: "MediaInfo",
    settings: StepsSettings,
    *,
    progress: Progress | None = None,
    stop: Event | None = None,
) -> Listened:
    """Return what is said, the last second of sound that could be read, and warnings.

    Given captions stand for recognition; a video without a sound track has an empty transcript.
    """
    if settings.procx.when == "alone" and not settings.procx.speech:
        from stepline.asr import TranscriptionResult

        return TranscriptionResult(Transcript(), ()), 0.0, ()
    if request.captions is not None:
        from stepline.asr import read_captions

        return read_captions(request.captions, video_id=request.id, settings=settings.asr), 0.0, ()
    from stepline.asr import TranscriptionResult, transcribe
    from stepline.media import AudioBlock, MediaReader

    if not info.has_sound:
        return TranscriptionResult(Transcript(), ()), 0.0, (NO_SOUND,)
    reader = MediaReader(request.path, frame_rate=None, frame_size=None, sound=True, settings=settings.media)
    heard = transcribe(with_progress(reader, AudioBlock, "listening", info.duration, progress, stop), settings.asr)
    return heard, reader.end, reader.warnings


def propose(request: Request, transcript: Transcript, settings: StepsSettings) -> Proposed:
    """Return the steps to look for: the user's own lines, else what a writer makes of the transcript."""
    if settings.procx.when == "alone":
        return (), (), ()
    if request.texts:
        from stepline.grounding.speech import place_texts
        from stepline.text import embed

        sentences = [sentence.text for sentence in transcript.sentences]
        vectors = embed(sentences), embed(request.texts)
        return place_texts(request.texts, transcript, *vectors, settings=settings.nasva.coarse), (), ()
    from stepline.writing import write_steps

    written = write_steps(transcript, settings.writing)
    return written.steps, written.dropped, written.notes


def see(
    request: Request,
    info: "MediaInfo",
    settings: StepsSettings,
    *,
    progress: Progress | None = None,
    stop: Event | None = None,
) -> Seen:
    """Return what the picture shows, second by second; nothing when there is no picture or no backbone is wanted."""
    if not info.has_picture:
        return Seen(warnings=(NO_PICTURE,))
    if settings.vision.backbone == "none":
        return Seen()
    from stepline.media import Frame, MediaReader
    from stepline.vision import ActivityMeter, PrecomputedBackbone, VideoEncoder, frames_per_row, load_backbone

    vision = settings.vision
    backbone = load_backbone(vision)
    ready = backbone.features(request.id) if isinstance(backbone, PrecomputedBackbone) else None
    encoder = VideoEncoder(backbone, rate=vision.rate, batch=vision.batch)
    meter = ActivityMeter(rate=vision.rate, cut_ratio=vision.cut_ratio, cut_floor=vision.cut_floor)
    rate, looks = vision.rate * max(LOOKS, frames_per_row(backbone)), 0
    reader = MediaReader(
        request.path, frame_rate=rate, frame_size=vision.frame_size, sound=False, settings=settings.media
    )
    for frame in with_progress(reader, Frame, "looking", info.duration, progress, stop):
        if frame.time * vision.rate * LOOKS >= looks:  # motion is measured at one pace, however many frames come
            meter.add(frame)
            looks = math.floor(frame.time * vision.rate * LOOKS) + 1
        if ready is None:
            encoder.add(frame)
    features = ready or encoder.finish()
    held = f"{len(encoder.repeated)} seconds have no picture; the one before stands for them"
    warnings = (*reader.warnings, held) if encoder.repeated else reader.warnings
    return Seen(features, meter.finish(), backbone, reader.end, warnings)


def load_aligner(settings: StepsSettings) -> "LoadedAligner | None":
    """Return the trained network that the settings name, before the minutes of work that one which is no fit costs."""
    path, vision = settings.nasva.aligner.path, settings.vision
    if path is None:
        return None
    from stepline.nasva.checkpoint import load_aligner

    loaded = load_aligner(path)
    if vision.backbone == "none":
        raise SettingsError(f"{path}: a trained network needs pictures; take out vision.backbone=none")
    loaded.check_space(vision.backbone, vision.text_space, rate=vision.rate)
    loaded.check_scale(unit=vision.backbone != "precomputed" or vision.unit)
    return loaded


def place(
    steps: Sequence[Step],
    duration: float,
    transcript: Transcript,
    seen: Seen,
    settings: StepsSettings,
    loaded: "LoadedAligner | None" = None,
) -> "Grounding | AlignerGrounding":
    """Return the steps with the seconds in which they are shown, their scores and the alignment."""
    from stepline.grounding.ground import ground

    vectors = seen.backbone.encode_texts([step.text for step in steps]) if seen.backbone else None
    if loaded is not None and seen.features is not None and vectors is not None:
        from stepline.nasva.predict import ground_by_aligner

        return ground_by_aligner(
            steps, loaded, seen.features, vectors, settings=settings.nasva.aligner, duration=duration
        )
    return ground(
        steps,
        duration=duration,
        transcript=transcript,
        features=seen.features,
        step_vectors=vectors,
        activity=seen.activity,
        settings=settings.nasva.ground,
    )


def _unshown(steps: Sequence[Step]) -> tuple[Step, ...]:
    """Return the steps of sound without a picture: none is shown."""
    return tuple(
        step.model_copy(update={"status": "said" if step.said else "not found", "score": 0.0}) for step in steps
    )


def _models(
    request: Request,
    transcript: Transcript,
    seen: Seen,
    settings: StepsSettings,
    grounding: "Grounding | AlignerGrounding | None",
) -> dict[str, JsonValue]:
    return {
        "stepline": __version__,
        "asr": transcript.recogniser,
        "writer": None if request.texts or settings.procx.when == "alone" else settings.writing.writer,
        "vision": seen.backbone.name if seen.backbone else None,
        "grounding": asdict(grounding.report) if grounding else None,
    }
