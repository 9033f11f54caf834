"""Captions without their video as an input: which files count, and what is known of one."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from stepline.errors import CaptionError, StoreError
from stepline.language_tags import split_language
from stepline.pipeline.request import Request, StepsSettings
from stepline.storage import read_record

if TYPE_CHECKING:
    from stepline.media import MediaInfo

# What a folder is searched for. JSON and csv hold other things too, so they must be named.
FOLDER_SUFFIXES = frozenset((".srt", ".vtt", ".sbv", ".ttml", ".dfxp"))
CAPTION_SUFFIXES = FOLDER_SUFFIXES | {".csv", ".json"}

CAPTIONS_ALONE = (
    "captions alone, no picture: steps are placed by their words, and none counts as shown"
)


def is_captions(path: Path) -> bool:
    """Tell whether a named file is read as captions, by its suffix."""
    return path.suffix.lower() in CAPTION_SUFFIXES


def is_folder_captions(file: Path) -> bool:
    """Tell whether a file in a folder is captions, and none of the subtitles that Stepline wrote."""
    if file.suffix.lower() not in FOLDER_SUFFIXES or file.name.startswith("."):
        return False
    try:
        read_record(file.with_suffix(".json"))
    except StoreError:
        return True
    return False


def without_sidecars(files: Sequence[Path]) -> list[Path]:
    """Return the files without captions that belong to another of them: talk.vtt and talk.en.vtt
    next to talk.mp4, and talk.vtt next to talk.srt."""
    # A sidecar is known by the name of its video, with or without a language tag.
    owners = {_name(file) for file in files if not is_captions(file)}
    remaining = []
    for file in files:
        if is_captions(file):
            name = _name(file)
            if name in owners or name.with_name(split_language(name.name)[0]) in owners:
                continue
            owners.add(name)
        remaining.append(file)
    return remaining


def _name(file: Path) -> Path:
    """Return the path without the last suffix."""
    return file.absolute().with_suffix("")


def read_media_info(request: Request, settings: StepsSettings) -> "MediaInfo":
    """Return what the request's file holds. Of captions: how long they last and no stream.

    Raises MediaError where a video cannot be read, CaptionError where captions hold no sentence.
    """
    from stepline.media import probe

    if not request.captions_alone:
        return probe(request.path, settings.media)
    return _captions_info(request, settings)


def _captions_info(request: Request, settings: StepsSettings) -> "MediaInfo":
    from stepline.media import MediaInfo
    from stepline.media.container import check_duration
    from stepline.speech import read_captions

    captions = read_captions(request.path, video_id=request.id, settings=settings.asr)
    sentences = captions.transcript.sentences
    if not sentences:
        cure = "give other captions"
        raise CaptionError(f"{request.path}: holds no sentence to write steps from; {cure}")
    # How long the video is remains unknown. The last word ends it.
    duration = max(sentence.span.end for sentence in sentences)
    check_duration(request.path, duration, settings.media)
    return MediaInfo(
        path=request.path,
        duration=duration,
        width=0,
        height=0,
        rotation=0,
        frame_rate=0.0,
        has_picture=False,
        has_sound=False,
        warnings=(CAPTIONS_ALONE,),
    )
