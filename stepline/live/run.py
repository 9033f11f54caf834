"""`stepline live` as a whole: what SOURCE names, the files that grow, the run, and the record at
its end."""

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from threading import Event

from stepline.atomic_files import check_writable, remove_file
from stepline.errors import MediaError, SettingsError
from stepline.live.events import GrowingVtt, LiveEvent, LiveLog
from stepline.live.hearing import Read
from stepline.live.recording import StreamRecorder, join_recordings
from stepline.live.session import LiveOptions, LiveSession
from stepline.live.source import LiveSource, PictureRate, parse_sources
from stepline.media.container import LiveInput
from stepline.outputs import USUAL, safe_stem
from stepline.pipeline.batch import OutputOptions, lock_video, run_video
from stepline.pipeline.pictures import FRAMES_PER_ROW
from stepline.pipeline.request import Request, StepsSettings
from stepline.vision import frames_per_row, load_backbone

# behind the source's name
EVENTS, VTT, ROWS, SENT = ".events.jsonl", ".live.vtt", ".live.features", ".live"


@dataclass(frozen=True)
class LiveJob:
    """What a live run is asked. out: folder of what grows. at_end: folder of the record, None:
    none. speed: of a file.

    anew: forget what an earlier run told.
    """

    source: str
    out: Path
    at_end: Path | None = None
    speed: float = 1.0
    anew: bool = False
    options: LiveOptions = field(default_factory=LiveOptions)


def run_live(
    job: LiveJob,
    settings: StepsSettings,
    emit: Callable[[LiveEvent], None],
    *,
    stop: Event | None = None,
    begin_signs: Callable[[SimpleQueue[str]], None] | None = None,
    read: Read | None = None,
) -> tuple[Path, ...]:
    """Follow a source to its end, each event told once it is kept; return the files written.

    A run that was killed goes on where its log ends; what a stream sent meanwhile is a gap.
    begin_signs: starts what brings the signs of --until-next. read: stands for the recogniser.
    Raises a SteplineError; the second run on one source is told whose it is.
    """
    named, stop = parse_sources(job.source), stop or Event()
    first, stem = named[0], safe_stem(source_id(named))
    check_writable(job.out)
    vision = settings.vision
    with lock_video(f"{stem}{SENT}", job.out):
        log = _open_log(job, stem)
        behind = (
            time.time() - log.first.wall
            if log.first is not None and log.first.wall is not None
            else 0.0
        )
        start = log.position if log.count else 0.0
        recordings: Sequence[StreamRecorder | None] = [None for _ in named]
        if isinstance(first, LiveInput):  # what it sent meanwhile is lost
            start = max(start, behind)
            if job.at_end is not None:
                recordings = _recordings(job, stem)[: len(named)]
        backbone = load_backbone(vision) if vision.backbone != "none" else None
        session = LiveSession(
            stem,
            settings,
            log,
            emit,
            job.options,
            backbone,
            read=read,
            stop=stop,
            vtt=GrowingVtt(job.out / f"{stem}{VTT}"),
            rows=job.out / f"{stem}{ROWS}" if backbone else None,
        )
        if not log.count:
            emit(log.add("started", 0.0, source=job.source, wall=time.time()))
        elif isinstance(first, LiveInput):
            emit(
                log.add(
                    "gap",
                    start,
                    seconds=round(start - log.position, 3),
                    reason="Stepline did not run",
                )
            )
        rate = vision.rate * max(FRAMES_PER_ROW, frames_per_row(backbone)) if backbone else None
        pictures = PictureRate(rate, vision.frame_size)
        sources = [
            LiveSource(
                each,
                pictures=pictures,
                media=settings.media,
                links=settings.links,
                speed=job.speed,
                start=start,
                recording=recording,
                stop=stop,
            )
            for each, recording in zip(named, recordings, strict=True)
        ]
        session.warm_up()
        if begin_signs is not None:
            begin_signs(session.signs)
        session.run(sources)
        for recording in filter(None, recordings):
            recording.close()
        written = [job.out / f"{stem}{VTT}", log.path]
        if job.at_end is not None:
            written += _write_record(
                job, first, stem, settings, [each for each in recordings if each is not None]
            )
    return tuple(path for path in written if path.is_file())


def source_id(named: "list[Path | LiveInput]") -> str:
    """Return what the files of a source are called: a file's stem, an address's host and path, the
    devices."""
    first = named[0]
    if isinstance(first, Path):
        return first.stem
    names = "+".join(each.shown.split("://")[-1] for each in named if isinstance(each, LiveInput))
    return re.sub(r"[^\w.+-]+", "-", names).strip("-.") or "live"


def _open_log(job: LiveJob, stem: str) -> LiveLog:
    """Return the log of a run that was killed, or a new one in the place of one that was
    finished."""
    path = job.out / f"{stem}{EVENTS}"
    log = None if job.anew else LiveLog(path)
    if log is not None and log.first is not None and log.first.source not in (job.source, None):
        raise SettingsError(
            f"{path}: holds a run of {log.first.source}; give another --out, or --force to lose it"
        )
    if log is None or (log.last is not None and log.last.event == "finished"):
        for old in (path, *(job.out / f"{stem}{suffix}" for suffix in (VTT, ROWS))):
            remove_file(old)
        for part in (part for recording in _recordings(job, stem) for part in recording.parts):
            remove_file(part)
        return LiveLog(path)
    return log


def _recordings(job: LiveJob, stem: str) -> tuple[StreamRecorder, StreamRecorder]:
    """Return what keeps the packets of each of two inputs, a camera and a microphone."""
    return StreamRecorder(job.out, f"{stem}{SENT}"), StreamRecorder(job.out, f"{stem}{SENT}2")


def _write_record(
    job: LiveJob,
    first: Path | LiveInput,
    stem: str,
    settings: StepsSettings,
    recordings: Sequence[StreamRecorder],
) -> tuple[Path, ...]:
    """Write what `stepline steps` writes of the file, or of what the stream sent."""
    assert job.at_end is not None
    video = first
    if not isinstance(video, Path):
        parts = [part for recording in recordings for part in recording.parts]
        if not parts:
            raise MediaError(f"{job.source}: sent nothing that could be kept; no record is written")
        video = job.at_end / f"{stem}.mkv"
        join_recordings(parts, video, settings.media)
    request = Request(video, video.stem, texts=job.options.texts)
    result = run_video(request, settings, OutputOptions(job.at_end, USUAL))
    return (video, *result.files) if not isinstance(first, Path) else result.files
