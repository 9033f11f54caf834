"""Measures the main job as a whole: cold, warm, and how memory grows with duration.

    python lab/speed.py CLIP.mp4

The clip is scaled to 720p and 360p with film grain, so that its bit rate is that of real footage.
It is looped without re-encoding to 1, 5, 10 and 60 minutes. Cold: whole processes.
Warm: one process whose models are loaded. Writes lab/results/speed.json.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from fractions import Fraction
from pathlib import Path
from typing import Any

os.environ["OMP_WAIT_POLICY"] = "PASSIVE"  # as the command line sets it

import av
import numpy as np
from media import loop, peak_mib

LAB_FOLDER = Path(__file__).parent


RESULT_PATH = LAB_FOLDER / "results" / "speed.json"
CLIP_PATH = LAB_FOLDER.parents[1] / "shared/data/videos/howto100m_money_clip.mp4"
GRAIN_DEVIATION = 9.0  # grey levels. It brings 720p to the 2-5 Mbit/s that hosts send
SETTINGS_VARIANTS = {
    "default": (),
    "beam 1": ("asr.beam=1",),
    "every frame decoded": ("media.skip_nonref=false",),
    "speech alone": ("vision.backbone=none",),
}


def grainy(source: Path, target: Path, height: int) -> None:
    """Write the clip at another height with film grain, H.264 with B-frames and AAC."""
    width = height * 16 // 9 // 2 * 2
    noise = np.random.default_rng(0).normal(0, GRAIN_DEVIATION, (height + 64, 1920))
    noise = noise.astype(np.int16)
    with av.open(str(source)) as container, av.open(str(target), "w") as out:
        film = container.streams.video[0]
        voice = container.streams.audio[0]
        rate = Fraction(round(float(film.average_rate)))
        options = {"preset": "veryfast", "crf": "24"}
        picture = out.add_stream("libx264", rate=rate, options=options)
        picture.height = height
        picture.width = width
        picture.pix_fmt = "yuv420p"
        sound = out.add_stream("aac", rate=voice.rate, layout="stereo")
        resampler = av.AudioResampler(format="fltp", layout="stereo", rate=voice.rate)
        for index, frame in enumerate(container.decode(film, voice)):
            if isinstance(frame, av.AudioFrame):
                for part in resampler.resample(frame):
                    out.mux(sound.encode(part))
                continue
            plain = frame.reformat(width=width, height=height, format="yuv420p").to_ndarray()
            # another part of the noise for each frame
            row = index * 37 % 64
            column = index * 101 % (1920 - width or 1)
            grain = noise[row : row + height, column : column + width]
            plain[:height] = np.clip(plain[:height] + grain, 0, 255)
            grainy_frame = av.VideoFrame.from_ndarray(plain, format="yuv420p")
            grainy_frame.pts = frame.pts
            grainy_frame.time_base = frame.time_base
            out.mux(picture.encode(grainy_frame))
        out.mux([*picture.encode(None), *sound.encode(None)])


def process(*command: object) -> dict[str, float]:
    """Run a whole process. Return its wall and CPU seconds."""
    before = os.times()
    began = time.perf_counter()
    subprocess.run([sys.executable, *map(str, command)], check=True, capture_output=True)
    wall = time.perf_counter() - began
    after = os.times()
    user = after.children_user - before.children_user
    system = after.children_system - before.children_system
    return {"wall_s": wall, "cpu_s": user + system}


def cold(video: Path, folder: Path, runs: int) -> dict[str, Any]:
    """Return min and median wall seconds of whole processes."""
    command = ("-m", "stepline", "steps", video, "--out", folder / "out", "--force")
    costs = [process(*command) for _ in range(runs)]
    walls = [cost["wall_s"] for cost in costs]
    return {
        "wall_s_min": min(walls),
        "wall_s_median": statistics.median(walls),
        "cpu_s_min": min(cost["cpu_s"] for cost in costs),
    }


def warm(short: Path, long: Path) -> dict[str, Any]:
    """Return how fast a long video is understood once models are loaded, and where the CPU time
    goes."""
    from stepline.pipeline.request import Request, StepsSettings
    from stepline.pipeline.understand import understand
    from stepline.settings import load_settings

    understand(Request(short, "warm-up"), StepsSettings())
    rows: dict[str, Any] = {}
    for name, overrides in SETTINGS_VARIANTS.items():
        settings = load_settings(StepsSettings, None, overrides)
        wall_begin = time.perf_counter()
        cpu_begin = time.process_time()
        record = understand(Request(long, "long"), settings).record
        wall = time.perf_counter() - wall_begin
        cpu = time.process_time() - cpu_begin
        duration = record.video.duration or 0.0
        rows[name] = {
            "video_s": duration,
            "wall_s": wall,
            "cpu_s": cpu,
            "times_real": duration / wall,
        }
    return rows | {"stages": stages(long)}


def stages(video: Path) -> dict[str, float]:
    """Return the CPU seconds of each stage, run alone and in turn."""
    from stepline.media import probe
    from stepline.pipeline.pictures import extract_features
    from stepline.pipeline.placing import ground_steps
    from stepline.pipeline.request import Request, StepsSettings
    from stepline.pipeline.speech import recognise_speech
    from stepline.pipeline.understand import propose_steps

    timer = CpuTimer()
    request = Request(video, "stages")
    settings = StepsSettings()
    info = timer.time("probe", probe, video, settings.media)
    speech = timer.time("sound and recognition", recognise_speech, request, info, settings)
    transcript = speech.transcript
    steps = timer.time("writing", propose_steps, request, transcript, settings).steps
    visual = timer.time("picture and vision", extract_features, request, info, settings)
    inputs = (steps, info.duration, transcript, visual, settings)
    timer.time("grounding", ground_steps, *inputs)
    return timer.seconds


class CpuTimer:
    """CPU seconds of this process by name, summed over calls."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def time(self, name: str, call: Any, *arguments: Any, **options: Any) -> Any:
        """Return what a call gives, its CPU seconds added under a name."""
        begin = time.process_time()
        result = call(*arguments, **options)
        seconds = time.process_time() - begin
        self.seconds[name] = self.seconds.get(name, 0.0) + seconds
        return result


def memory(video: Path, folder: Path) -> dict[str, float]:
    """Return the peak memory of one process that does the whole job, all outputs written."""
    command = [sys.executable, __file__, "--memory-of", str(video), str(folder / "out")]
    result = subprocess.run(command, check=True, capture_output=True, text=True)
    return dict(json.loads(result.stdout))


def run_memory(video: Path, out: Path) -> None:
    """Do the whole job and print the peak memory of this process."""
    from stepline.pipeline.batch import run_video
    from stepline.pipeline.output_files import OutputOptions
    from stepline.pipeline.request import Request, StepsSettings

    began = time.perf_counter()
    options = OutputOptions(out, ("json", "html", "vtt"), force=True)
    record = run_video(Request(video, video.stem), StepsSettings(), options).record
    wall = time.perf_counter() - began
    row = {"video_s": record.video.duration, "wall_s": wall, "peak_mib": peak_mib()}
    print(json.dumps(row))


def measure(clip: Path, folder: Path) -> dict[str, Any]:
    """Return every figure."""
    result: dict[str, Any] = {"cores": os.cpu_count(), "clip": clip.name}
    memory_minutes = (5, 60)

    # clips with grain, and loops of them
    for height in (720, 360):
        path = folder / f"{height}.mp4"
        grainy(clip, path, height)
        bits = path.stat().st_size * 8
        with av.open(str(path)) as container:
            result[f"mbit_s_{height}p"] = bits / (container.duration / 1e6) / 1e6
        loop(path, folder / f"{height}-10.mp4", 600.0)
    for minutes in memory_minutes:
        loop(folder / "360.mp4", folder / f"360-{minutes}.mp4", minutes * 60.0)

    result["cold_60s_720p"] = cold(folder / "720.mp4", folder, 3)
    warm_rows = {}
    for height in (720, 360):
        warm_rows[f"{height}p"] = warm(folder / f"{height}.mp4", folder / f"{height}-10.mp4")
    result["warm_10min"] = warm_rows
    memory_rows = []
    for minutes in memory_minutes:
        memory_rows.append(memory(folder / f"360-{minutes}.mp4", folder))
    result["memory_360p"] = memory_rows
    return result


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("clip", type=Path, nargs="?", default=CLIP_PATH)
    parser.add_argument("--memory-of", nargs=2, type=Path)
    options = parser.parse_args()
    if options.memory_of:
        run_memory(*options.memory_of)
        return
    with tempfile.TemporaryDirectory() as folder:
        result = measure(options.clip.resolve(), Path(folder))
    text = json.dumps(result, indent=2)
    RESULT_PATH.write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
