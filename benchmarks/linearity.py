"""What each input costs at 1x, 10x and 100x of its size: CPU seconds and peak memory, a process
each.

`python benchmarks/linearity.py [--most 100] [INPUT ...]` prints a table. Linear is a step of 10 in
both, less what a start costs. Inputs: captions, late-captions, one-cue, texts, silence.
"""

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

DEMO_PATH = Path(__file__).resolve().parents[1] / "stepline" / "demo" / "demo.mp4"
STEP_TEXTS = (
    "slice the lemons",
    "pour the juice into the bowl",
    "whisk the sugar into the water",
    "add the salt",
    "stir it",
)


def step_text(number: int) -> str:
    """Return one of the steps, in turn."""
    return STEP_TEXTS[number % len(STEP_TEXTS)]


def clock(seconds: float) -> str:
    """Return a time as a caption file has it."""
    whole = int(seconds)
    hours = whole // 3600
    minutes = whole // 60 % 60
    thousandths = int(seconds % 1 * 1000)
    return f"{hours:02d}:{minutes:02d}:{whole % 60:02d},{thousandths:03d}"


def captions(count: int, pace: float = 3.0) -> str:
    """Return that many cues, `pace` seconds apart."""
    cues = []
    for number in range(count):
        start = number * pace
        span = f"{clock(start)} --> {clock(start + pace * 0.9)}"
        text = f"Now {step_text(number)} number {number}."
        cues.append(f"{number + 1}\n{span}\n{text}\n\n")
    return "".join(cues)


def read(folder: Path, size: int) -> None:
    """Read and write `size` * 50 cues, as of a video that lasts as long."""
    from stepline.speech import read_captions
    from stepline.writing import write_steps
    from stepline.writing.settings import WritingSettings

    path = folder / "c.srt"
    path.write_text(captions(size * 50))
    transcript = read_captions(path).transcript
    write_steps(transcript, WritingSettings())


def _steps(captions_path: Path) -> None:
    """Find the steps of the demo without its pictures."""
    from stepline.pipeline.batch import steps
    from stepline.pipeline.request import StepsSettings
    from stepline.settings import load_settings

    settings = load_settings(StepsSettings, None, ["vision.backbone=none"])
    steps(DEMO_PATH, settings=settings, captions=captions_path)


def late(folder: Path, size: int) -> None:
    """Find the steps of the demo with `size` * 200 cues, most of them past its end."""
    path = folder / "c.srt"
    path.write_text(captions(size * 200))
    _steps(path)


def one_cue(folder: Path, size: int) -> None:
    """Find the steps of the demo with one cue of `size` * 38 KB."""
    path = folder / "c.srt"
    text = "slice it now. " * (2720 * size)
    path.write_text(captions(5) + f"\n9\n00:00:20,000 --> 00:00:29,000\n{text}\n")
    _steps(path)


def texts(folder: Path, size: int) -> None:
    """Look for `size` * 100 lines in the demo and write the usual outputs, as `stepline steps
    --texts` does."""
    from stepline.outputs import USUAL
    from stepline.pipeline.batch import run_video
    from stepline.pipeline.output_files import OutputOptions
    from stepline.pipeline.request import Request, StepsSettings
    from stepline.settings import load_settings

    path = folder / "c.srt"
    path.write_text(captions(20))
    lines = tuple(f"{step_text(number)} {number}" for number in range(size * 100))
    request = Request(DEMO_PATH, "demo", path, lines)
    options = OutputOptions(folder / "out", USUAL, force=True)
    run_video(request, load_settings(StepsSettings, None), options)


def silence(_: Path, size: int) -> None:
    """Listen to `size` * 216 s of silence. 100x is six hours."""
    import numpy as np

    from stepline.media import AudioBlock
    from stepline.speech import transcribe

    def blocks() -> Iterator[AudioBlock]:
        for second in range(size * 216):
            yield AudioBlock(float(second), np.zeros(16_000, np.float32))

    transcribe(blocks())


WORK_OF_INPUT = {
    "captions": read,
    "late-captions": late,
    "one-cue": one_cue,
    "texts": texts,
    "silence": silence,
}


def measure(name: str, size: int) -> tuple[float, float]:
    """Return CPU seconds and peak MiB of one input at one size, in a process of its own."""
    command = [sys.executable, __file__, "--one", name, str(size)]
    process = subprocess.run(command, check=True, capture_output=True, text=True)
    seconds, peak = process.stdout.split()[-2:]
    return float(seconds), float(peak)


def report(name: str, size: int) -> None:
    """Print the CPU seconds and peak MiB of one input. The process ends after it."""
    work = WORK_OF_INPUT[name]
    with tempfile.TemporaryDirectory() as folder:
        # models and libraries are loaded by the first
        work(Path(folder), 1)
        began = time.process_time()
        work(Path(folder), size)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(time.process_time() - began, peak)


def main() -> None:
    """Print the table, or do one cell of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=list(WORK_OF_INPUT))
    parser.add_argument("--most", type=int, default=100)
    parser.add_argument("--one", nargs=2)
    options = parser.parse_args()
    if options.one:
        name, size = options.one
        report(name, int(size))
        return
    sizes = [size for size in (1, 10, 100) if size <= options.most]
    titles = [f"{size}x: CPU s, MiB" for size in sizes]
    print(f"| input | {' | '.join(titles)} |")
    print(f"|---|{'---|' * len(sizes)}")
    for name in options.names:
        cells = []
        for size in sizes:
            seconds, mib = measure(name, size)
            cells.append(f"{seconds:.1f}, {mib:.0f}")
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
