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
from pathlib import Path

DEMO = Path(__file__).resolve().parents[1] / "stepline" / "demo" / "demo.mp4"
STEPS = (
    "slice the lemons",
    "pour the juice into the bowl",
    "whisk the sugar into the water",
    "add the salt",
    "stir it",
)


def captions(count: int, pace: float = 3.0) -> str:
    """Return that many cues, `pace` seconds apart."""

    def clock(seconds: float) -> str:
        whole = int(seconds)
        return f"{whole // 3600:02d}:{whole // 60 % 60:02d}:{whole % 60:02d},{int(seconds % 1 * 1000):03d}"

    return "".join(
        f"{i + 1}\n{clock(i * pace)} --> {clock(i * pace + pace * 0.9)}\nNow {STEPS[i % 5]} number {i}.\n\n"
        for i in range(count)
    )


def read(folder: Path, size: int) -> None:
    """Read and write `size` * 50 cues, as of a video that lasts as long."""
    from stepline.asr import read_captions
    from stepline.writing import write_steps
    from stepline.writing.settings import WritingSettings

    (folder / "c.srt").write_text(captions(size * 50))
    write_steps(read_captions(folder / "c.srt").transcript, WritingSettings())


def _steps(**given: object) -> None:
    from stepline.pipeline.batch import steps
    from stepline.pipeline.request import StepsSettings
    from stepline.settings import load_settings

    steps(DEMO, settings=load_settings(StepsSettings, None, ["vision.backbone=none"]), **given)  # type: ignore[arg-type]


def late(folder: Path, size: int) -> None:
    """Find the steps of the demo with `size` * 200 cues, most of them past its end."""
    (folder / "c.srt").write_text(captions(size * 200))
    _steps(captions=folder / "c.srt")


def one_cue(folder: Path, size: int) -> None:
    """Find the steps of the demo with one cue of `size` * 38 KB."""
    (folder / "c.srt").write_text(
        captions(5) + f"\n9\n00:00:20,000 --> 00:00:29,000\n{'slice it now. ' * (2720 * size)}\n"
    )
    _steps(captions=folder / "c.srt")


def texts(folder: Path, size: int) -> None:
    """Look for `size` * 100 lines in the demo and write the usual outputs, as `stepline steps
    --texts` does."""
    from stepline.outputs import USUAL
    from stepline.pipeline.batch import run_video
    from stepline.pipeline.output_files import OutputOptions
    from stepline.pipeline.request import Request, StepsSettings
    from stepline.settings import load_settings

    (folder / "c.srt").write_text(captions(20))
    lines = tuple(f"{STEPS[i % 5]} {i}" for i in range(size * 100))
    output = OutputOptions(folder / "out", USUAL, force=True)
    run_video(
        Request(DEMO, "demo", folder / "c.srt", lines), load_settings(StepsSettings, None), output
    )


def silence(_: Path, size: int) -> None:
    """Listen to `size` * 216 s of silence. 100x is six hours."""
    import numpy as np

    from stepline.asr import transcribe
    from stepline.media import AudioBlock

    transcribe(
        AudioBlock(float(second), np.zeros(16_000, np.float32)) for second in range(size * 216)
    )


INPUTS = {
    "captions": read,
    "late-captions": late,
    "one-cue": one_cue,
    "texts": texts,
    "silence": silence,
}


def measure(name: str, size: int) -> tuple[float, float]:
    """Return CPU seconds and peak MiB of one input at one size, in a process of its own."""
    done = subprocess.run(
        [sys.executable, __file__, "--one", name, str(size)],
        check=True,
        capture_output=True,
        text=True,
    )
    seconds, peak = done.stdout.split()[-2:]
    return float(seconds), float(peak)


def main() -> None:
    """Print the table, or do one cell of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=list(INPUTS))
    parser.add_argument("--most", type=int, default=100)
    parser.add_argument("--one", nargs=2)
    given = parser.parse_args()
    if given.one:
        with tempfile.TemporaryDirectory() as folder:
            INPUTS[given.one[0]](Path(folder), 1)  # models and libraries are loaded by the first
            began = time.process_time()
            INPUTS[given.one[0]](Path(folder), int(given.one[1]))
        print(
            time.process_time() - began, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        )
        return
    sizes = [size for size in (1, 10, 100) if size <= given.most]
    print(
        f"| input | {' | '.join(f'{size}x: CPU s, MiB' for size in sizes)} |\n|---|{'---|' * len(sizes)}"
    )
    for name in given.names:
        cells = [measure(name, size) for size in sizes]
        print(f"| {name} | {' | '.join(f'{s:.1f}, {m:.0f}' for s, m in cells)} |", flush=True)


if __name__ == "__main__":
    main()
