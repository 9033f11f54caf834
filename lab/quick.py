"""What the main things take now, as a ratio to an earlier version, in ten minutes: `make bench-quick`.

    python lab/quick.py [--before REVISION] [--rounds 2] [--only NAME ...] [--release NAME]

--before: a revision of this repository, by default the last tag, else the last release of
lab/results/quick.json. Both versions do the same in turn, each measure in a process of its
own, one thread. What counts is the ratio of the least CPU seconds, so that a busy machine disturbs
both alike.

--release: keeps the ratios under that name in lab/results/quick.json, from which the table
is printed, a column per release.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

LAB_FOLDER = Path(__file__).resolve().parent
PROJECT_FOLDER = LAB_FOLDER.parent
RESULT_PATH = LAB_FOLDER / "results" / "quick.json"
SEARCHED_STEPS = 100_000
CORRECTED_VIDEOS = 1_000
VECTOR_WIDTH = 384
Work = Callable[[], object]
Usage = dict[str, float]


def main_job() -> Work:
    """The demo video, cold in all but Python and its modules."""
    return lambda: _steps(copies=1)


def folder() -> Work:
    """Three copies of the demo video in one process."""
    return lambda: _steps(copies=3)


def _steps(copies: int) -> None:
    import stepline
    from stepline.cli import main

    demo = next(Path(stepline.__file__).parent.rglob("demo.mp4"))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        videos = []
        for number in range(copies):
            video = folder / f"{number}.mp4"
            shutil.copy(demo, video)
            videos.append(str(video))
        arguments = ["-q", "steps", *videos, "--jobs", "1", "--out", str(folder / "out")]
        # The command ends its process with the exit code.
        try:
            main(arguments, standalone_mode=False)
        except SystemExit as end:
            if end.code:
                raise


def captions() -> Work:
    """Steps of captions alone: half an hour of talk, without a network that hears or sees."""
    from stepline.pipeline.request import StepsSettings
    from stepline.pipeline.understand import propose_steps
    from stepline.records import Sentence, Span, Transcript

    lines = ("Now whisk the eggs until they are stiff.", "I love this part.", "Pour it in the pan.")
    sentences = []
    for number in range(600):
        start = 3.0 * number
        text = lines[number % len(lines)]
        sentences.append(Sentence(text=text, span=Span(start, start + 2.5)))
    transcript = Transcript(language="en", sentences=tuple(sentences))
    request: Any = argparse.Namespace(texts=(), origin=None)
    return lambda: propose_steps(request, transcript, StepsSettings())


def nasva_step() -> Work:
    """Three training steps of the grounding network: 8 videos of 400 s, 50 texts each."""
    from training_steps import NasvaTrainer, nasva_batch

    trainer = NasvaTrainer()
    data = nasva_batch(8, 400, 50)

    def train() -> None:
        for _ in range(3):
            trainer.train(data)

    return train


def procx_step() -> Work:
    """Three training steps of the small ProcX: 8 videos of 256 rows."""
    from training_steps import ProcxTrainer

    trainer = ProcxTrainer()

    def train() -> None:
        for _ in range(3):
            trainer.step()

    return train


def search() -> Work:
    """An index of 100,000 made steps, and twenty queries. Vectors are random."""
    import numpy as np
    from search import QUERY_TEXTS, made_records

    from stepline.library import SearchIndex
    from stepline.text import embed

    rng = np.random.default_rng(1)
    records = Path(tempfile.mkdtemp())
    made_records(records, SEARCHED_STEPS)

    def embedder(texts: list[str]) -> Any:
        if len(texts) == 1:
            return embed(texts)
        rows = rng.normal(size=(len(texts), VECTOR_WIDTH)).astype(np.float32)
        lengths = np.linalg.norm(rows, axis=1, keepdims=True)
        return rows / lengths

    def ask() -> None:
        index = SearchIndex(records, embedder)
        index.update()
        for query in QUERY_TEXTS * 5:
            index.search(query)
        shutil.rmtree(records)

    return ask


def corrections() -> Work:
    """A correction of each of 1,000 videos of a hundred steps, and the list of the videos."""
    from search import made_records

    from stepline.library.corrected_library import CorrectedLibrary
    from stepline.library.corrections import Correction, DeleteEdit

    records = Path(tempfile.mkdtemp())
    made_records(records, 100 * CORRECTED_VIDEOS)

    def correct() -> None:
        library = CorrectedLibrary(records)
        edits = (DeleteEdit(do="delete", step="7"),)
        for number, card in enumerate(library.videos()):
            id = f"c{number}"
            correction = Correction(id=id, video=card.id, by="me", when=1.0, base=0, edits=edits)
            library.correct(card.id, correction)
        library.videos()
        library.close()
        shutil.rmtree(records)

    return correct


MEASURE_MAKERS: dict[str, Callable[[], Work]] = {
    "main job": main_job,
    "folder of three": folder,
    "captions": captions,
    "NaSVA step": nasva_step,
    "ProcX step": procx_step,
    "search, 100,000 steps": search,
    "corrections, 1,000 videos": corrections,
}
MEASURE_NAMES = [*MEASURE_MAKERS]


def measure(name: str) -> None:
    """Do one measure here, and write its CPU seconds and the peak memory of the process."""
    from media import peak_mib

    work = MEASURE_MAKERS[name]()
    began = time.process_time()
    work()
    usage = {"cpu_s": time.process_time() - began, "peak_mib": peak_mib()}
    print(json.dumps(usage), file=sys.stderr)


def run_measure(name: str, checkout: Path) -> Usage:
    """Return what a measure takes with a checkout's package. Exits where it fails."""
    threads = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
    environment = {**os.environ, **threads, "PYTHONPATH": str(checkout)}
    command = [sys.executable, str(LAB_FOLDER / "quick.py"), "--measure", name]
    process = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if process.returncode:
        sys.exit(f"{name} failed in {checkout}:\n{process.stderr[-2000:]}")
    last_line = process.stderr.strip().splitlines()[-1]
    usage: Usage = json.loads(last_line)
    return usage


def run_git(*arguments: str, check: bool = True) -> bytes:
    """Return what a command of git prints in this repository."""
    command = ["git", *arguments]
    return subprocess.run(command, cwd=PROJECT_FOLDER, check=check, capture_output=True).stdout


def check_out(revision: str, folder: Path) -> None:
    """Write the files of a revision into a folder."""
    archive = run_git("archive", revision)
    subprocess.run(["tar", "x", "-C", str(folder)], input=archive, check=True)


def last_release(releases: dict[str, Any]) -> str:
    """Return the revision to compare with: the last tag, else that of the last release kept."""
    tag = run_git("describe", "--tags", "--abbrev=0", check=False).decode().strip()
    if tag:
        return tag
    if not releases:
        sys.exit("no tag and no release to compare with; name one with --before REVISION")
    revision: str = list(releases.values())[-1]["revision"]
    return revision


def compare(names: list[str], before: Path, rounds: int) -> dict[str, Usage]:
    """Return of each measure the least CPU seconds of both versions, their ratio, and the peaks."""
    checkouts = {"before": before, "now": PROJECT_FOLDER}
    rows = {}
    for name in names:
        runs: dict[str, list[Usage]] = {side: [] for side in checkouts}
        for _ in range(rounds):
            for side, checkout in checkouts.items():
                runs[side].append(run_measure(name, checkout))
        row: Usage = {}
        for side, usages in runs.items():
            row[f"{side}_cpu_s"] = round(min(usage["cpu_s"] for usage in usages), 2)
            row[f"{side}_peak_mib"] = round(max(usage["peak_mib"] for usage in usages))
        row["ratio"] = round(row["now_cpu_s"] / row["before_cpu_s"], 3)
        rows[name] = row
        seconds = f"{row['before_cpu_s']:.1f} | {row['now_cpu_s']:.1f} | {row['ratio']:.2f}"
        peaks = f"{row['before_peak_mib']} | {row['now_peak_mib']}"
        print(f"| {name} | {seconds} | {peaks} |", flush=True)
    return rows


def release_table(releases: dict[str, Any]) -> str:
    """Return the ratios of all releases in Markdown."""
    lines = [f"| CPU seconds, now / before | {' | '.join(releases)} |"]
    lines.append("|---" * (len(releases) + 1) + "|")
    for name in MEASURE_NAMES:
        cells = []
        for release in releases.values():
            row = release["measures"].get(name)
            cells.append("" if row is None else f"{row['ratio']:.2f}")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Measure, print, and keep the ratios of a release."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--before", metavar="REVISION")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--only", nargs="+", choices=MEASURE_NAMES, default=MEASURE_NAMES)
    parser.add_argument("--release", metavar="NAME")
    parser.add_argument("--measure", choices=MEASURE_NAMES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        measure(options.measure)
        return

    releases = json.loads(RESULT_PATH.read_text()) if RESULT_PATH.exists() else {}
    revision = options.before or last_release(releases)
    print(f"Against {revision}:\n")
    print("| | before, CPU s | now, CPU s | ratio | before, MiB | now, MiB |")
    print("|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as name:
        checkout = Path(name)
        check_out(revision, checkout)
        rows = compare(options.only, checkout, options.rounds)
    if options.release:
        head = run_git("rev-parse", "--short", "HEAD").decode().strip()
        releases[options.release] = {"revision": head, "before": revision, "measures": rows}
        text = json.dumps(releases, indent=2)
        RESULT_PATH.write_text(f"{text}\n")
    if releases:
        print(f"\n{release_table(releases)}")


if __name__ == "__main__":
    main()
