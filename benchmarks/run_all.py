"""Runs every benchmark in turn and says which failed: python benchmarks/run_all.py [NAME ...]."""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).parent
CLIPS = HERE.parents[1] / "shared" / "data" / "videos"  # real clips are not part of the project
CACHE = Path(tempfile.gettempdir()) / "stepline-drawn"  # drawn videos, made once
# drawn how-to videos, what curate_throughput.py goes through
CORPUS = CACHE.with_name("stepline-corpus")

COMMANDS = {
    "asr": ("asr.py", "--clips", CLIPS),
    "curate_corpus": ("curate_corpus.py", CORPUS),
    "curate_index": ("curate_index.py",),
    "curate_sources": ("curate_sources.py",),
    "curate_throughput": (
        "curate_throughput.py",
        CORPUS / "videos.csv",
        "--recipe",
        HERE / "curate_howtostep.toml",
    ),
    "deformable_attention": ("deformable_attention.py",),
    "fit_world": ("fit_world.py",),
    "gpu": ("gpu.py",),
    "grounding": ("grounding.py", "--cache", CACHE),
    "judge_clips": ("judge_clips.py", "--out", CACHE.with_name("stepline-judged")),
    "linearity": ("linearity.py",),
    "llm_local": ("llm_local.py",),
    "media": ("media.py", CLIPS / "howto100m_money_clip.mp4"),
    "nasva_speed": ("nasva_speed.py",),
    "retrieval": ("retrieval.py",),
    "shown_negatives": ("shown_negatives.py", "--trials", CACHE.with_name("stepline-nasva")),
    "sieve_swap": ("sieve_swap.py", "--cache", CACHE.with_name("stepline-sieve-swap")),
    "speed": ("speed.py", CLIPS / "howto100m_money_clip.mp4"),
    "vision": ("vision.py",),
    "whenact": ("whenact.py",),
    "world_statistics": ("world_statistics.py",),
    "writing": ("writing.py",),
}


def main(names: list[str]) -> int:
    """Run the named benchmarks, all when none is named. Return how many failed."""
    failed = []
    for name in names or list(COMMANDS):
        script, *arguments = COMMANDS[name]
        print(f"== {name}", flush=True)
        began = time.monotonic()
        done = subprocess.run(
            [sys.executable, str(HERE / script), *map(str, arguments)], check=False
        )
        print(
            f"== {name}: exit {done.returncode} after {time.monotonic() - began:.0f} s", flush=True
        )
        failed += [name] if done.returncode else []
    print(f"failed: {', '.join(failed) or 'none'}")
    return len(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
