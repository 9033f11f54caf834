"""Probes a video file by its header and its first decoded picture and sound."""

import re
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from stepline.errors import MediaError
from stepline.media.container import OpenMedia, check_duration, open_media, picture_rate
from stepline.media.frames import display_size, quarter_turns
from stepline.media.settings import MediaSettings

MAX_PROBED_PACKETS = (
    2000  # read in search of the first picture and sound. About half a minute of video
)
MAX_METADATA_CHARS = 1000  # of one entry, more than any title has

DAY_PATTERN = re.compile(r"\d{4}-?\d{2}-?\d{2}")


@dataclass(frozen=True)
class MediaInfo:
    """Properties of a media file.

    duration: s. width, height: pixels of the upright picture, 0 without one. rotation: degrees
    clockwise that set the stored picture upright (0, 90, 180, 270). frame_rate: average frames/s.
    warnings: streams that cannot be decoded. title, author, comment: one line of the file's
    metadata, or None. publication_date: as YYYY-MM-DD, or None. sound_languages: the language tag
    of each sound track, empty where it has none. default_sound_track: number, from 1 on, of the
    file's default track, 0 without one.
    """

    path: Path
    duration: float
    width: int
    height: int
    rotation: int
    frame_rate: float
    has_picture: bool
    has_sound: bool
    warnings: tuple[str, ...]
    title: str | None = None
    author: str | None = None
    publication_date: str | None = None
    sound_languages: tuple[str, ...] = ()
    default_sound_track: int = 0
    comment: str | None = None


def probe(path: Path | str, settings: MediaSettings | None = None) -> MediaInfo:
    """Return the properties of a file. Raises MediaError where nothing in it can be decoded."""
    settings = settings or MediaSettings()
    with open_media(path, settings) as media:
        # what can be decoded
        first, ended = _first_frames(media)
        picture = first.get("video")
        sound = first.get("audio")
        has_picture = media.picture is not None
        has_sound = media.sound is not None
        warnings = []
        # At the file's end, a stream without a frame is one that no decoder takes.
        if ended and has_picture and picture is None:
            has_picture = False
            warnings.append("the picture cannot be decoded; only the sound is used")
        if ended and has_sound and sound is None:
            has_sound = False
            warnings.append("the sound cannot be decoded; only the picture is used")
        if not has_picture and not has_sound:
            raise MediaError(
                f"{media.path}: nothing in it can be decoded; convert it to mp4 (H.264, AAC)"
            )

        # the picture as it is shown
        width = 0
        height = 0
        rotation = 0
        if picture is not None:
            width, height = display_size(picture, media.aspect)
            rotation = -90 * quarter_turns(picture) % 360
        languages = [track.language or "" for track in media.container.streams.audio]
        return MediaInfo(
            path=media.path,
            duration=_duration(media, settings),
            width=width,
            height=height,
            rotation=rotation,
            frame_rate=picture_rate(media.picture) if has_picture else 0.0,
            has_picture=has_picture,
            has_sound=has_sound,
            warnings=tuple(warnings),
            title=_metadata_line(media, "title"),
            author=_metadata_line(media, "artist"),
            publication_date=parse_date(_metadata_line(media, "date") or ""),
            sound_languages=tuple(languages),
            default_sound_track=_track_number(media.sound, media),
            comment=_metadata_line(media, "comment"),
        )


def _metadata_line(media: OpenMedia, key: str) -> str | None:
    """Return a text of the container's metadata, which is untrusted, as one line."""
    for name, text in media.container.metadata.items():
        if name.lower() == key:  # Matroska has ARTIST, MP4 artist
            return " ".join(str(text).split())[:MAX_METADATA_CHARS] or None
    return None


def _track_number(sound: Any, media: OpenMedia) -> int:
    if sound is None:
        return 0
    tracks = [track.index for track in media.container.streams.audio]
    return tracks.index(sound.index) + 1


def _first_frames(media: OpenMedia) -> tuple[dict[str, Any], bool]:
    """Return the first decoded frame of each kind, and whether the file ended before all were
    found.
    """
    kinds: dict[int, str] = {}
    for stream in (media.picture, media.sound):
        if stream is not None:
            kinds[stream.index] = stream.type
    first: dict[str, Any] = {}
    for count, packet in enumerate(media.packets()):
        kind = kinds.get(packet.stream.index)
        if kind is not None:
            for frame in media.decode(packet):
                first.setdefault(kind, frame)
        if len(first) == len(kinds) or count > MAX_PROBED_PACKETS:
            return first, False
    return first, True


def _duration(media: OpenMedia, settings: MediaSettings) -> float:
    """Return the claimed duration, else the end of the last packet, which is read and not decoded.

    Without any time stamps, the number of packets at the claimed frame rate.
    """
    if media.duration is not None:
        return media.duration
    end = 0.0
    count = 0
    with open_media(media.path, settings) as again:  # the other one has read some packets already
        for packet in again.packets():
            end = max(end, again.packet_end(packet))
            count += packet.stream.type == "video" and packet.size > 0
    if end == 0.0 and media.picture is not None:
        end = count / picture_rate(media.picture)
    check_duration(media.path, end, settings)
    return end


def parse_date(text: str) -> str | None:
    """Return the date in "20240506", "2024-05-06" or "2024-05-06T12:00:00Z" as YYYY-MM-DD.

    None for anything else, such as a year alone.
    """
    day = text.partition("T")[0]
    if not DAY_PATTERN.fullmatch(day):
        return None
    try:
        return date.fromisoformat(day).isoformat()
    except ValueError:
        return None
