"""What a live source sent, kept as it came: packets copied, never encoded again, one Matroska file
a connection.

A file that a kill cut off can be read up to its last cluster. `join_recordings` makes one file of
all.
"""

import heapq
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from stepline.atomic_files import atomic_path
from stepline.errors import StoreError
from stepline.media.container import OpenMedia, open_media
from stepline.media.settings import MediaSettings


class StreamRecorder:
    """Writes packets to FOLDER/STEM.N.mkv, N from 1 on; another file wherever the streams change.

    Times are seconds of the live clock. Raises StoreError where the disk does not take them.
    """

    def __init__(self, folder: Path, stem: str) -> None:
        self._folder, self._stem = folder, stem
        self._file: Any = None
        self._streams: dict[int, Any] = {}  # by the index of the source's own
        self._container: Any = None  # that they are of
        # the last decoding time stamp of each, which may never go back
        self._last: dict[int, int] = {}

    @property
    def parts(self) -> list[Path]:
        """The files so far, those of earlier runs among them, in their order."""
        found = [
            path
            for path in self._folder.glob(f"{self._stem}.*.mkv")
            if path.suffixes[-2][1:].isdigit()
        ]
        return sorted(found, key=lambda path: int(path.suffixes[-2][1:]))

    def add(self, packet: Any, media: OpenMedia) -> None:
        """Write a packet of a source; its second is its time stamp less `media.start`."""
        import av

        try:
            if self._container is not media.container:
                self.close()
                self._begin(media)
            if packet.stream.index in self._streams and packet.dts is not None:
                self._write(packet, media.start)
        except (av.error.FFmpegError, OSError) as error:
            reason = error.strerror or str(error)
            raise StoreError(
                f"{self._folder}: the stream cannot be kept ({reason}); free some space"
            ) from error

    def _begin(self, media: OpenMedia) -> None:
        import av

        self._folder.mkdir(parents=True, exist_ok=True)
        number = len(self.parts) + 1
        self._file = av.open(
            str(self._folder / f"{self._stem}.{number}.mkv"),
            "w",
            options={"cluster_time_limit": "2000"},
        )
        # A cut line may end before a key frame, or any sound, has said what the stream holds.
        known = {
            "video": lambda stream: stream.width > 0,
            "audio": lambda stream: stream.sample_rate > 0,
        }
        used = [
            each
            for each in (media.picture, media.sound)
            if each is not None and known[each.type](each)
        ]
        self._streams = {
            stream.index: self._file.add_stream_from_template(stream, opaque=True)
            for stream in used
        }
        self._container, self._last = media.container, {}

    def _write(self, packet: Any, start: float) -> None:
        index, base = packet.stream.index, packet.time_base
        shift = round(start / base)
        first = self._last.get(index, -1)
        dts = packet.dts - shift
        if dts <= first or dts < 0:  # sent again, or before second 0
            return
        self._last[index] = dts
        packet.pts = (packet.pts if packet.pts is not None else packet.dts) - shift
        packet.dts, packet.stream = dts, self._streams[index]
        self._file.mux(packet)

    def close(self) -> None:
        """End the file that is open."""
        if self._file is not None:
            self._file.close()
        self._file, self._container = None, None


def join_recordings(
    parts: Sequence[Path], out: Path, settings: MediaSettings | None = None
) -> None:
    """Write one Matroska file of recordings, in the order of their times, each kind of stream from
    all that hold it.

    Raises MediaError for a part that cannot be read, StoreError where `out` cannot be written.
    """
    import av

    with ExitStack() as stack:
        opened = [
            stack.enter_context(open_media(path, settings or MediaSettings())) for path in parts
        ]
        file = stack.enter_context(atomic_path(out))
        with av.open(str(file), "w", format="matroska", options={"fflags": "+bitexact"}) as joined:
            targets: dict[str, Any] = {}
            for media in opened:
                for stream in (media.picture, media.sound):
                    if stream is not None and stream.type not in targets:
                        targets[stream.type] = joined.add_stream_from_template(stream, opaque=True)
            last: dict[str, float] = {}
            for second, packet in heapq.merge(
                *map(_timed_packets, opened), key=lambda pair: pair[0]
            ):
                kind = packet.stream.type
                if second > last.get(kind, -1.0):
                    last[kind] = second
                    packet.stream = targets[kind]
                    joined.mux(packet)


def _timed_packets(media: OpenMedia) -> Iterator[tuple[float, Any]]:
    for packet in media.packets():
        if packet.dts is not None and packet.size:
            yield float(packet.dts * packet.time_base), packet
