"""From one video to its steps: the whole story, top to bottom, one function a stage.

In the 100 s of stepline/demo/demo.mp4 it finds 16 sentences and 11 steps. The sentence "First of
all, slice the banana," is said (9.1, 11.1). Its step is "slice the banana", said (10.3, 11.1). It
is shown (9, 12), most likely at 11.5, with score 0.90.

    recognise_speech(...)        sound     -> sentences                              speech.py
    propose_steps(...)           sentences -> steps, each citing its sentences
    extract_features(...)        picture   -> feature rows, motion, cuts             pictures.py
    drop_speech_past_end(...)    captions may run on after the video's last second   speech.py
    place_steps(...)             steps x picture -> where each is shown, how sure    placing.py
    describe_pictures(...)       steps that no speech names                          describe.py
    judge_sentences(...)         does the picture show what is said?                 judging.py

This is the only place that puts a Record together, and the only one that knows every stage. Sound
and picture are each decoded once, side by side: while one core recognises speech and writes steps,
the other encodes pictures.
"""

import contextlib
import logging
import math
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from threading import Event
from typing import TYPE_CHECKING

from pydantic import JsonValue

from stepline.errors import MediaError, ModelError
from stepline.files.digests import sha256
from stepline.networks.device import current_device
from stepline.numeric import one_blas_thread
from stepline.pipeline.captions_alone import read_media_info
from stepline.pipeline.describe import Descriptions, check_amounts, describe_pictures
from stepline.pipeline.judging import judge_sentences
from stepline.pipeline.networks import Networks, fingerprint, load_networks
from stepline.pipeline.part import in_whole_video, part_info
from stepline.pipeline.pictures import (
    FRAMES_AHEAD,
    LookOptions,
    VisualFeatures,
    extract_features,
    load_text_encoder,
)
from stepline.pipeline.placing import PlacedSteps, describe_with_vlm, place_steps
from stepline.pipeline.request import Request, StepsSettings
from stepline.pipeline.screen import (
    CAPTIONS_NOTE,
    SCREEN_NOTE,
    captions_on_screen,
    find_silent_screen,
    screen_report,
    with_clicks,
)
from stepline.pipeline.speech import (
    Speech,
    SpeechInVideo,
    drop_speech_past_end,
    near_the_video,
    recognise_speech,
)
from stepline.pipeline.titles import choose_title, find_author, find_publication_date
from stepline.pipeline.user_lines import UserLines, place_user_lines
from stepline.pipeline.work_needs import needed_things, work_times, work_yields
from stepline.processes import limit_malloc_arenas, trim_memory
from stepline.progress import Progress, StoppedError
from stepline.records import Alignment, Record, Step, Transcript, Video
from stepline.text.embedding import embedded_once
from stepline.version import __version__

if TYPE_CHECKING:
    from stepline.media import MediaInfo, Thumbnails
    from stepline.writing import WrittenSteps
    from stepline.writing.extractive.reading import NarrationReading

log = logging.getLogger(__name__)

MEDIA_DECIMALS = 3  # of a second, in a record's durations


@dataclass(frozen=True)
class StepsResult:
    """What `understand` returns: the record, and the alignment that a page draws. None where
    nothing was grounded."""

    record: Record
    alignment: Alignment | None


@dataclass(frozen=True)
class VideoRun:
    """What every stage reads of one run. info: what the file holds, as long as the part."""

    request: Request
    settings: StepsSettings
    networks: Networks
    info: "MediaInfo"


@dataclass(frozen=True)
class SoundAndPicture:
    """What was heard, written and seen of one video. narration: the reading of what is said, None
    where there is nothing in English to read."""

    speech: Speech
    written: "WrittenSteps"
    visual: VisualFeatures
    narration: "NarrationReading | None" = None


@dataclass(frozen=True)
class StageResults:
    """What the stages found in one video. judge: who judged its sentences, if anyone did."""

    evidence: SoundAndPicture
    inside: SpeechInVideo
    placed: PlacedSteps
    descriptions: Descriptions
    transcript: Transcript
    judge: str | None


@embedded_once()
@one_blas_thread()
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
    limit_malloc_arenas()
    _check_writer_before_recognition(request, settings)
    whole = read_media_info(request, settings)
    networks = networks or load_networks(settings)
    run = VideoRun(request, settings, networks, part_info(whole, request.part))
    # Before the reading: a file that is replaced during it is then known by what was there first.
    digest = sha256(request.path)
    made_from = fingerprint(request, settings, networks)

    evidence = _read_sound_and_picture(run, progress, thumbnails)
    trim_memory()
    duration = _decoded_seconds(run, evidence.speech, evidence.visual)
    results = _find_steps(run, evidence, duration)

    if request.part is not None:
        duration = round(whole.duration, MEDIA_DECIMALS)
    title, title_source = choose_title(request, run.info, evidence.narration)
    video = Video(
        id=request.id,
        path=str(request.path.absolute()),
        duration=duration,
        title=title,
        sha256=digest,
        origin=request.origin,
        title_source=title_source,
        author=find_author(request, run.info),
        publication_date=find_publication_date(request, run.info),
    )
    record = _build_record(run, video, results, made_from)
    if request.part is None:
        return StepsResult(record, results.placed.alignment)
    return StepsResult(*in_whole_video(record, results.placed.alignment, request.start))


def _check_writer_before_recognition(request: Request, settings: StepsSettings) -> None:
    """Raise where a language model is to write what is to be recognised first, and is not there.

    With captions it is asked immediately: then its cached replies serve without it.
    """
    from stepline.writing import check_writer

    if request.captions is None and not request.texts and settings.procx.when != "alone":
        check_writer(settings.writing)


def _decoded_seconds(run: VideoRun, speech: Speech, visual: VisualFeatures) -> float:
    """Return how long the video really is: what could be decoded, or else what its file claims."""
    duration = round(max(speech.end, visual.end) or run.info.duration, MEDIA_DECIMALS)
    if duration <= 0:
        cure = "convert it to mp4 and try again"
        raise MediaError(f"{run.request.path}: nothing in it can be decoded; {cure}")
    return duration


def _find_steps(run: VideoRun, evidence: SoundAndPicture, duration: float) -> StageResults:
    """Place, describe and judge: all that follows once sound and picture have been read."""
    request = run.request
    settings = run.settings
    networks = run.networks
    visual = evidence.visual

    # where each step is shown
    inside = drop_speech_past_end(
        duration,
        evidence.speech.transcript,
        evidence.written.steps,
        keep_all_steps=bool(request.texts),
    )
    sentence_probabilities = None
    if isinstance(evidence.written, UserLines):
        sentence_probabilities = evidence.written.sentence_probabilities
    placed = place_steps(
        request,
        run.info,
        inside,
        visual,
        settings,
        networks,
        duration,
        sentence_probabilities=sentence_probabilities,
    )
    # The changes of a screen place its steps, unless a trained network has placed them.
    if visual.screen is not None and networks.aligner is None:
        placed = with_clicks(placed, inside.transcript, visual.screen, duration)
    if settings.writing.llm.pictures:
        checked = _with_checked_amounts(run, placed.steps, inside, visual)
        placed = replace(placed, steps=checked)

    # what the pictures alone show
    descriptions = describe_pictures(
        networks.describer,
        visual.features,
        inside.transcript,
        placed.steps,
        settings.procx,
        duration,
    )
    silent = not (inside.transcript.sentences or request.texts)
    if settings.vision.vlm.named and visual.features is not None and silent:
        descriptions = describe_with_vlm(request, visual, settings, duration, descriptions)
        checked = _with_checked_amounts(run, descriptions.steps, inside, visual)
        descriptions = replace(descriptions, steps=checked)

    # which sentences are shown
    transcript = inside.transcript
    judge = None
    if run.info.has_picture:
        # A detector reads whole files, so a part of a video gives it none.
        whole_file = request.path if request.part is None else None
        transcript, judge = judge_sentences(
            inside.transcript,
            placed.steps,
            placed.alignment,
            visual,
            settings.judge,
            networks.detector,
            whole_file,
        )
    return StageResults(evidence, inside, placed, descriptions, transcript, judge)


def _with_checked_amounts(
    run: VideoRun, steps: tuple[Step, ...], inside: SpeechInVideo, visual: VisualFeatures
) -> tuple[Step, ...]:
    lines = visual.cues.lines if visual.cues else ()
    return tuple(check_amounts(step, inside.transcript, lines, run.request.start) for step in steps)


def _picture_warnings(visual: VisualFeatures, duration: float) -> list[str]:
    """Return what the user should know of seconds without a picture."""
    from stepline.grounding.evidence import picture_warning

    if visual.activity is None or visual.screen is not None:  # a screen stays still
        return []
    lines = visual.cues.lines if visual.cues is not None else ()
    warning = picture_warning(visual.activity, math.ceil(duration), lines)
    return [] if warning is None else [warning]


def _build_record(
    run: VideoRun, video: Video, results: StageResults, made_from: dict[str, JsonValue]
) -> Record:
    """Return the record of a video, with every warning and everything that was left out."""
    from stepline.grounding.fusion import part_neighbours

    placed = results.placed
    descriptions = results.descriptions
    evidence = results.evidence

    # the warnings, in the order of the stages
    warnings = [*run.info.warnings, *evidence.speech.warnings, *evidence.visual.warnings]
    warnings += evidence.written.notes
    seconds = run.info.duration if run.request.part else video.duration or 0.0
    without_picture = _picture_warnings(evidence.visual, seconds)
    warnings += without_picture
    is_placed = any(step.spans for step in placed.steps)
    # where nothing can be shown, that the pictures do not fit the words goes without saying. The
    # clicks of a screen recording fit them
    is_clicked = any(step.target is not None for step in placed.steps)
    is_comparable = (is_placed or not without_picture) and not is_clicked
    if placed.grounding is not None and is_comparable:
        warnings += placed.grounding.report.doubts
    if placed.answers is not None:
        warnings += placed.answers.notes
    warnings += [*results.inside.warnings, *descriptions.notes]
    if evidence.visual.screen is not None:
        warnings.append(SCREEN_NOTE)

    # what was left out, and what the work needs
    dropped = evidence.speech.dropped + evidence.written.dropped + results.inside.dropped
    narration = evidence.narration
    needed = needed_things(narration, results.transcript)
    return Record(
        id=run.request.id,
        video=video,
        transcript=results.transcript,
        materials=needed.materials,
        tools=needed.tools,
        yields=work_yields(narration, results.transcript, video.title or ""),
        times=work_times(narration, results.transcript),
        steps=placed.steps or part_neighbours(descriptions.steps),
        recipe=run.request.texts,
        captions=descriptions.captions,
        dropped=dropped + descriptions.dropped,
        warnings=tuple(dict.fromkeys(warnings)),  # each once
        settings=made_from,
        models=_models_used(run, results),
    )


def _models_used(run: VideoRun, results: StageResults) -> dict[str, JsonValue]:
    """Return what recognised, wrote, encoded, placed and judged, as a record names them. With them
    come the device where it is not a CPU and the sound track where there are several."""
    placed = results.placed
    backbone = results.evidence.visual.backbone
    writer: str | None = run.settings.writing.writer
    if run.request.texts or run.settings.procx.when == "alone":
        writer = None
    models: dict[str, JsonValue] = {
        "stepline": __version__,
        "asr": results.transcript.recogniser,
        "writer": writer,
        "vision": backbone.name if backbone else None,
        "grounding": asdict(placed.grounding.report) if placed.grounding else None,
        "judge": results.judge,
        "describer": results.descriptions.network,
    }
    if placed.answers is not None:
        models["witness"] = placed.answers.report
    if results.evidence.speech.audio_track is not None:
        models["audio_track"] = results.evidence.speech.audio_track
    if results.evidence.visual.screen is not None:
        models["screen"] = screen_report(results.evidence.visual.screen)
    if current_device().label != "cpu":
        models["device"] = current_device().label
    return models


def _read_sound_and_picture(
    run: VideoRun, progress: Progress | None, thumbnails: "Thumbnails | None"
) -> SoundAndPicture:
    """Recognise, write and look side by side. What fails on one side stops the other, as Ctrl-C
    stops both.

    Hours of sound in which no one speaks end the look too: no step is sought in the pictures then.
    """
    from stepline.writing import WrittenSteps

    request = run.request
    info = run.info
    settings = run.settings
    stop = Event()

    def stop_if_failed(look: "Future[VisualFeatures]") -> None:
        if look.exception() is not None:
            stop.set()

    # the picture, in a thread of its own
    with ThreadPoolExecutor(1, thread_name_prefix="see") as pool:
        options = LookOptions(
            screens=True, progress=progress, stop=stop, thumbnails=thumbnails, ahead=FRAMES_AHEAD
        )
        look = pool.submit(extract_features, request, info, settings, options)
        look.add_done_callback(stop_if_failed)
        try:
            speech = recognise_speech(
                request,
                info,
                settings,
                models=run.networks.recognisers,
                progress=progress,
                stop=stop,
            )
            trim_memory()  # the recogniser's memory, before the grammar is loaded

            # nothing to look for in the pictures: the look ends
            if speech.end > 0 and not _pictures_are_needed(run, speech):
                stop.set()
                with contextlib.suppress(StoppedError):
                    look.result()  # raises what went wrong there
                screen = find_silent_screen(request, info, settings)
                evidence = SoundAndPicture(speech, WrittenSteps(), VisualFeatures(screen=screen))
                return _with_typed_captions(run, evidence) or replace(
                    evidence, visual=VisualFeatures()
                )
            pool.submit(load_text_encoder, look)  # after the look, while steps are written
            near = near_the_video(speech.transcript, info.duration)
            narration = _read_narration(request, near, settings)
            written = propose_steps(request, near, settings, info, narration)
            evidence = SoundAndPicture(speech, written, look.result(), narration)
            return _with_typed_captions(run, evidence) or evidence
        except StoppedError:
            look.result()  # raises what went wrong there
            raise
        finally:
            stop.set()


def _pictures_are_needed(run: VideoRun, speech: Speech) -> bool:
    """Whether there is something to find in the pictures, or something that describes them."""
    if speech.transcript.sentences or run.request.texts:
        return True
    return run.networks.describer is not None or run.settings.vision.vlm.named


def _with_typed_captions(run: VideoRun, evidence: SoundAndPicture) -> SoundAndPicture | None:
    """Return what captions on a screen say in place of speech, and the steps of it. None where
    someone speaks, or no captions are read."""
    screen = evidence.visual.screen
    request = run.request
    if screen is None or evidence.speech.transcript.sentences or request.texts:
        return None
    if run.settings.procx.when == "alone":
        return None
    transcript = captions_on_screen(screen, run.info.duration)
    if transcript is None:
        return None
    warnings = (*evidence.speech.warnings, CAPTIONS_NOTE)
    speech = evidence.speech.model_copy(update={"transcript": transcript, "warnings": warnings})
    narration = _read_narration(request, transcript, run.settings)
    written = propose_steps(request, transcript, run.settings, run.info, narration)
    return SoundAndPicture(speech, written, evidence.visual, narration)


def _read_narration(
    request: Request, transcript: Transcript, settings: StepsSettings
) -> "NarrationReading | None":
    """Return the reading of what is said. None where there is nothing in English to read, or where
    what reads it is not installed and no writer needs it."""
    if not transcript.sentences or settings.procx.when == "alone":
        return None
    from stepline.text import load_encoder
    from stepline.writing.extractive.reading import foreign_note, read_narration

    if foreign_note(transcript) is not None:
        return None
    try:
        # the writer's, before the grammar: while it is loaded it takes twice its memory
        load_encoder()
        return read_narration(transcript, settings.writing)
    except ModelError as error:
        # A writer that needs the reading fails here. Others lose the title and the materials alone.
        if settings.writing.writer == "extractive" and not request.texts:
            raise
        log.warning("no title and no materials from what is said: %s", error)
        return None


def propose_steps(
    request: Request,
    transcript: Transcript,
    settings: StepsSettings,
    info: "MediaInfo | None" = None,
    narration: "NarrationReading | None" = None,
) -> "WrittenSteps":
    """Return the steps to look for: the user's own lines, else what a writer makes of the
    transcript.

    info: of the video, for a writer that is shown pictures of it. narration: the transcript as it
    was read already.
    """
    from stepline.writing import WrittenSteps, write_steps

    if settings.procx.when == "alone":
        return WrittenSteps()
    if request.texts:
        return place_user_lines(request.texts, transcript, settings, request.graph)

    # pictures, for a language model that is shown some
    pictures = None
    llm = settings.writing.llm
    if settings.writing.writer == "llm" and llm.pictures and info is not None and info.has_picture:
        from stepline.grounding.vision_language.places import picture_reader
        from stepline.llm.pictures import VideoPictures

        reader = picture_reader(
            request.path, llm.picture_size, start=request.start, media=settings.media
        )
        pictures = VideoPictures(reader, info.duration, request.start)
    title = ""
    if request.origin:
        title = request.origin.title or ""
    return write_steps(
        transcript, settings.writing, pictures=pictures, title=title, narration=narration
    )
