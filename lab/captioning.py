"""Dense captioning scores measured: agreement with the official METEOR, speed next to it, and
10,000 videos.

    python lab/captioning.py [--data FOLDER] [--videos N]

The references are YouCook2's validation captions, found in FOLDER (val.json.gz). The predictions
are made from them by seed: jitter, drop, duplicate, paraphrase, borrow. Where Java and
pycocoevalcap run, the same videos are scored the official way in the same run. This uses its own
classes, METEOR asked for every pair of a video as SODA does, the tokenizer run at every tIoU as
densevid_eval does. Without the data or Java those parts are left out and said so. Prints and writes
lab/results/captioning.json.
"""

import argparse
import cProfile
import json
import os
import platform
import pstats
import random
import resource
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from shutil import which
from typing import Any, TypeVar

from captioning_data import DRAW_SEED, Videos, paraphrase, predicted, synthetic, youcook2

from stepline.evaluate.dense_captioning import TIOU_THRESHOLDS, densevid
from stepline.evaluate.meteor import Meteor
from stepline.evaluate.meteor.resources import load_lexicon, load_phrases
from stepline.evaluate.ptb import Tokenizer, only_ascii
from stepline.evaluate.soda import soda

T = TypeVar("T")

RESULT_PATH = Path(__file__).parent / "results" / "captioning.json"
DATA_FOLDER = Path(__file__).resolve().parents[2] / "shared" / "data" / "youcook2"
PAIR_COUNT = 4_000  # sentence pairs of the agreement check
VIDEO_COUNT = 10_000  # of the long run
EVENTS_PER_VIDEO = 8
SCORE_TOLERANCE = 1e-4  # on a METEOR score
PROFILE_FUNCTIONS = 12  # functions of the profile


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data", type=Path, default=DATA_FOLDER)
    parser.add_argument("--videos", type=int, default=200)
    options = parser.parse_args()
    # Compiles the paraphrase table where that was never done
    Meteor()
    result: dict[str, Any] = {
        "machine": {"cores": os.cpu_count(), "python": platform.python_version()},
        "seed": DRAW_SEED,
    }
    _, meteor_seconds = timed(fresh_meteor)
    _, tokenizer_seconds = timed(Tokenizer)
    result["start"] = {"METEOR s": meteor_seconds, "tokenizer s": tokenizer_seconds}
    result["many videos"] = [
        many_videos(VIDEO_COUNT // 5, workers=1),
        many_videos(VIDEO_COUNT, workers=1),
        many_videos(VIDEO_COUNT, workers=2),
    ]
    path = options.data / "val.json.gz"
    if path.is_file():
        references = youcook2(path, options.videos)
        result |= with_references(references, predicted(references))
    else:
        result["side by side"] = f"left out: {path.name} was not there"
    text = json.dumps(result, indent=1)
    RESULT_PATH.write_text(text + "\n", encoding="utf-8")
    print(text)


def with_references(references: Videos, predictions: Videos) -> dict[str, Any]:
    """Return what is measured on YouCook2's captions."""
    official = find_spec("pycocoevalcap") is not None and which("java") is not None
    slowest = profile(references, predictions)
    agreement_of_pairs: object = "left out: no Java or no pycocoevalcap"
    if official:
        agreement_of_pairs = agreement(references)
    return {
        "profile": slowest,
        "agreement": agreement_of_pairs,
        "side by side": side_by_side(references, predictions, official),
    }


def timed(work: Callable[[], T]) -> tuple[T, float]:
    """Return what some work returns, and its seconds."""
    start = time.perf_counter()
    value = work()
    return value, round(time.perf_counter() - start, 3)


def fresh_meteor() -> Meteor:
    """Make a Meteor whose tables are read again, as a new process does."""
    load_lexicon.cache_clear()
    load_phrases.cache_clear()
    return Meteor()


def agreement(references: Videos) -> dict[str, Any]:
    """METEOR of sentence pairs, in Python and by the official program."""
    from captioning_official import OfficialMeteor

    draw = random.Random(DRAW_SEED)
    tokens = Tokenizer()
    texts = [text for events in references.values() for _, _, text in events]
    pairs = []
    for _ in range(PAIR_COUNT):
        text = draw.choice(texts)
        is_other_text = draw.random() < 0.2
        other = draw.choice(texts) if is_other_text else paraphrase(text, draw)
        reference_tokens = tokens(only_ascii(text))
        pairs.append(((reference_tokens,), tokens(only_ascii(other))))
    ours, seconds = timed(lambda: fresh_meteor().compare(pairs))
    theirs, official_seconds = timed(lambda: OfficialMeteor().compare(pairs))
    differences = []
    for own, official in zip(ours.segments, theirs.segments, strict=True):
        differences.append(abs(own - official))
    equal = sum(difference <= SCORE_TOLERANCE for difference in differences)
    return {
        "pairs": PAIR_COUNT,
        "share within 1e-4": equal / PAIR_COUNT,
        "largest difference": max(differences),
        "aggregate difference": abs(ours.aggregate - theirs.aggregate),
        "s": seconds,
        "official s": official_seconds,
    }


def side_by_side(references: Videos, predictions: Videos, official: bool) -> dict[str, Any]:
    """Score the same videos our way, from cold tables, and the official way."""
    fresh_meteor()
    ours_soda, soda_seconds = timed(lambda: soda(references, predictions, kind="c"))
    fresh_meteor()
    ours_densevid, densevid_seconds = timed(
        lambda: densevid([references], predictions, version="2018")
    )
    table: dict[str, Any] = {
        "videos": len(references),
        "events": sum(map(len, references.values())),
        "predicted": sum(map(len, predictions.values())),
        "SODA_c": {"F1": ours_soda.f1, "s": soda_seconds},
        "densevid 2018": {**ours_densevid.mean, "s": densevid_seconds},
    }
    if official:
        from captioning_official import OfficialMeteor, official_densevid, official_soda

        score, seconds = timed(lambda: official_soda(references, predictions))
        row = table["SODA_c"]
        row["official F1"] = score
        row["official s"] = seconds
        row["times faster"] = round(seconds / soda_seconds, 1)
        scores, seconds = timed(lambda: official_densevid(references, predictions, TIOU_THRESHOLDS))
        row = table["densevid 2018"]
        for name, value in scores.items():
            row[f"official {name}"] = value
        row["official s"] = seconds
        row["times faster"] = round(seconds / densevid_seconds, 1)
        _, start_seconds = timed(lambda: OfficialMeteor().compare([(("cut",), "cut")]))
        table["of which Java's start s"] = start_seconds
    return table


def profile(references: Videos, predictions: Videos) -> list[str]:
    """Return the functions in which SODA_c spends most of its own time."""
    fresh_meteor()
    profiler = cProfile.Profile()
    profiler.runcall(soda, references, predictions, kind="c")
    rows = pstats.Stats(profiler).get_stats_profile().func_profiles
    total = sum(row.tottime for row in rows.values())
    slowest = sorted(rows.items(), key=lambda item: -item[1].tottime)[:PROFILE_FUNCTIONS]
    lines = []
    for name, row in slowest:
        share = 100 * row.tottime / total
        lines.append(f"{share:4.1f} %  {Path(row.file_name).name}:{name}")
    return lines


def many_videos(videos: int, workers: int) -> dict[str, Any]:
    """Score synthetic videos for SODA_c. Memory is the highest so far, of this process and of any
    worker."""
    references = synthetic(videos, EVENTS_PER_VIDEO)
    predictions = predicted(references)
    texts = set()
    for events in (*references.values(), *predictions.values()):
        texts.update(text for _, _, text in events)
    memory_before = _memory(resource.RUSAGE_SELF)
    cpu_start = _processor_seconds()
    score, seconds = timed(lambda: soda(references, predictions, kind="c", workers=workers))
    return {
        "videos": videos,
        "workers": workers,
        "different captions": len(texts),
        "F1": score.f1,
        "s": seconds,
        "processor s": round(_processor_seconds() - cpu_start, 1),
        "memory MB before": memory_before,
        "memory MB after": _memory(resource.RUSAGE_SELF),
        "worker memory MB": _memory(resource.RUSAGE_CHILDREN) if workers > 1 else None,
    }


def _processor_seconds() -> float:
    """Return what this process and its ended workers used, which other programs on the machine do
    not change."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def _memory(whose: int) -> int:
    return resource.getrusage(whose).ru_maxrss // 1024


if __name__ == "__main__":
    main()
