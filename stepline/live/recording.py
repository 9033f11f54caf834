"""Recording of a live source: packets are copied without encoding, one Matroska file per connection.

A file of a run that was killed can be read up to its last cluster. `join_recordings` joins the files.
"""

import heapq
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from stepline.errors import StoreError
from stepline.files.atomic_files import atomic_path
from stepline.media.clock import presentation_stamp
from stepline.media.container import OpenMedia, open_media
from stepline.media.settings import MediaSettings


class StreamRecorder:
    """Writes packets of a live source to FOLDER/STEM.N.mkv, one file per connection, N from 1 on.

    Times in the files are seconds of the source. Raises StoreError if the disk cannot be written.
    """

    def __init__(self, folder: Path, file_stem: str) -> None:
        """Prepare a recording.

        Args:
            folder: folder of the files, created with the first file.
            file_stem: STEM in the names of the files.
        """
        self._folder = folder
        self._stem = file_stem
        self._file: Any = None
        self._streams: dict[int, Any] = {}  # output stream by the index of the source's stream
        self._container: Any = None  # of the current connection
        # last decoding time stamp of each stream; they must increase
        self._last_dts: dict[int, int] = {}

    @property
    def parts(self) -> list[Path]:
        """The recorded files in the order of their numbers, including those of earlier runs."""
        numbered = []
        for path in self._folder.glob(f"{self._stem}.*.mkv"):
            number = path.suffixes[-2].removeprefix(".")
            if number.isdigit():
                numbered.append((int(number), path))
        return [path for _, path in sorted(numbered)]

    def add(self, packet: Any, media: OpenMedia) -> None:
        """Write a packet.

        Args:
            packet: PyAV's packet.
            media: the open source, whose `start` is the time stamp of second 0.
        """
        import av

        try:
            if self._container is not media.container:
                self.close()
                self._begin_file(media)
            if packet.stream.index in self._streams and packet.dts is not None:
                self._write(packet, media.start)
        except (av.error.FFmpegError, OSError) as error:
            reason = error.strerror or str(error)
            raise StoreError(
                f"{self._folder}: the stream cannot be kept ({reason}); free some space"
            ) from error

    def _begin_file(self, media: OpenMedia) -> None:
        import av

        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / f"{self._stem}.{len(self.parts) + 1}.mkv"
        # Clusters of 2 s: a kill loses at most the last one.
        self._file = av.open(str(path), "w", options={"cluster_time_limit": "2000"})
        # A broken connection may end before a key frame or any sound tells the format of a stream.
        streams = []
        if media.video_stream is not None and media.video_stream.width > 0:
            streams.append(media.video_stream)
        if media.audio_stream is not None and media.audio_stream.sample_rate > 0:
            streams.append(media.audio_stream)
        self._streams = {
            stream.index: self._file.add_stream_from_template(stream, opaque=True)
            for stream in streams
        }
        self._container = media.container
        self._last_dts = {}

    def _write(self, packet: Any, start: float) -> None:
        index = packet.stream.index

        # the live clock counts from its own start
        time_shift = round(start / packet.time_base)
        last = self._last_dts.get(index, -1)
        dts = packet.dts - time_shift
        if dts <= last or dts < 0:  # sent again, or before second 0
            return
        self._last_dts[index] = dts
        packet.pts = presentation_stamp(packet) - time_shift
        packet.dts = dts
        packet.stream = self._streams[index]
        self._file.mux(packet)

    def close(self) -> None:
        """Close the file of the current connection, if one is open."""
        if self._file is not None:
            self._file.close()
        self._file = None
        self._container = None


def join_recordings(
    parts: Sequence[Path], out: Path, settings: MediaSettings = MediaSettings()
) -> None:
    """Join recordings into one Matroska file without encoding, with packets sorted by time.

    Args:
        parts: paths of the recordings.
        out: path of the joined file.
        settings: limits on the recordings.

    Raises MediaError for a part that cannot be read, StoreError if `out` cannot be written.
    """
    import av

    with ExitStack() as stack:
        recordings = [stack.enter_context(open_media(path, settings)) for path in parts]
        file = stack.enter_context(atomic_path(out))
        # bitexact leaves out dates and versions, so that the same parts make the same bytes.
        with av.open(str(file), "w", format="matroska", options={"fflags": "+bitexact"}) as joined:
            # one stream per kind, in the form that the first recording has
            targets: dict[str, Any] = {}
            for media in recordings:
                for stream in (media.video_stream, media.audio_stream):
                    if stream is not None and stream.type not in targets:
                        targets[stream.type] = joined.add_stream_from_template(stream, opaque=True)

            # by time, without packets that were sent twice
            last_seconds: dict[str, float] = {}
            packets = map(_timed_packets, recordings)
            for second, packet in heapq.merge(*packets, key=lambda pair: pair[0]):
                kind = packet.stream.type
                if second > last_seconds.get(kind, -1.0):
                    last_seconds[kind] = second
                    packet.stream = targets[kind]
                    joined.mux(packet)


def _timed_packets(media: OpenMedia) -> Iterator[tuple[float, Any]]:
    for packet in media.packets():
        if packet.dts is not None and packet.size:
            yield float(packet.dts * packet.time_base), packet
