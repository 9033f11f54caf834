"""Facts about a video file, by its header and its first decoded frames."""

import re
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from stepline.errors import MediaError
from stepline.media.container import OpenMedia, check_duration, frame_rate, open_media
from stepline.media.frames import display_size, quarter_turns
from stepline.media.settings import MediaSettings

# packets read in search of the first video and audio frame. About half a minute of video
MAX_PROBED_PACKETS = 2000
MAX_METADATA_CHARS = 1000  # of one entry, more than any title has

TIMECODE_PATTERN = re.compile(
    r"(?P<h>[0-9]{2}):(?P<m>[0-5][0-9]):(?P<s>[0-5][0-9])(:|(?P<drop>[;.,]))(?P<f>[0-9]{2,3})"
)
NTSC_RATE_TOLERANCE = 0.005  # frames/s, less than between 24 and 23.976
DAY_PATTERN = re.compile(r"\d{4}-?\d{2}-?\d{2}")


@dataclass(frozen=True)
class MediaInfo:
    """Properties of a media file.

    Attributes:
        path: path of the file.
        duration: seconds.
        width: pixels of the upright frame, 0 without video.
        height: pixels of the upright frame, 0 without video.
        rotation: clockwise rotation in degrees that sets a stored frame upright (0, 90, 180, 270).
        frame_rate: average frames per second, 0 without video.
        has_picture: whether video can be decoded.
        has_sound: whether audio can be decoded.
        warnings: messages about streams that cannot be decoded.
        title: title in the file's metadata, as one line, or None.
        author: author in the file's metadata, as one line, or None.
        publication_date: date in the file's metadata as YYYY-MM-DD, or None.
        sound_languages: language tag of each audio stream, "" if it has none.
        default_sound_track: number, from 1 on, of the audio stream that is read, 0 without audio.
        comment: comment in the file's metadata, as one line, or None.
        start_timecode: seconds that the file's time code shows at its first frame, 0 without one.
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
    start_timecode: float = 0.0


def probe(path: Path | str, settings: MediaSettings = MediaSettings()) -> MediaInfo:
    """Return the properties of a media file.

    Args:
        path: path of the file.
        settings: limits on the file.

    Raises MediaError if nothing in the file can be decoded.
    """
    with open_media(path, settings) as media:
        streams = {"video": media.video_stream, "audio": media.audio_stream}
        first_frames, has_ended = _first_frames(media)
        warnings = []
        for kind, warning in (
            ("video", "the picture cannot be decoded; only the sound is used"),
            ("audio", "the sound cannot be decoded; only the picture is used"),
        ):
            # At the file's end, a stream without a frame is one that no decoder takes.
            if has_ended and streams[kind] is not None and kind not in first_frames:
                streams[kind] = None
                warnings.append(warning)
        if not any(streams.values()):
            raise MediaError(
                f"{media.path}: nothing in it can be decoded; convert it to mp4 (H.264, AAC)"
            )

        width = height = rotation = 0
        if "video" in first_frames:
            width, height = display_size(first_frames["video"], media.aspect)
            rotation = -90 * quarter_turns(first_frames["video"]) % 360
        audio_streams = media.container.streams.audio
        audio_indices = [stream.index for stream in audio_streams]
        audio = media.audio_stream
        return MediaInfo(
            path=media.path,
            duration=_duration(media, settings),
            width=width,
            height=height,
            rotation=rotation,
            frame_rate=frame_rate(media.video_stream) if streams["video"] else 0.0,
            has_picture=streams["video"] is not None,
            has_sound=streams["audio"] is not None,
            warnings=tuple(warnings),
            title=_metadata_line(media, "title"),
            author=_metadata_line(media, "artist"),
            publication_date=parse_date(_metadata_line(media, "date") or ""),
            sound_languages=tuple(stream.language or "" for stream in audio_streams),
            default_sound_track=0 if audio is None else audio_indices.index(audio.index) + 1,
            comment=_metadata_line(media, "comment"),
            start_timecode=_start_timecode(media),
        )


def _metadata_line(media: OpenMedia, key: str) -> str | None:
    """Return an untrusted text of the container's metadata as one line, None without one.

    key: name of the metadata entry.
    """
    for name, text in media.container.metadata.items():
        if name.lower() == key:  # Matroska has ARTIST, MP4 artist
            return " ".join(str(text).split())[:MAX_METADATA_CHARS] or None
    return None


def _start_timecode(media: OpenMedia) -> float:
    """Return the seconds of the time code at the first frame, 0 without a time code.

    Time codes count frames. At an NTSC rate (30000/1001 frames per second) an hour of them, 108000,
    lasts 3603.6 s, or 3600 s if the time code drops numbers (":" before the frame is then ";").
    """
    if media.video_stream is None:
        return 0.0
    for holder in (media.container, *media.container.streams):
        metadata = {name.lower(): text for name, text in holder.metadata.items()}
        match = TIMECODE_PATTERN.fullmatch(metadata.get("timecode", ""))
        if match is None:
            continue
        hours, minutes, seconds, frames = (int(match[name]) for name in "hmsf")
        exact_rate = frame_rate(media.video_stream)
        rate = round(exact_rate)
        minutes += 60 * hours
        count = (60 * minutes + seconds) * rate + frames
        if match["drop"]:
            # 2 of 30 numbers, or 4 of 60, at each minute but every tenth
            count -= round(rate / 15) * (minutes - minutes // 10)
        is_ntsc = abs(exact_rate * 1.001 - rate) < NTSC_RATE_TOLERANCE
        return count * (1.001 if is_ntsc else 1.0) / rate
    return 0.0


def _first_frames(media: OpenMedia) -> tuple[dict[str, Any], bool]:
    """Return the first decoded frame of the video and audio stream, by stream type.

    Also return whether the file ended before all of them were found.
    """
    streams = [stream for stream in (media.video_stream, media.audio_stream) if stream is not None]
    kind_of_index = {stream.index: stream.type for stream in streams}
    first: dict[str, Any] = {}
    for count, packet in enumerate(media.packets()):
        kind = kind_of_index.get(packet.stream.index)
        if kind is not None:
            for frame in media.decode(packet):
                first.setdefault(kind, frame)
        if len(first) == len(streams) or count > MAX_PROBED_PACKETS:
            return first, False
    return first, True


def _duration(media: OpenMedia, settings: MediaSettings) -> float:
    """Return the duration in seconds by the header, else the end of the last packet.

    Packets are read but not decoded. Without any time stamps, the duration is the number of packets
    divided by the declared frame rate.
    """
    if media.duration is not None:
        return media.duration
    end = 0.0
    count = 0
    with open_media(media.path, settings) as reopened:  # some packets of `media` are read already
        for packet in reopened.packets():
            end = max(end, reopened.packet_end(packet))
            count += packet.stream.type == "video" and packet.size > 0
    if end == 0.0 and media.video_stream is not None:
        end = count / frame_rate(media.video_stream)
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
