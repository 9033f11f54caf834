"""Runs the scripts that need no clips or data of yours, and says which failed: python lab/run_all.py [NAME ...]."""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

LAB_FOLDER = Path(__file__).parent
DATA_FOLDER = LAB_FOLDER.parents[1] / "shared" / "data"  # beside the project, not part of it
CLIPS_FOLDER = DATA_FOLDER / "videos"
DEMO_CLIP = CLIPS_FOLDER / "howto100m_money_clip.mp4"
WORK_FOLDER = Path(tempfile.gettempdir())  # keeps what is drawn and built from run to run
CORPUS_FOLDER = WORK_FOLDER / "stepline-corpus"  # of curate_corpus.py, read by curate_throughput.py

COMMAND_OF_NAME: dict[str, tuple[object, ...]] = {
    "asr": ("asr.py", "--clips", CLIPS_FOLDER),
    "curate_corpus": ("curate_corpus.py", CORPUS_FOLDER),
    "curate_throughput": (
        "curate_throughput.py",
        CORPUS_FOLDER / "videos.csv",
        "--recipe",
        LAB_FOLDER / "curate_howtostep.toml",
    ),
    "grounding": ("grounding.py", "--cache", WORK_FOLDER / "stepline-drawn"),
    "screencasts": ("screencasts.py", WORK_FOLDER / "stepline-screencasts"),
    "sieve_swap": ("sieve_swap.py", "--cache", WORK_FOLDER / "stepline-sieve-swap"),
    "speed": ("speed.py", DEMO_CLIP),
    "writing": ("writing.py",),
}


def main(names: list[str]) -> int:
    """Run the named scripts, all when none is named. Return how many failed."""
    failed = []
    for name in names or list(COMMAND_OF_NAME):
        script, *arguments = COMMAND_OF_NAME[name]
        print(f"== {name}", flush=True)
        began = time.monotonic()
        command = [sys.executable, str(LAB_FOLDER / script), *map(str, arguments)]
        status = subprocess.run(command, check=False).returncode
        seconds = time.monotonic() - began
        print(f"== {name}: exit {status} after {seconds:.0f} s", flush=True)
        if status:
            failed.append(name)
    print(f"failed: {', '.join(failed) or 'none'}")
    return len(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
