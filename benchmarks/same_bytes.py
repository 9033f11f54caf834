"""Whether a record depends on threads, cores or the processor: python benchmarks/same_bytes.py
CLIPS [--clip NAME ...] [--side NAME ...]

CLIPS is a folder of videos. The main job runs on them once as the machine is, and once per side, in
a process of its own. Sides have other numbers of threads in the environment, or one core. As far as
the libraries have a switch for it, sides have the instructions of another processor. CTranslate2,
NumPy and OpenBLAS have one, ONNX Runtime has none. Prints how many records are not the same bytes.
Also how many of them differ in words heard, in the text or status of a step, and in the number of
steps.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from stepline.files.storage import read_record
from stepline.processes import THREAD_VARIABLES
from stepline.records import Record

AVX512_FEATURES = "X86_V4 AVX512_ICL AVX512_SPR"  # as NumPy 2.4 names what it dispatches to


@dataclass(frozen=True)
class Side:
    """Surroundings of a run. variables: of the environment. prefix: of the command line."""

    variables: Mapping[str, str]
    prefix: Sequence[str] = ()


def of_threads(count: int, **variables: str) -> Side:
    """Return a side of that many threads."""
    return Side({**variables, **dict.fromkeys(THREAD_VARIABLES, str(count))})


REFERENCE_NAME = "as it is"
RUN_SIDES = {
    REFERENCE_NAME: Side({}),
    "1 thread": of_threads(1),
    "2 threads": of_threads(2),
    "4 threads": of_threads(4),
    "one core": Side({}, ("taskset", "-c", "0")),
    "OpenBLAS of AVX2": Side({"OPENBLAS_CORETYPE": "Haswell"}),
    "OpenBLAS of AVX-512": Side({"OPENBLAS_CORETYPE": "SkylakeX"}),
    "NumPy without AVX-512": Side({"NPY_DISABLE_CPU_FEATURES": AVX512_FEATURES}),
    "CTranslate2 of AVX2": Side({"CT2_FORCE_CPU_ISA": "AVX2", "ONEDNN_MAX_CPU_ISA": "AVX2"}),
    "CTranslate2 of AVX-512": Side({"CT2_FORCE_CPU_ISA": "AVX512"}),
    "CTranslate2 of any processor": Side(
        {"CT2_FORCE_CPU_ISA": "GENERIC", "ONEDNN_MAX_CPU_ISA": "SSE41"}
    ),
    "CTranslate2 of Intel": Side({"CT2_USE_MKL": "1"}),
    "CTranslate2 of Intel, 4 threads": of_threads(4, CT2_USE_MKL="1"),
}


def run(videos: Sequence[Path], side: Side, out: Path) -> dict[str, bytes]:
    """Return the record that the main job writes for each video, by the video's stem."""
    environment = {name: os.environ[name] for name in os.environ.keys() - {*THREAD_VARIABLES}}
    environment.update(side.variables)
    command = [*side.prefix, sys.executable, "-m", "stepline", "steps", *map(str, videos)]
    command += ["--out", str(out), "--jobs", "1", "--quiet"]
    subprocess.run(command, env=environment, check=True)
    return {video.stem: (out / f"{video.stem}.json").read_bytes() for video in videos}


def words(record: Record) -> str:
    """Return what is heard."""
    return " ".join(sentence.text for sentence in record.sentences)


def verdicts(record: Record) -> list[tuple[str, str | None]]:
    """Return text and status of each step."""
    return [(step.text, step.status) for step in record.steps]


def main() -> None:
    """Run each side and print a row about it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("clips", type=Path)
    parser.add_argument("--clip", action="append", help="stem of a video (default: all)")
    parser.add_argument("--side", action="append", choices=RUN_SIDES)
    arguments = parser.parse_args()
    videos = sorted(arguments.clips.glob("*.mp4"))
    if arguments.clip:
        videos = [video for video in videos if video.stem in arguments.clip]
    names = [name for name in arguments.side or RUN_SIDES if name != REFERENCE_NAME]

    print(f"{len(videos)} videos; records that are other than {REFERENCE_NAME!r}:")
    print("| side | other bytes | other words | other steps | other number of steps |")
    print("|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        reference = Path(folder) / REFERENCE_NAME
        expected = run(videos, RUN_SIDES[REFERENCE_NAME], reference)
        for name in names:
            out = Path(folder) / name
            contents = run(videos, RUN_SIDES[name], out)
            different = [stem for stem in contents if contents[stem] != expected[stem]]
            other_words = 0
            other_steps = 0
            other_counts = 0
            for stem in different:
                before = read_record(reference / f"{stem}.json")
                after = read_record(out / f"{stem}.json")
                other_words += words(before) != words(after)
                other_steps += verdicts(before) != verdicts(after)
                other_counts += len(before.steps) != len(after.steps)
            counts = f"{len(different)} | {other_words} | {other_steps} | {other_counts}"
            print(f"| {name} | {counts} | {', '.join(different)} |", flush=True)


if __name__ == "__main__":
    main()
