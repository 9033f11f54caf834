"""Sieve & Swap on real text: thresholds on hand-made pairs, sieve and swaps on 300 made videos.

    python lab/sieve_swap.py [--cache DIR] [--others N]

Thresholds are chosen on made_transcripts/pairs.tsv. The test half of the videos chooses nothing.
The base is the recipes of ../shared/data without half of the videos' own. With --others it takes
only N recipes of no video next to those. All need about five minutes of a quiet core for their
vectors.
"""

import argparse
import json
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from made_transcripts import MadeVideo, make_videos, read_recipes
from made_transcripts.base import base_recipes, made_base
from made_transcripts.pairs import read_pairs
from sieve_swap_scores import (
    own_words,
    pair_rates,
    refusal_counts,
    sieve_scores,
    swap_scores,
    swaps,
    violations,
)

from stepline.records import Matrix, Record
from stepline.sieve_swap.agreement import find_contradiction
from stepline.sieve_swap.part_files import read_pairs as read_paired
from stepline.sieve_swap.run import SieveSwapJob, run_job
from stepline.sieve_swap.settings import SieveSwapSettings, SwapSettings
from stepline.sieve_swap.swap import are_instructions, sieve_and_swap
from stepline.sieve_swap.text_base.base import TextBase
from stepline.storage import write_parquet
from stepline.text import embed

RESULT_PATH = Path(__file__).parent / "results" / "sieve_swap.json"
CACHE_FOLDER = Path(tempfile.gettempdir()) / "stepline-sieve-swap"
GRID_COSINES = [round(float(t), 2) for t in np.arange(0.3, 0.82, 0.02)]
PAPER_COSINE = 0.75  # of the swap threshold, with MPNet
# those with English speech
Encode = Callable[[Sequence[str]], Matrix]


def remembering() -> Encode:
    """Return an encoder that embeds each text once."""
    vectors: dict[str, Matrix] = {}

    def encode(texts: Sequence[str]) -> Matrix:
        new_texts = sorted(set(texts) - vectors.keys())
        vectors.update(zip(new_texts, embed(new_texts, batch=64), strict=True))
        rows = np.array([vectors[text] for text in texts], dtype=np.float32)
        return rows.reshape(len(texts), -1)

    return encode


def calibrated(encode: Encode) -> dict[str, object]:
    """Return the thresholds with the best F1 on the hand-made pairs, for both sieves, and the whole
    table."""
    pairs = read_pairs()
    sentence_texts = [pair.sentence for pair in pairs]
    sentence_vectors = encode(sentence_texts)
    step_vectors = encode([pair.step for pair in pairs])
    cosine = (sentence_vectors * step_vectors).sum(axis=1)
    instructs = are_instructions(sentence_texts, 0.5, sentence_vectors)
    table = [pair_rates(pairs, cosine, instructs, threshold) for threshold in GRID_COSINES]
    best = {}
    for sieve in ("similarity", "wording"):
        best_row = max(table, key=lambda row: row[f"{sieve} f1"])
        best[sieve] = best_row["threshold"]
    kinds = [pair.kind for pair in pairs]
    spread = {}
    for kind in dict.fromkeys(kinds):
        is_kind = [pair_kind == kind for pair_kind in kinds]
        spread[kind] = rounded_percentiles(cosine[is_kind], [5, 50, 95])
    refusals = [find_contradiction(pair.sentence, pair.step) for pair in pairs]
    return {
        "best": best,
        "cosines, 5 50 95 %": spread,
        "refused by the check": refusal_counts(pairs, refusals),
        "table": table,
    }


def rounded_percentiles(values: Sequence[float] | Matrix, percents: list[int]) -> list[float]:
    return [round(float(value), 2) for value in np.percentile(values, percents)]


def hardness(videos: Sequence[MadeVideo], encode: Encode) -> dict[str, list[float]]:
    """Return quantiles of the cosine of spoken and written step, and of idle line and its recipe's
    most similar step."""
    step_cosines = []
    idle_cosines = []
    for video in videos:
        cosine = encode(sentences(video.record)) @ encode(video.recipe.steps).T
        for row, truth in zip(cosine, video.truth, strict=True):
            if truth:
                step_cosines.append(row[list(truth)].max())
            else:
                idle_cosines.append(row.max())
    percents = [5, 25, 50, 75, 95]
    return {
        "step and its source": rounded_percentiles(step_cosines, percents),
        "idle and its recipe's likest step": rounded_percentiles(idle_cosines, percents),
    }


def sentences(record: Record) -> list[str]:
    """Return the texts of a record's sentences."""
    return [sentence.text for sentence in record.sentences]


def paired_documents(
    videos: Sequence[MadeVideo], base: TextBase, encode: Encode
) -> dict[str, np.ndarray]:
    """Return the documents that pairing (eq. 5) gives each video, the most likely first."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "videos.parquet"
        write_parquet([video.record for video in videos], path)
        settings = SieveSwapSettings.model_validate({"pairing": {"smallest_category": 1}})
        outcome = run_job(SieveSwapJob(path, base, Path(folder) / "out", settings, embed=encode))
        rows = [row for file in outcome.pairs for row in read_paired(file)]
    return {row.video: np.array(row.documents, dtype=np.int64) for row in rows}


def measured(
    videos: Sequence[MadeVideo],
    base: TextBase,
    settings: SwapSettings,
    encode: Encode,
    paired: Sequence[np.ndarray],
) -> dict[str, object]:
    """Return the scores of one half under one setting."""
    records = [video.record for video in videos]
    swapped = sieve_and_swap(records, base, settings, paired=paired, embed=encode)
    result: dict[str, object] = {
        "sieve": sieve_scores(videos, swapped),
        "contradictions": len(violations(swapped)),
        "sentences in their own words": own_words(swapped),
    }
    for name, in_base in (("source in the base", True), ("source not in the base", False)):
        group_videos = []
        group_records = []
        for video, record in zip(videos, swapped, strict=True):
            if video.in_base == in_base:
                group_videos.append(video)
                group_records.append(record)
        alike = []
        for _, text, lines in swaps(group_videos, group_records):
            cosines = encode([text]) @ encode(lines).T
            alike.append(cosines.max())
        result[name] = swap_scores(group_videos, group_records, np.array(alike))
    return result


def plans(best: dict[str, float]) -> dict[str, SwapSettings]:
    """Return what is compared: the paper's rule at its own and at the calibrated threshold, and
    what goes beyond."""
    paper = {"sieve": "similarity", "similarity": best["similarity"], "swap_similarity": 0.0}
    wording = {"similarity": best["wording"], "swap_similarity": 0.0}
    swapped = {"similarity": best["wording"]}
    fields_by_plan = {
        "the paper's rule, 0.75": paper | {"similarity": PAPER_COSINE, "check": False},
        "the paper's rule, calibrated": paper | {"check": False},
        "calibrated, with the check": paper | {"unswapped": "drop"},
        "calibrated, with the check, own words": paper,
        "sieve by wording": wording | {"check": False},
        "sieve by wording, with the check": wording | {"unswapped": "drop"},
        "the same, 20 candidates": wording | {"unswapped": "drop", "candidates": 20},
        "by wording, check, own words": wording,
        "the same, swapped from 0.60": swapped,
        "the same, swapped from 0.60, paired documents only": swapped | {"scope": "paired"},
        "the defaults": {},
    }
    settings = {}
    for plan, fields in fields_by_plan.items():
        settings[plan] = SwapSettings.model_validate({"scope": "all"} | fields)
    return settings


def main() -> None:
    options = read_options()
    encode = remembering()
    recipes = read_recipes()
    videos = make_videos(recipes)
    base = made_base(base_recipes(recipes, videos, options.others), options.cache)
    calibration = calibrated(encode)
    result: dict[str, object] = {
        "base": {"documents": base.document_count, "steps": base.step_count},
        "hand-made pairs": calibration,
        "hardness": hardness(videos, encode),
    }
    settings_by_plan = plans(calibration["best"])
    paired = paired_documents(videos, base, encode)
    paired_count = sum(len(documents) > 0 for documents in paired.values())
    result["videos with a paired document"] = paired_count

    # every plan on both halves of the made videos
    no_documents = np.empty(0, dtype=np.int64)
    for half in ("development", "test"):
        half_videos = [video for video in videos if video.half == half]
        documents = [paired.get(video.record.id, no_documents) for video in half_videos]
        scores = {}
        for name, plan in settings_by_plan.items():
            scores[name] = measured(half_videos, base, plan, encode, documents)
        result[half] = scores

    RESULT_PATH.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    del result["hand-made pairs"]
    print(json.dumps(result, indent=1))


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--cache", type=Path, default=CACHE_FOLDER, help="where the text base is built and kept"
    )
    parser.add_argument("--others", type=int, help="recipes of no video in the base (default: all)")
    return parser.parse_args()


if __name__ == "__main__":
    main()
