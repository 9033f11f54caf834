"""Measures stepline.media: decoding speed against a straightforward loop, and memory against
duration.

    python lab/media.py CLIP.mp4

The clip is scaled to 720p and 360p (30 frames/s, B-frames as hosts encode them) and looped without
re-encoding to 1, 5 and 60 minutes. Every measurement runs in its own process. The table is printed
and written to lab/results/media.json. Speed is seconds of video in a second of CPU time, so
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
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import av

from stepline.media import Frame, MediaReader, MediaSettings

FRAME_RATE = 2.0  # frames/s wanted, as the vision stage asks for
FRAME_SIDE = 224  # pixels of the shorter side
RESULT_PATH = Path(__file__).parent / "results" / "media.json"
Row = dict[str, Any]
Usage = dict[str, float]


def stepline_reader(path: Path, *, skip: bool, threads: int) -> int:
    """Read sound and frames in one pass. Return the number of frames."""
    settings = MediaSettings(skip_nonref=skip, threads=threads)
    reader = MediaReader(
        path, frame_rate=FRAME_RATE, frame_size=FRAME_SIDE, sound=True, settings=settings
    )
    return sum(isinstance(item, Frame) for item in reader)


def plain_loop(path: Path) -> int:
    """The straightforward way: one pass for the sound, one that decodes and converts by frame
    number."""
    blocks = []
    with av.open(str(path)) as container:
        resampler = av.AudioResampler(format="flt", layout="mono", rate=16_000)
        for frame in container.decode(audio=0):
            for piece in resampler.resample(frame):
                blocks.append(piece.to_ndarray())
    frames = 0
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        stream.thread_type = "AUTO"
        step = round(float(stream.average_rate) / FRAME_RATE)
        width = round(stream.width * FRAME_SIDE / stream.height)
        for index, frame in enumerate(container.decode(stream)):
            if index % step == 0:
                frame.to_ndarray(format="rgb24", width=width, height=FRAME_SIDE)
                frames += 1
    return frames if blocks else 0


WAY_READERS: dict[str, Callable[[Path], int]] = {
    "plain loop": plain_loop,
    "reader, every frame": lambda path: stepline_reader(path, skip=False, threads=1),
    "reader": lambda path: stepline_reader(path, skip=True, threads=1),
    "reader, 2 threads": lambda path: stepline_reader(path, skip=True, threads=2),
}


def measure(way: str, path: Path) -> Usage:
    """Run one way in a process of its own. Return frames, cpu_s, wall_s and peak_mib."""
    command = [sys.executable, __file__, "--way", way, str(path)]
    process = subprocess.run(command, check=True, capture_output=True, text=True)
    return dict(json.loads(process.stdout))


def run_way(way: str, path: Path) -> None:
    wall_start = time.perf_counter()
    cpu_start = time.process_time()
    frames = WAY_READERS[way](path)
    usage = {
        "frames": frames,
        "cpu_s": time.process_time() - cpu_start,
        "wall_s": time.perf_counter() - wall_start,
        "peak_mib": peak_mib(),
    }
    print(json.dumps(usage))


def peak_mib() -> float:
    """Return the most memory this process held. ru_maxrss would count its parent's too, from before
    exec."""
    status = Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    lines = status.read_text().splitlines()
    (peak_line,) = (line for line in lines if line.startswith("VmHWM"))
    return int(peak_line.split()[1]) / 1024


def encode(source: Path, target: Path, height: int) -> None:
    """Write the clip at another height: H.264 with B-frames at a usual bit rate, and AAC."""
    with av.open(str(source)) as container, av.open(str(target), "w") as out:
        video = container.streams.video[0]
        audio = container.streams.audio[0]
        picture = add_picture(out, video, height)
        sound = out.add_stream("aac", rate=audio.rate, layout="stereo")
        resampler = av.AudioResampler(format="fltp", layout="stereo", rate=audio.rate)
        for frame in container.decode(video, audio):
            if isinstance(frame, av.AudioFrame):
                for piece in resampler.resample(frame):
                    out.mux(sound.encode(piece))
            else:
                scaled = frame.reformat(width=picture.width, height=height, format="yuv420p")
                # the encoder chooses which frames are key frames
                scaled.pict_type = 0
                out.mux(picture.encode(scaled))
        for stream in (picture, sound):
            out.mux(stream.encode(None))


def add_picture(out: Any, video: Any, height: int) -> Any:
    """Return a new video stream at another height."""
    rate = Fraction(round(float(video.average_rate)))
    picture = out.add_stream("libx264", rate=rate, options={"preset": "medium", "crf": "23"})
    picture.height = height
    picture.width = round(video.width * height / video.height / 2) * 2
    picture.pix_fmt = "yuv420p"
    return picture


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
                shift += container.duration / 1_000_000


def shifted(container: Any, shift: float) -> Iterator[Any]:
    for packet in container.demux():
        if packet.dts is not None:
            ticks = round(shift / packet.time_base)
            packet.dts += ticks
            packet.pts += ticks
            yield packet


def speeds(folder: Path, clip: Path) -> list[Row]:
    rows = []
    for height in (720, 360):
        clip_path = folder / f"{height}.mp4"
        minute_path = folder / f"{height}-60s.mp4"
        encode(clip, clip_path, height)
        loop(clip_path, minute_path, 60.0)
        with av.open(str(minute_path)) as container:
            seconds = container.duration / 1_000_000
        for way in WAY_READERS:
            runs = [measure(way, minute_path) for _ in range(3)]
            best = min(runs, key=lambda usage: usage["cpu_s"])
            rows.append({"height": height, "way": way, "video_s": seconds, **best})
    return rows


def memory(folder: Path) -> list[Row]:
    rows = []
    for minutes in (5, 60):
        path = folder / f"{minutes}min.mp4"
        loop(folder / "360.mp4", path, minutes * 60.0)
        rows.append({"minutes": minutes, **measure("reader", path)})
        path.unlink()
    return rows


def show(result: Row) -> None:
    titles = "CPU s per minute | x real time (CPU) | x real time (wall) | peak MiB"
    print(f"| picture | way | {titles} |")
    print("|---|---|---|---|---|---|")
    for row in result["speed"]:
        seconds = row["video_s"]
        cpu_per_minute = 60 * row["cpu_s"] / seconds
        cpu_speed = seconds / row["cpu_s"]
        wall_speed = seconds / row["wall_s"]
        speeds_text = f"{cpu_per_minute:.2f} | {cpu_speed:.0f} | {wall_speed:.0f}"
        print(f"| {row['height']}p | {row['way']} | {speeds_text} | {row['peak_mib']:.0f} |")
    print("\n| looped 360p | frames | peak MiB |\n|---|---|---|")
    for row in result["memory"]:
        print(f"| {row['minutes']} min | {row['frames']:.0f} | {row['peak_mib']:.1f} |")


def main() -> None:
    folder = Path(__file__).resolve().parents[2] / "shared" / "data" / "videos"
    shared_clip = folder / "howto100m_money_clip.mp4"
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("clip", type=Path, nargs="?", default=shared_clip)
    parser.add_argument("--way", choices=WAY_READERS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.way:
        run_way(options.way, options.clip)
        return
    result: Row = {
        "clip": options.clip.name,
        "cores": os.cpu_count(),
        "rate": FRAME_RATE,
        "side": FRAME_SIDE,
        "pyav": av.__version__,
    }
    with tempfile.TemporaryDirectory() as name:
        result["speed"] = speeds(Path(name), options.clip)
        result["memory"] = memory(Path(name))
    show(result)
    RESULT_PATH.parent.mkdir(exist_ok=True)
    text = json.dumps(result, indent=2)
    RESULT_PATH.write_text(f"{text}\n")


if __name__ == "__main__":
    main()
