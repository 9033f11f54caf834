"""Measures stepline.media: decoding speed against a straightforward loop, and memory against
duration.

    python benchmarks/media.py CLIP.mp4

The clip is scaled to 720p and 360p (30 frames/s, B-frames as hosts encode them) and looped without
re-encoding to 1, 5 and 60 minutes. Every measurement runs in its own process. The table is printed
and written to benchmarks/results/media.json. Speed is seconds of video in a second of CPU time, so
that other work does not count.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import av

from stepline.media import Frame, MediaReader, MediaSettings

RATE = 2.0  # frames/s wanted, as the vision stage asks for
SIDE = 224  # pixels of the shorter side
RESULTS = Path(__file__).parent / "results" / "media.json"


def stepline_reader(path: Path, *, skip: bool, threads: int) -> int:
    """Read sound and frames in one pass. Return the number of frames."""
    settings = MediaSettings(skip_nonref=skip, threads=threads)
    reader = MediaReader(path, frame_rate=RATE, frame_size=SIDE, sound=True, settings=settings)
    return sum(isinstance(item, Frame) for item in reader)


def plain_loop(path: Path) -> int:
    """The straightforward way: one pass for the sound, one that decodes and converts by frame
    number."""
    with av.open(str(path)) as container:
        resampler = av.AudioResampler(format="flt", layout="mono", rate=16_000)
        blocks = [
            piece.to_ndarray()
            for frame in container.decode(audio=0)
            for piece in resampler.resample(frame)
        ]
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        stream.thread_type = "AUTO"
        step = round(float(stream.average_rate) / RATE)
        width = round(stream.width * SIDE / stream.height)
        return len(blocks) and sum(
            frame.to_ndarray(format="rgb24", width=width, height=SIDE) is not None
            for index, frame in enumerate(container.decode(stream))
            if index % step == 0
        )


WAYS = {
    "plain loop": plain_loop,
    "reader, every frame": lambda path: stepline_reader(path, skip=False, threads=1),
    "reader": lambda path: stepline_reader(path, skip=True, threads=1),
    "reader, 2 threads": lambda path: stepline_reader(path, skip=True, threads=2),
}


def measure(way: str, path: Path) -> dict[str, float]:
    """Run one way in a process of its own. Return frames, cpu_s, wall_s and peak_mib."""
    command = [sys.executable, __file__, "--way", way, str(path)]
    return dict(
        json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    )


def run_way(way: str, path: Path) -> None:
    wall, cpu = time.perf_counter(), time.process_time()
    frames = WAYS[way](path)
    used = {
        "frames": frames,
        "cpu_s": time.process_time() - cpu,
        "wall_s": time.perf_counter() - wall,
    }
    print(json.dumps(used | {"peak_mib": peak_mib()}))


def peak_mib() -> float:
    """Return the most memory this process held. ru_maxrss would count its parent's too, from before
    exec."""
    status = Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    (line,) = (line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024


def encode(source: Path, target: Path, height: int) -> None:
    """Write the clip at another height: H.264 with B-frames at a usual bit rate, and AAC."""
    with av.open(str(source)) as given, av.open(str(target), "w") as out:
        seen, heard = given.streams.video[0], given.streams.audio[0]
        rate = Fraction(round(float(seen.average_rate)))
        picture = out.add_stream("libx264", rate=rate, options={"preset": "medium", "crf": "23"})
        picture.height, picture.width = height, round(seen.width * height / seen.height / 2) * 2
        picture.pix_fmt = "yuv420p"
        sound = out.add_stream("aac", rate=heard.rate, layout="stereo")
        resampler = av.AudioResampler(format="fltp", layout="stereo", rate=heard.rate)
        for frame in given.decode(seen, heard):
            frames = resampler.resample(frame) if isinstance(frame, av.AudioFrame) else [frame]
            for item in frames:
                stream = sound if isinstance(item, av.AudioFrame) else picture
                if stream is picture:
                    item = item.reformat(width=picture.width, height=height, format="yuv420p")
                    item.pict_type = 0
                out.mux(stream.encode(item))
        for stream in (picture, sound):
            out.mux(stream.encode(None))


def loop(source: Path, target: Path, seconds: float) -> None:
    """Write the clip again and again, without re-encoding, until it lasts `seconds`."""
    with av.open(str(target), "w") as out:
        streams: dict[int, Any] = {}
        shift = 0.0
        while shift < seconds:
            with av.open(str(source)) as given:
                if not streams:
                    streams = {
                        stream.index: out.add_stream_from_template(stream)
                        for stream in given.streams
                    }
                for packet in shifted(given, shift):
                    packet.stream = streams[packet.stream.index]
                    out.mux(packet)
                shift += given.duration / 1_000_000


def shifted(container: Any, shift: float) -> Iterator[Any]:
    for packet in container.demux():
        if packet.dts is not None:
            ticks = round(shift / packet.time_base)
            packet.dts, packet.pts = packet.dts + ticks, packet.pts + ticks
            yield packet


def speeds(folder: Path, clip: Path) -> list[dict[str, Any]]:
    rows = []
    for height in (720, 360):
        short, long = folder / f"{height}.mp4", folder / f"{height}-60s.mp4"
        encode(clip, short, height)
        loop(short, long, 60.0)
        with av.open(str(long)) as container:
            seconds = container.duration / 1_000_000
        for way in WAYS:
            best = min((measure(way, long) for _ in range(3)), key=lambda used: used["cpu_s"])
            rows.append({"height": height, "way": way, "video_s": seconds, **best})
    return rows


def memory(folder: Path) -> list[dict[str, Any]]:
    rows = []
    for minutes in (5, 60):
        path = folder / f"{minutes}min.mp4"
        loop(folder / "360.mp4", path, minutes * 60.0)
        rows.append({"minutes": minutes, **measure("reader", path)})
        path.unlink()
    return rows


def show(result: dict[str, Any]) -> None:
    print("| picture | way | CPU s a minute | x real time (CPU) | x real time (wall) | peak MiB |")
    print("|---|---|---|---|---|---|")
    for row in result["speed"]:
        seconds = row["video_s"]
        print(
            f"| {row['height']}p | {row['way']} | {60 * row['cpu_s'] / seconds:.2f} | {seconds / row['cpu_s']:.0f} "
            f"| {seconds / row['wall_s']:.0f} | {row['peak_mib']:.0f} |"
        )
    print("\n| looped 360p | frames | peak MiB |\n|---|---|---|")
    for row in result["memory"]:
        print(f"| {row['minutes']} min | {row['frames']:.0f} | {row['peak_mib']:.1f} |")


def main() -> None:
    shared = (
        Path(__file__).resolve().parents[1]
        / ".."
        / "shared"
        / "data"
        / "videos"
        / "howto100m_money_clip.mp4"
    )
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("clip", type=Path, nargs="?", default=shared)
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.way:
        run_way(given.way, given.clip)
        return
    with tempfile.TemporaryDirectory() as folder:
        result = {
            "clip": given.clip.name,
            "cores": os.cpu_count(),
            "rate": RATE,
            "side": SIDE,
            "pyav": av.__version__,
        }
        result |= {"speed": speeds(Path(folder), given.clip), "memory": memory(Path(folder))}
    show(result)
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
