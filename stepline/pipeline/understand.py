"""From one video to its steps: the whole story, top to bottom, one function a stage.

In the 100 s of stepline/cli/demo/demo.mp4 it finds 16 sentences and 11 steps. The sentence "First of
all, slice the banana," is said (9.1, 11.1). Its step is "slice the banana", said (10.3, 11.1). It
is placed (9.8, 15.1), most likely at 11.5, with score 0.88.

    recognise_speech(...)        sound     -> sentences                              speech.py
    propose_steps(...)           sentences -> steps, each citing its sentences
    extract_features(...)        picture   -> feature rows, motion, cuts             pictures.py
    drop_speech_past_end(...)    captions may run on after the video's last second   speech.py
    place_steps(...)             steps x picture -> where each is shown, how sure    placing.py
    describe_by_network(...)       steps that no speech names                          describe.py
    judge_sentences(...)         a trained detector: does the picture show what is said?

This is the only place that puts a Record together, and the only one that knows every stage. Sound
and picture are each decoded once, side by side: while one core recognises speech and writes steps,
the other encodes pictures.
"""

import contextlib
import logging
import math
import re
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from threading import Event
from typing import TYPE_CHECKING, Any

from pydantic import JsonValue

from stepline.errors import MediaError, ModelError
from stepline.files.digests import sha256
from stepline.grounding.correspondence import TALK_WARNING
from stepline.grounding.evidence import picture_warning
from stepline.grounding.fusion import separate_overlapping_spans
from stepline.grounding.speech import TaskGraph, steps_from_texts
from stepline.media import MediaInfo
from stepline.networks.device import current_device
from stepline.numeric import limit_blas_to_one_thread
from stepline.outputs.text import one_line, sentence_case, shorten
from stepline.pipeline.describe import describe_by_network
from stepline.pipeline.networks import (
    Networks,
    check_ready_features,
    describe_inputs,
    load_networks,
)
from stepline.pipeline.part import media_info_of_part, to_whole_video_times
from stepline.pipeline.pictures import (
    PREFETCHED_FRAMES,
    VisualFeatures,
    VisualOptions,
    extract_features,
    free_picture_networks,
    load_text_encoder,
)
from stepline.pipeline.placing import (
    JUDGED_BY_DETECTOR,
    GroundedVideoSteps,
    decide_by_detector,
    describe_with_vlm,
    judge_sentences,
    place_steps,
)
from stepline.pipeline.request import Request, StepsSettings
from stepline.pipeline.screen import (
    CAPTIONS_NOTE,
    SCREEN_NOTE,
    place_steps_at_clicks,
    read_silent_screen_recording,
    screen_report,
    transcript_from_screen,
)
from stepline.pipeline.sources import read_media_info
from stepline.pipeline.speech import (
    Speech,
    drop_speech_past_end,
    recognise_speech,
    sentences_near_video,
)
from stepline.processes import limit_malloc_arenas, trim_memory
from stepline.progress import Progress, StoppedError
from stepline.records import Alignment, Record, TitleSource, Transcript, Video
from stepline.text import embed, load_encoder
from stepline.text.embedding import embedding_cache
from stepline.version import __version__
from stepline.writing import WrittenSteps, check_writer, write_steps
from stepline.writing.waits import with_wait

if TYPE_CHECKING:
    from stepline.writing.extractive.narration import ParsedNarration

log = logging.getLogger(__name__)

DURATION_DECIMALS = 3  # of a second, in a record's durations


@dataclass(frozen=True)
class StepsResult:
    """The result of `understand`.

    Attributes:
        record: the steps, sentences and materials that were found.
        alignment: (K steps, T seconds) P(step k is shown at second t). None if no step was
            grounded.
    """

    record: Record
    alignment: Alignment | None


@dataclass(frozen=True)
class VideoRun:
    """The inputs of every stage of a run.

    Attributes:
        request: the video, or a part of it.
        settings: settings of all stages of finding steps.
        networks: the trained networks.
        info: streams of the video file, and the duration of the part.
    """

    request: Request
    settings: StepsSettings
    networks: Networks
    info: MediaInfo


@dataclass(frozen=True)
class SpeechAndVisuals:
    """What was read from the sound and the pictures of a video.

    Attributes:
        speech: the transcript.
        written: the steps that were written from the transcript, or the user's lines.
        visual: features and cues extracted from the pictures.
        narration: grammatical analysis of English speech. None if there is none.
    """

    speech: Speech
    written: "WrittenSteps"
    visual: VisualFeatures
    narration: "ParsedNarration | None" = None


@embedding_cache()
@limit_blas_to_one_thread()
def understand(
    request: Request,
    settings: StepsSettings,
    *,
    networks: Networks | None = None,
    progress: Progress | None = None,
) -> StepsResult:
    """Find the steps of a video with the seconds in which they are shown.

    Args:
        request: the video, and the captions, lines, part and title that the user gave.
        settings: settings of all stages of finding steps.
        networks: networks that were loaded by the same settings. None: they are loaded.
        progress: called with the stage's name, the second reached and the duration in s.

    Raises a SteplineError if the video, the captions or a model cannot be read.
    """
    limit_malloc_arenas()
    # A language model that is not there ends the run before the recognition. With captions it is
    # asked immediately, and its cached replies serve without it.
    if request.captions is None and not request.texts and settings.procx.when != "alone":
        check_writer(settings.writing)
    whole = read_media_info(request, settings)
    networks = networks or load_networks(settings)
    check_ready_features(request, settings, networks)
    run = VideoRun(request, settings, networks, media_info_of_part(whole, request.part))
    # Before the reading: a file that is replaced during it is then known by what was there first.
    digest = sha256(request.path)
    run_fingerprint = describe_inputs(request, settings, networks)

    evidence = _read_sound_and_picture(run, progress)
    trim_memory()
    # The real duration is what could be decoded, or else what the file claims.
    decoded = max(evidence.speech.end, evidence.visual.end)
    duration = round(decoded or run.info.duration, DURATION_DECIMALS)
    if duration <= 0:
        raise MediaError(
            f"{request.path}: nothing in it can be decoded; convert it to mp4 and try again"
        )

    title, title_source = choose_title(request, run.info, evidence.narration)
    video = Video(
        id=request.id,
        path=str(request.path.absolute()),
        duration=round(whole.duration, DURATION_DECIMALS) if request.part else duration,
        title=title,
        sha256=digest,
        origin=request.origin,
        title_source=title_source,
        author=find_author(request, run.info),
        publication_date=find_publication_date(request, run.info),
    )
    result = _make_record(run, evidence, duration, video, run_fingerprint)
    if request.part is None:
        return result
    return StepsResult(*to_whole_video_times(result.record, result.alignment, request.start))


def _make_record(
    run: VideoRun,
    evidence: SpeechAndVisuals,
    duration: float,
    video: Video,
    run_fingerprint: dict[str, JsonValue],
) -> StepsResult:
    """Ground the steps, describe the pictures, judge the sentences, and return the record.

    Args:
        run: the inputs of the run.
        evidence: what was read from the sound and the pictures.
        duration: seconds of the video, or of its part.
        video: the video as the record names it.
        run_fingerprint: all inputs that decide the result, for `Record.settings`.
    """
    request, settings, networks = run.request, run.settings, run.networks
    speech, written, visual = evidence.speech, evidence.written, evidence.visual

    # where each step is shown
    inside = drop_speech_past_end(
        duration,
        speech.transcript,
        written.steps,
        keep_all_steps=bool(request.texts),
        start=request.start,
    )
    placed = place_steps(request, run.info, inside, visual, settings, networks, duration)
    # The changes of a screen place its steps, unless a trained network has placed them.
    if visual.screen is not None and networks.aligner is None:
        placed = place_steps_at_clicks(placed, inside.transcript, visual.screen, duration)

    # what the pictures alone show
    descriptions = describe_by_network(
        networks.describer, visual.features, placed.steps, settings.procx, duration
    )
    silent = not (inside.transcript.sentences or request.texts or networks.describer)
    if settings.vision.vlm.named and visual.features is not None and silent:
        descriptions = describe_with_vlm(request, visual, settings, duration)

    # what a trained detector of spoken sentences decides
    transcript, judge = inside.transcript, None
    if networks.detector is not None and run.info.has_picture:
        # A detector reads whole files, so a part of a video gives it none.
        media = request.path if request.part is None else None
        judge = JUDGED_BY_DETECTOR
        transcript = judge_sentences(transcript, visual, settings.judge, networks.detector, media)
        placed = replace(placed, steps=decide_by_detector(placed.steps, transcript))

    seconds = run.info.duration if request.part else duration
    stage_warnings = _grounding_warnings(placed, visual, seconds, round(request.start))
    warnings = [*run.info.warnings, *speech.warnings, *visual.warnings, *written.notes]
    warnings += [*stage_warnings, *inside.warnings, *descriptions.notes]
    record = Record(
        id=request.id,
        video=video,
        transcript=transcript,
        steps=tuple(map(with_wait, placed.steps or separate_overlapping_spans(descriptions.steps))),
        recipe=request.texts,
        captions=descriptions.captions,
        dropped=speech.dropped + written.dropped + inside.dropped + descriptions.dropped,
        warnings=tuple(dict.fromkeys(warnings)),  # each once
        settings=run_fingerprint,
        models=_used_models(
            run,
            evidence,
            placed,
            recogniser=transcript.recogniser,
            judge=judge,
            describer=descriptions.network,
        ),
        **_find_materials_and_tools(evidence, transcript, video.title or ""),
    )
    return StepsResult(record, placed.alignment)


def _grounding_warnings(
    placed: GroundedVideoSteps, visual: VisualFeatures, seconds: float, start: int
) -> list[str]:
    """Return warnings about missing pictures and uncertain steps.

    start: second of the video at which its part begins.
    """
    warnings = []
    if visual.activity is not None and visual.screen is None:  # a screen stays still
        warning = picture_warning(visual.activity, math.ceil(seconds), visual.on_screen, start)
        if warning is not None:
            warnings.append(warning)
    is_placed = any(step.spans for step in placed.steps)
    # where nothing can be shown, that the pictures do not fit the words goes without saying. The
    # changes of a screen recording fit them
    if any(step.basis == "screen" for step in placed.steps):
        warnings.append(SCREEN_NOTE)
    elif placed.grounding is not None and (is_placed or not warnings):
        warnings += placed.grounding.report.warnings
    if placed.lacks_instructions:
        warnings.append(TALK_WARNING)
    if placed.answers is not None:
        warnings += placed.answers.notes
    return warnings


def _used_models(
    run: VideoRun,
    evidence: SpeechAndVisuals,
    placed: GroundedVideoSteps,
    *,
    recogniser: str | None,
    judge: str | None,
    describer: JsonValue,
) -> dict[str, JsonValue]:
    """Return the names of the models that made the record, with the GPU and the sound track.

    The sound track is named only if there are several.
    """
    backbone, screen = evidence.visual.backbone, evidence.visual.screen
    is_written = not run.request.texts and run.settings.procx.when != "alone"
    models: dict[str, JsonValue] = {
        "stepline": __version__,
        "asr": recogniser,
        "writer": run.settings.writing.writer if is_written else None,
        "vision": backbone.name if backbone else None,
        "grounding": asdict(placed.grounding.report) if placed.grounding else None,
        "judge": judge,
        "describer": describer,
    }
    if placed.answers is not None:
        models["witness"] = placed.answers.report
    if evidence.speech.audio_track is not None:
        models["audio_track"] = evidence.speech.audio_track
    if screen is not None:
        models["screen"] = screen_report(screen)
    if current_device().label != "cpu":
        models["device"] = current_device().label
    return models


def _read_sound_and_picture(run: VideoRun, progress: Progress | None) -> SpeechAndVisuals:
    """Transcribe, write steps and extract visual features, in two threads.

    An error in one thread stops the other. In a video without speech, where no step can be found,
    the extraction is stopped as well.
    """
    request, info, settings = run.request, run.info, run.settings
    stop = Event()

    def end_look(look: "Future[VisualFeatures]") -> None:
        if look.exception() is not None:
            stop.set()
        elif run.networks.recognisers is None:  # no other video needs them
            free_picture_networks()

    # the picture, in a thread of its own
    with ThreadPoolExecutor(1, thread_name_prefix="see") as pool:
        options = VisualOptions(
            key_frames=_needs_key_frames_only(run),
            backbone=run.networks.backbone,
            reads_screen=True,
            progress=progress,
            stop_event=stop,
            prefetched_frames=PREFETCHED_FRAMES,
        )
        look = pool.submit(extract_features, request, info, settings, options)
        look.add_done_callback(end_look)
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
            is_described = run.networks.describer is not None or settings.vision.vlm.named
            is_needed = is_described or speech.transcript.sentences or request.texts
            if speech.end > 0 and not is_needed:
                stop.set()
                with contextlib.suppress(StoppedError):
                    look.result()  # raises what went wrong there
                screen = read_silent_screen_recording(request, info, settings)
                evidence = SpeechAndVisuals(speech, WrittenSteps(), VisualFeatures(screen=screen))
                return _use_screen_captions(run, evidence) or replace(
                    evidence, visual=VisualFeatures()
                )
            pool.submit(load_text_encoder, look)  # after the look, while steps are written
            near = sentences_near_video(speech.transcript, info.duration)
            narration = _parse_narration(request, near, settings)
            written = propose_steps(request, near, settings, narration, progress)
            evidence = SpeechAndVisuals(speech, written, look.result(), narration)
            return _use_screen_captions(run, evidence) or evidence
        except StoppedError:
            look.result()  # raises what went wrong there
            raise
        finally:
            stop.set()


def _needs_key_frames_only(run: VideoRun) -> bool:
    """Return whether no network or model of the user's needs a picture of every second."""
    vision, networks = run.settings.vision, run.networks
    is_usual = vision.look == "auto" and vision.backbone == "conse" and vision.rate == 1.0
    users = (networks.aligner, networks.detector, networks.describer)
    return is_usual and not vision.vlm.named and all(network is None for network in users)


def _use_screen_captions(run: VideoRun, evidence: SpeechAndVisuals) -> SpeechAndVisuals | None:
    """Return the evidence with the captions of a screen recording in place of speech.

    None if someone speaks, or if no captions are on the screen.
    """
    screen = evidence.visual.screen
    request = run.request
    is_spoken = evidence.speech.transcript.sentences or request.texts
    if screen is None or is_spoken or run.settings.procx.when == "alone":
        return None
    transcript = transcript_from_screen(screen, run.info.duration)
    if transcript is None:
        return None
    warnings = (*evidence.speech.warnings, CAPTIONS_NOTE)
    speech = evidence.speech.model_copy(update={"transcript": transcript, "warnings": warnings})
    narration = _parse_narration(request, transcript, run.settings)
    written = propose_steps(request, transcript, run.settings, narration)
    return SpeechAndVisuals(speech, written, evidence.visual, narration)


def _parse_narration(
    request: Request, transcript: Transcript, settings: StepsSettings
) -> "ParsedNarration | None":
    """Return the parsed English speech. None if there is none.

    It is also None if the parser is not installed and no writer needs it.
    """
    if not transcript.sentences or settings.procx.when == "alone":
        return None
    from stepline.writing.extractive.narration import non_english_note, parse_narration

    if non_english_note(transcript) is not None:
        return None
    try:
        # the writer's, before the grammar: while it is loaded it takes twice its memory
        load_encoder()
        return parse_narration(transcript, settings.writing)
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
    narration: "ParsedNarration | None" = None,
    progress: Progress | None = None,
) -> "WrittenSteps":
    """Return the steps to look for: the user's own lines, or what a writer makes of the transcript.

    Args:
        request: the video and the user's lines.
        transcript: what is said.
        settings: settings of all stages of finding steps.
        narration: the parsed transcript. None: the writer parses it.
        progress: called with the stage's name, the second reached and the duration in s.
    """
    if settings.procx.when == "alone":
        return WrittenSteps()
    if request.texts:
        return place_user_lines(
            request.texts, transcript, settings, request.graph, start=request.start
        )
    title = (request.origin and request.origin.title) or ""
    return write_steps(
        transcript, settings.writing, title=title, narration=narration, progress=progress
    )


def place_user_lines(
    lines: Sequence[str],
    transcript: Transcript,
    settings: StepsSettings,
    graph: "TaskGraph | None" = None,
    *,
    start: float = 0.0,
) -> WrittenSteps:
    """Return the user's lines as steps, in their order. A line that the speech says has `said`.

    A note names the first line that is said out of order.

    Args:
        lines: K lines.
        transcript: S sentences.
        settings: settings of all stages of finding steps.
        graph: the comparison of videos from which the lines come. It gives each step's kind. None:
            the lines come from elsewhere.
        start: second of the video from which the times of the transcript count.
    """
    from stepline.writing.extractive.writer import transcript_step_probabilities

    sentences = [sentence.text for sentence in transcript.sentences]
    placed = steps_from_texts(
        lines,
        transcript,
        embed(sentences),
        embed(lines),
        step_probabilities=transcript_step_probabilities(transcript, settings.writing),
        graph=graph,
        start=start,
    )
    moved = [f"line {step.id} is {step.doubt}" for step in placed if step.doubt]
    more = f" (and {len(moved) - 1} more)" if moved[1:] else ""
    cure = "write the lines in the order of the video"
    return WrittenSteps(placed, notes=tuple(f"{line}{more}; {cure}" for line in moved[:1]))


def _find_materials_and_tools(
    evidence: SpeechAndVisuals, transcript: Transcript, title: str
) -> dict[str, Any]:
    """Return the materials, tools, yields and times of the speech, as fields of a record."""
    from stepline.writing.materials import (
        find_materials,
        find_times,
        find_yields,
        materials_of_first_sentences,
        times_of_first_sentences,
    )

    narration = evidence.narration
    if narration is None:
        return {}
    count = len(transcript.sentences)
    needed = find_materials(narration, is_screen_recording=evidence.visual.screen is not None)
    return {
        "materials": materials_of_first_sentences(needed.materials, count),
        "tools": materials_of_first_sentences(needed.tools, count),
        "yields": materials_of_first_sentences(find_yields(narration, title), count),
        "times": times_of_first_sentences(find_times(narration), count),
    }


MAX_TITLE_CHARS = 200
# what stands for a space in a name: not the hyphens and points between two digits (2024-05-06)
WORD_SEPARATOR_PATTERN = re.compile(r"_+|(?<!\d)[-.]+|[-.]+(?!\d)")


def choose_title(
    request: Request, info: MediaInfo, narration: "ParsedNarration | None"
) -> tuple[str, TitleSource]:
    """Return the title of a video and the source of the title.

    The sources in order: the user, the page of the link, the file, the speech, the file name. The
    first source with a title is used.
    """
    # Titles that people or files give.
    candidates: dict[TitleSource, str | None] = {
        "user": request.title,
        "link": request.origin.title if request.origin else None,
        "file": info.title,
    }
    for source, text in candidates.items():
        title = one_line(text or "")
        if any(letter.isalnum() for letter in title):
            return shorten(title, MAX_TITLE_CHARS), source
    # Else what is said, and last the file's name.
    if narration is not None:
        from stepline.writing.extractive.titles import narration_title

        spoken = narration_title(narration)
        if spoken is not None:
            return shorten(spoken, MAX_TITLE_CHARS), "speech"
    return title_from_file_name(request.path.stem) or request.id, "name"


def find_author(request: Request, info: MediaInfo) -> str | None:
    """Return the author of a video, by the page of its link or the metadata of the file."""
    author = (request.origin and request.origin.uploader) or info.author
    return author and one_line(author)


def find_publication_date(request: Request, info: MediaInfo) -> str | None:
    """Return the day on which a video was published, as YYYY-MM-DD. None if it is unknown.

    It comes from the page of the video's link or from the metadata of the file.
    """
    return (request.origin and request.origin.upload_date) or info.publication_date


def title_from_file_name(stem: str) -> str:
    """Return the name of a file as a title: "my_lemonade-v2" is "My lemonade v2"."""
    return shorten(sentence_case(one_line(WORD_SEPARATOR_PATTERN.sub(" ", stem))), MAX_TITLE_CHARS)
