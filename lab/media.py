"""Peak memory of a process, and clips looped to a length, for the scripts that measure speed."""

import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import av


def peak_mib() -> float:
    """Return the most memory this process held. ru_maxrss would count its parent's too, from before
    exec."""
    status = Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    lines = status.read_text().splitlines()
    (peak_line,) = (line for line in lines if line.startswith("VmHWM"))
    return int(peak_line.split()[1]) / 1024


SEAM_SECONDS = 0.2  # s between two rounds, since the first frames are decoded before they are shown


def loop(source: Path, target: Path, seconds: float) -> None:
    """Write the clip again and again, without re-encoding, until it lasts `seconds`."""
    with av.open(str(target), "w") as out:
        streams: dict[int, Any] = {}
        shift = 0.0
        while shift < seconds:
            with av.open(str(source)) as container:
                if not streams:
                    for stream in container.streams:
                        streams[stream.index] = out.add_stream_from_template(stream)
                for packet in shifted(container, shift):
                    packet.stream = streams[packet.stream.index]
                    out.mux(packet)
                shift += container.duration / 1_000_000 + SEAM_SECONDS


def shifted(container: Any, shift: float) -> Iterator[Any]:
    for packet in container.demux():
        if packet.dts is not None:
            ticks = round(shift / packet.time_base)
            packet.dts += ticks
            packet.pts += ticks
            yield packet
