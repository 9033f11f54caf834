"""Runs every benchmark in turn and says which failed: python lab/run_all.py [NAME ...]."""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

BENCHMARKS_FOLDER = Path(__file__).parent
# real clips are not part of the project
CLIPS_FOLDER = BENCHMARKS_FOLDER.parents[1] / "shared" / "data" / "videos"
DEMO_CLIP = CLIPS_FOLDER / "howto100m_money_clip.mp4"
DRAWN_FOLDER = Path(tempfile.gettempdir()) / "stepline-drawn"  # drawn videos, made once
# drawn how-to videos, what curate_throughput.py goes through
CORPUS_FOLDER = DRAWN_FOLDER.with_name("stepline-corpus")

COMMAND_OF_NAME = {
    "asr": ("asr.py", "--clips", CLIPS_FOLDER),
    "curate_corpus": ("curate_corpus.py", CORPUS_FOLDER),
    "curate_index": ("curate_index.py",),
    "curate_sources": ("curate_sources.py",),
    "curate_throughput": (
        "curate_throughput.py",
        CORPUS_FOLDER / "videos.csv",
        "--recipe",
        BENCHMARKS_FOLDER / "curate_howtostep.toml",
    ),
    "deformable_attention": ("deformable_attention.py",),
    "fit_world": ("fit_world.py",),
    "gpu": ("gpu.py",),
    "grounding": ("grounding.py", "--cache", DRAWN_FOLDER),
    "judge_clips": ("judge_clips.py", "--out", DRAWN_FOLDER.with_name("stepline-judged")),
    "linearity": ("linearity.py",),
    "llm_local": ("llm_local.py",),
    "media": ("media.py", DEMO_CLIP),
    "nasva_speed": ("nasva_speed.py",),
    "retrieval": ("retrieval.py",),
    "shown_negatives": ("shown_negatives.py", "--trials", DRAWN_FOLDER.with_name("stepline-nasva")),
    "sieve_swap": ("sieve_swap.py", "--cache", DRAWN_FOLDER.with_name("stepline-sieve-swap")),
    "speed": ("speed.py", DEMO_CLIP),
    "vision": ("vision.py",),
    "whenact": ("whenact.py",),
    "world_statistics": ("world_statistics.py",),
    "writing": ("writing.py",),
}


def main(names: list[str]) -> int:
    """Run the named benchmarks, all when none is named. Return how many failed."""
    failed = []
    for name in names or list(COMMAND_OF_NAME):
        script, *arguments = COMMAND_OF_NAME[name]
        print(f"== {name}", flush=True)
        began = time.monotonic()
        command = [sys.executable, str(BENCHMARKS_FOLDER / script), *map(str, arguments)]
        status = subprocess.run(command, check=False).returncode
        seconds = time.monotonic() - began
        print(f"== {name}: exit {status} after {seconds:.0f} s", flush=True)
        if status:
            failed.append(name)
    print(f"failed: {', '.join(failed) or 'none'}")
    return len(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
