"""The process of one job: it does the main job on a video or a playlist, and reports to the studio."""

import os
import time
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from pydantic import field_validator

from stepline.errors import SteplineError, format_error_line
from stepline.language_tags import Language
from stepline.library.corrected_library import check_allowed_path, reject_outside_links
from stepline.networks.weights import weights_fetched
from stepline.outputs import USUAL, output_path
from stepline.pipeline.batch import run_video
from stepline.pipeline.networks import load_networks
from stepline.pipeline.output_files import OutputOptions
from stepline.pipeline.request import StepsSettings
from stepline.pipeline.sources import find_sources
from stepline.plugins import plugin_names
from stepline.progress import Progress
from stepline.records import FrozenModel, LinkOrigin, Span
from stepline.settings import validate
from stepline.speech.recogniser import ENGLISH_MODEL, MULTILINGUAL_MODEL
from stepline.speech.settings import AsrSettings
from stepline.speech.whisper import whisper_languages
from stepline.workers import Send
from stepline.writing.settings import WriterName

WORKER_NICENESS = 10  # added to the process's own: people who watch and correct come first
# Linux ends the process with the highest score where memory ends: the job, not the studio.
MEMORY_SCORE = 500  # of 1000. An ordinary process has 0
WHISPER_MODELS = (ENGLISH_MODEL, MULTILINGUAL_MODEL)
PROGRESS_SECONDS = 1.0  # between two lines about one stage


class JobOptions(FrozenModel):
    """Options of a job that finds the steps of a video.

    Attributes:
        language: language of the speech. None: it is detected.
        recogniser: an installed speech recogniser, which /api/choices lists. None: that of the
            settings.
        writer: who writes the steps. None: the writer of the settings.
        texts: lines to find, instead of steps that are written from the speech.
        captions: a caption file, used instead of speech recognition. None: speech is recognised.
        force: whether results of an earlier run are made again.
        video: id of the video of the library that is read again, whose file may be outside of the
            allowed folders. None: the source is another video.
    """

    language: Language | None = None
    recogniser: str | None = None
    writer: WriterName | None = None
    texts: tuple[str, ...] = ()
    captions: str | None = None
    force: bool = False
    video: str | None = None

    @field_validator("recogniser")
    @classmethod
    def _check_recogniser(cls, recogniser: str | None) -> str | None:
        installed = installed_recognisers()
        if recogniser is not None and recogniser not in installed:
            raise ValueError(f"not installed here; give {' or '.join(installed)}")
        return recogniser


def installed_recognisers() -> tuple[str, ...]:
    """Return the names of the speech recognisers on this machine: Whisper's models, and others."""
    models = [name for name in WHISPER_MODELS if weights_fetched(name)]
    packages = [name for name in ("whisperx",) if find_spec(name)]
    return (*models, *packages, *plugin_names("recognisers"))


def heard_languages(settings: AsrSettings) -> tuple[str, ...]:
    """Return the codes of the languages that a recogniser on this machine hears: English alone, or
    all of Whisper's where there is another recogniser than the English one.

    settings: settings of the studio, which may name a model of their own.
    """
    is_own = settings.model is not None and settings.model not in WHISPER_MODELS
    hears_more = is_own or set(installed_recognisers()) - {ENGLISH_MODEL}
    return whisper_languages() if hears_more else ("en",)


class JobTask(FrozenModel):
    """A job as the worker process receives it.

    Attributes:
        source: path or http(s) address of the video.
        out: the folder of the library.
        allowed_folders: folders from which files may be read.
        options: options of the job.
        settings: settings of all stages of finding steps.
        origin: the web page from which the file of an earlier link came. None: no page.
        title: title that the user gave the video. None: the title is found elsewhere.
        part: start and end in seconds of the part of the video to use. None: the whole video.
    """

    source: str
    out: str
    allowed_folders: tuple[str, ...]
    options: JobOptions
    settings: StepsSettings
    origin: LinkOrigin | None = None
    title: str | None = None
    part: Span | None = None


class StageProgress(NamedTuple):
    """Message about the progress of one stage of the work on a video.

    Attributes:
        stage: name of the stage.
        second: second of the video that the stage has reached.
        duration: duration of the video in seconds.
    """

    stage: str
    second: float
    duration: float


class FinishedRecord(NamedTuple):
    """The file name of a finished record in the library's folder."""

    name: str


def progress_sender(send: Send) -> Progress:
    """Return a function that sends the progress of each stage at most once in PROGRESS_SECONDS, and
    its end."""
    sent_times: dict[str, float] = {}

    def progress(stage: str, second: float, duration: float) -> None:
        now_seconds = time.monotonic()
        if now_seconds >= sent_times.get(stage, 0.0) + PROGRESS_SECONDS or second >= duration:
            sent_times[stage] = now_seconds
            send(StageProgress(stage, second, duration))

    return progress


def job_settings(settings: StepsSettings, options: JobOptions) -> StepsSettings:
    """Return the settings of the studio, with the options of a job over them."""
    tree = settings.model_dump(mode="json")
    if options.language is not None:
        tree["asr"]["language"] = options.language
    if options.recogniser in WHISPER_MODELS:
        tree["asr"] |= {"recogniser": "whisper", "model": options.recogniser}
    elif options.recogniser is not None:
        tree["asr"] |= {"recogniser": options.recogniser, "model": None}
    if options.writer is not None:
        tree["writing"]["writer"] = options.writer
    return validate(StepsSettings, tree)


def run_task(task: JobTask, send: Send) -> None:
    """Find the steps of each video of a task. Raises SteplineError.

    Args:
        task: the job.
        send: function that sends a message about the progress to the main process.
    """
    options = task.options
    settings = job_settings(task.settings, options)
    out = Path(task.out)
    captions = Path(options.captions) if options.captions is not None else None
    allowed = [Path(folder) for folder in task.allowed_folders]
    reject_outside_links(out, allowed)

    # the videos, none of them outside the folders that are allowed
    sources = find_sources([task.source], out, settings, force=options.force)
    for source in sources:
        if isinstance(source.location, Path):
            check_allowed_path(source.location, allowed)

    progress = progress_sender(send)
    networks = load_networks(settings, several=len(sources) > 1)
    for source in sources:
        opened = source.open(
            out,
            settings,
            captions=captions,
            texts=options.texts,
            force=options.force,
            title=task.title,
            part=task.part,
        )
        with opened as request:
            result = run_video(
                replace(request, origin=request.origin or task.origin),
                settings,
                OutputOptions(out, USUAL, force=options.force),
                networks=networks,
                progress=progress,
            )
        send(FinishedRecord(output_path(result.record, out, "json").name))


def start_worker(_: None, send: Send) -> Callable[[JobTask], str | None]:
    """Lower the priority of this process. Return a function that does a task.

    The function returns None, or the error in a line.
    """
    if hasattr(os, "nice"):
        os.nice(WORKER_NICENESS)
    score = Path("/proc/self/oom_score_adj")
    if os.access(score, os.W_OK):
        score.write_text(str(MEMORY_SCORE))

    def run(task: JobTask) -> str | None:
        try:
            run_task(task, send)
        except SteplineError as error:
            return str(error)
        except OSError as error:  # such as a name that is too long
            return format_error_line(str(error))
        except Exception as error:  # noqa: BLE001   reported in a line, as the command line does
            return format_error_line(
                f"a fault of Stepline itself ({type(error).__name__}: {error})"
            )
        return None

    return run
