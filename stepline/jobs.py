"""Many videos, one after another: which files, under which ids, what is done already, what is written where."""

import hashlib
import io
import logging
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from stepline import __version__
from stepline.errors import CaptionError, MediaError, SettingsError, SteplineError, StoreError
from stepline.models import sha256
from stepline.pipeline import NO_SOUND, Progress, Request, StepsSettings, Understanding, fingerprint, hear, understand
from stepline.records import Record, Video
from stepline.store import read_record, sweep

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

log = logging.getLogger(__name__)

# What a folder is searched for; a file that is named is tried whatever it is called.
SUFFIXES = frozenset({".mp4", ".m4v", ".mov", ".mkv", ".webm", ".avi", ".mpg", ".mpeg", ".ts", ".flv", ".wmv", ".3gp"})

PROVISIONAL = "provisional"  # in a warning: a deadline or a silent server made this result, so it is done again

KEYFRAME_WIDTH = 480  # pixels; sharp on a phone, about 20 kB a step


@dataclass(frozen=True)
class Wanted:
    """What to write for each video."""

    out: Path
    formats: tuple[str, ...]
    clips: bool = False
    force: bool = False


@dataclass(frozen=True)
class Done:
    """A finished video: its record, the files written, and whether an earlier run had made them."""

    record: Record
    files: tuple[Path, ...]
    earlier: bool


def find_videos(paths: Iterable[Path]) -> list[Path]:
    """Return the named files and the videos inside named folders, sorted within a folder, each once."""
    found: dict[Path, Path] = {}
    for path in paths:
        inside = sorted(file for file in path.rglob("*") if _is_video(file)) if path.is_dir() else [path]
        if not inside:
            raise MediaError(f"{path}: no video in this folder ({', '.join(sorted(SUFFIXES))}); name the files instead")
        found |= {file.resolve(): file for file in reversed(inside) if file.resolve() not in found}
    return sorted(found.values(), key=str) if len(found) > 1 else list(found.values())


def _is_video(file: Path) -> bool:
    return file.suffix.lower() in SUFFIXES and file.is_file() and not file.name.startswith(".")


def name_videos(paths: Sequence[Path], out: Path) -> dict[str, Path]:
    """Return id -> path: the file's stem, made longer where another video of the run or in `out` has that stem."""
    stems = [path.stem for path in paths]
    return {_id(path, stems.count(path.stem) > 1 or _taken(path, out)): path for path in paths}


def _id(path: Path, shared: bool) -> str:
    return f"{path.stem}-{hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:6]}" if shared else path.stem


def _taken(path: Path, out: Path) -> bool:
    """Tell whether `out` holds this stem's record for a video at another path, which must not be overwritten."""
    from stepline.show import safe_stem

    try:
        owner = read_record(out / f"{safe_stem(path.stem)}.json").video.path
    except StoreError:
        return False
    return owner is not None and Path(owner).resolve() != path.resolve()


def run(request: Request, settings: StepsSettings, wanted: Wanted, progress: Progress | None = None) -> Done:
    """Understand one video and write its files, the JSON last; or return what an earlier run wrote.

    Raises a SteplineError; nothing is left half-written.
    """
    from stepline.show import safe_stem

    if not wanted.force:
        earlier = _earlier(request, settings, wanted.out / f"{safe_stem(request.id)}.json")
        if earlier is not None:
            return Done(earlier, (), True)
    if wanted.out.is_dir():
        sweep(wanted.out)
    understanding = understand(request, settings, progress=progress)
    _refuse_the_speechless(request, understanding.record)
    return Done(understanding.record, write(request, understanding, wanted), False)


def _earlier(request: Request, settings: StepsSettings, path: Path) -> Record | None:
    """Return the record of a run with the same video, settings and version, if there is a final one."""
    try:
        record = read_record(path)
    except StoreError:
        return None
    same = record.settings == fingerprint(request, settings) and record.models.get("stepline") == __version__
    if not same or any(PROVISIONAL in warning for warning in record.warnings):
        return None
    return record if request.path.is_file() and record.video.sha256 == sha256(request.path) else None


def _refuse_the_speechless(request: Request, record: Record) -> None:
    if request.texts or (record.transcript and record.transcript.sentences):
        return
    reasons = sorted({item.reason for item in record.dropped})
    left_out = f" (left out: {'; '.join(reasons)})" if reasons else ""
    silent = f": {NO_SOUND}" if NO_SOUND in record.warnings else ""
    if request.captions is not None:
        raise CaptionError(f"{request.captions}: holds no sentence to write steps from{left_out}; give other captions")
    raise MediaError(
        f"{request.path}: no speech to write steps from{silent}{left_out}; give its words with --captions FILE, "
        "or your own lines to look for with --texts FILE"
    )


def write(request: Request, understanding: Understanding, wanted: Wanted) -> tuple[Path, ...]:
    """Write every wanted file of one video and return their paths."""
    from stepline.show import write_clips, write_outputs

    record = understanding.record
    clips = write_clips(record, request.path, wanted.out) if wanted.clips else []
    files = write_outputs(
        record,
        wanted.out,
        alignment=understanding.alignment,
        keyframes=keyframes(record, request.path) if "html" in wanted.formats else {},
        media=request.path,
        formats=wanted.formats,
    )
    return (*clips, *files)


def keyframes(record: Record, path: Path) -> dict[str, bytes]:
    """Return a JPEG of the most likely second of every step that is shown, by step id."""
    from stepline.media import frames_at

    shown = [step for step in record.steps if step.status == "shown" and step.at is not None]
    try:
        frames = frames_at(path, [step.at for step in shown if step.at is not None], width=KEYFRAME_WIDTH)
    except SteplineError as error:  # the page is still worth having; the reason goes to the log
        log.warning("no key frames: %s", error)
        return {}
    return {step.id: _jpeg(frame.image) for step, frame in zip(shown, frames, strict=True) if frame is not None}


def _jpeg(image: "npt.NDArray[np.uint8]") -> bytes:
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, "JPEG", quality=82)
    return buffer.getvalue()


def listen(path: Path, captions: Path | None, settings: StepsSettings, progress: Progress | None = None) -> Record:
    """Return a record that holds only what is said in a video."""
    from stepline.media import probe

    info = probe(path, settings.media)
    request = Request(path, path.stem, captions)
    heard, end, warnings = hear(request, info, settings, progress=progress)
    return Record(
        id=path.stem,
        video=Video(id=path.stem, path=str(path), duration=end or info.duration or None),
        transcript=heard.transcript,
        dropped=heard.dropped,
        warnings=(*info.warnings, *warnings),
    )


def read_lines(path: Path) -> tuple[str, ...]:
    """Return the lines of a recipe: those that hold a letter, without list numbers and bullets.

    Raises SettingsError when the file cannot be read as text or holds no line.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(
            f"--texts {path}: cannot be read as UTF-8 text; give a file with one line a step"
        ) from error
    lines = [re.sub(r"^\s*(?:\d+[.)]|[-*•])\s+", "", line).strip() for line in text.splitlines()]
    kept = tuple(line for line in lines if any(letter.isalpha() for letter in line))
    if not kept:
        raise SettingsError(f"--texts {path}: holds no line of text; write one line a step")
    return kept
