"""The main job next to what others do with the same file: whole processes, in turn, in one run.

    python lab/peers.py VIDEO... [--rounds 3] [--scenedetect PYTHON]
    [--whisperx PYTHON] [--before CHECKOUT]

    stepline             `stepline steps`, all outputs
    stepline, speech     `stepline transcribe`, which hears and does not look
    faster-whisper       its own front door with the same weights: words with times, voice filter
    PySceneDetect        cuts alone, by its content detector, its own front door
    whisperX             hears with the same weights

--scenedetect, --whisperx: an interpreter whose environment has what that side needs. A
side without one is left out. --before: a checkout of another version. Several videos go through one
process where a side can take them. Prints a table: minimum and median of wall seconds, CPU seconds
and peak memory, and the ratio of the least CPU seconds to faster-whisper's.
"""

import argparse
import compileall
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from stepline.networks.weights import find_weights

LAB_FOLDER = Path(__file__).parent
RECOGNISER_NAME = "whisper-tiny.en"
REFERENCE_NAME = "faster-whisper"  # what the ratios are to
Command = list[str]

FASTER_WHISPER = """
import sys
from faster_whisper import WhisperModel
model = WhisperModel(sys.argv[1], device="cpu", compute_type="int8")
for video in sys.argv[2:]:
    segments, _ = model.transcribe(video, beam_size=5, word_timestamps=True, vad_filter=True)
    for segment in segments:
        print(f"{segment.start:7.1f} {segment.text}")
"""
SCENE_DETECT = """
import sys
from scenedetect import ContentDetector, detect
for video in sys.argv[1:]:
    for start, _ in detect(video, ContentDetector()):
        print(start.get_timecode())
"""
WHISPER_X = """
import sys, whisperx
model = whisperx.load_model(sys.argv[1], "cpu", compute_type="int8", language="en")
for video in sys.argv[2:]:
    for segment in model.transcribe(whisperx.load_audio(video))["segments"]:
        print(f"{segment['start']:7.1f} {segment['text']}")
"""


@dataclass(frozen=True)
class Usage:
    """What one process took: wall and CPU seconds, peak memory in MiB."""

    wall: float
    cpu: float
    peak: float


@dataclass
class Side:
    """A way to work on the videos: commands that run one after another, and what they took."""

    commands: list[Command]
    checkout: Path = LAB_FOLDER.parent
    runs: list[Usage] = field(default_factory=list)


def run_process(command: Command, checkout: Path, folder: Path) -> Usage:
    """Run a process to its end. Raises CalledProcessError where it fails."""
    environment = {**os.environ, "PYTHONPATH": str(checkout), "OMP_WAIT_POLICY": "PASSIVE"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    began = time.perf_counter()
    process = subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - began
    if status:
        raise subprocess.CalledProcessError(status, command)
    cpu = usage.ru_utime + usage.ru_stime
    return Usage(wall, cpu, usage.ru_maxrss / 1024)


def find_sides(options: argparse.Namespace) -> dict[str, Side]:
    """Return the sides that can run, by name."""
    videos = [str(video.resolve()) for video in options.videos]
    weights = str(find_weights(RECOGNISER_NAME))
    stepline = [sys.executable, "-m", "stepline", "-q"]
    job = [[*stepline, "steps", *videos, "--jobs", "1"]]
    speech = [[*stepline, "transcribe", video] for video in videos]
    reference = [[sys.executable, "-c", FASTER_WHISPER, weights, *videos]]
    sides = {
        "stepline": Side(job),
        "stepline, speech": Side(speech),
        REFERENCE_NAME: Side(reference),
    }
    if options.before is not None:
        sides["stepline before"] = Side(job, options.before.resolve())
    if options.scenedetect is not None:
        sides["PySceneDetect"] = Side([[options.scenedetect, "-c", SCENE_DETECT, *videos]])
    if options.whisperx is not None:
        sides["whisperX"] = Side([[options.whisperx, "-c", WHISPER_X, weights, *videos]])
    return sides


def run_side(side: Side) -> Usage:
    """Run a side's commands one after another in an empty folder and return what they took."""
    with tempfile.TemporaryDirectory() as folder:
        usages = [run_process(command, side.checkout, Path(folder)) for command in side.commands]
    return Usage(
        wall=sum(usage.wall for usage in usages),
        cpu=sum(usage.cpu for usage in usages),
        peak=max(usage.peak for usage in usages),
    )


def least_and_median(seconds: Sequence[float]) -> str:
    """Return the least of some times and their median, as printed."""
    return f"{min(seconds):.1f}, {statistics.median(seconds):.1f}"


def table(sides: dict[str, Side]) -> str:
    """Return the table of what was measured, in Markdown."""
    reference = min(usage.cpu for usage in sides[REFERENCE_NAME].runs)
    lines = ["| | wall s: least, median | CPU s: least, median | peak MiB | CPU, ratio |"]
    lines.append("|---|---|---|---|---|")
    for name, side in sides.items():
        wall = least_and_median([usage.wall for usage in side.runs])
        cpu_seconds = [usage.cpu for usage in side.runs]
        cpu = least_and_median(cpu_seconds)
        peak = max(usage.peak for usage in side.runs)
        ratio = min(cpu_seconds) / reference
        lines.append(f"| {name} | {wall} | {cpu} | {peak:.0f} | {ratio:.2f} |")
    return "\n".join(lines)


def main() -> None:
    """Measure in turn and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("videos", type=Path, nargs="+")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scenedetect", help="interpreter with scenedetect")
    parser.add_argument("--whisperx", help="interpreter with whisperx")
    parser.add_argument("--before", type=Path, help="a checkout of another version")
    options = parser.parse_args()
    sides = find_sides(options)
    # an installed package has its bytecode, and so has each of the peers
    for side in sides.values():
        compileall.compile_dir(side.checkout / "stepline", quiet=1)
    load = os.getloadavg()[0]
    for number in range(options.rounds):
        for name, side in sides.items():
            usage = run_side(side)
            side.runs.append(usage)
            text = f"{usage.wall:.1f} s, {usage.cpu:.1f} CPU s, {usage.peak:.0f} MiB"
            print(f"round {number + 1}, {name}: {text}", file=sys.stderr, flush=True)
    print(table(sides))
    print(f"\nLoad of the machine: {load:.1f} before, {os.getloadavg()[0]:.1f} after.")


if __name__ == "__main__":
    main()
