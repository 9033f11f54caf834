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
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import partial
from threading import Event
from typing import TYPE_CHECKING

from pydantic import JsonValue

from stepline.device import current_device
from stepline.errors import MediaError
from stepline.pipeline.describe import check_amounts, describe_pictures
from stepline.pipeline.judging import judge_sentences
from stepline.pipeline.networks import Networks, fingerprint, load_networks, with_witness
from stepline.pipeline.part import in_whole_video, part_info
from stepline.pipeline.pictures import (
    FRAMES_AHEAD,
    VisualFeatures,
    _load_text_encoder,
    extract_features,
)
from stepline.pipeline.placing import PlacedSteps, _place_steps, describe_by_witness
from stepline.pipeline.request import Request, StepsSettings
from stepline.pipeline.speech import Speech, _near_the_video, drop_speech_past_end, recognise_speech
from stepline.progress import Progress, StoppedError, trim_memory
from stepline.records import Alignment, Record, Transcript, Video
from stepline.text.embedding import embedded_once
from stepline.version import __version__
from stepline.weights import sha256

if TYPE_CHECKING:
    from stepline.media import MediaInfo, Thumbnails
    from stepline.writing import WrittenSteps


@dataclass(frozen=True)
class StepsResult:
    """What `understand` returns: the record, and the alignment that a page draws; None where
    nothing was grounded."""

    record: Record
    alignment: Alignment | None


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
    settings = with_witness(settings, networks.witness)
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
