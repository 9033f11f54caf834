"""Sieve & Swap on real text: thresholds on hand-made pairs, sieve and swaps on 300 made videos,
other domains.

    python lab/sieve_swap.py [--cache DIR] [--others N] [--read FILE]

Thresholds are chosen on made_transcripts/pairs.tsv. The test half of the videos chooses nothing.
The base is the recipes of ../shared/data without half of the videos' own. With --others it takes
only N recipes of no video next to those. All need about five minutes of a quiet core for their
vectors. --read writes the swaps that a person reads and judges.
"""

import argparse
import gzip
import json
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from made_transcripts import MadeVideo, make_videos, read_recipes
from made_transcripts.base import base_recipes, made_base
from made_transcripts.pairs import read_pairs
from made_transcripts.recipes import DATA_FOLDER
from sieve_swap_scores import (
    own_words,
    pair_rates,
    refusal_counts,
    sieve_scores,
    swap_scores,
    swapped_steps,
    swaps,
    violations,
)

from stepline.files.storage import write_parquet
from stepline.pipeline.batch import transcribe
from stepline.records import Matrix, Record, Sentence, Span, Transcript, Video
from stepline.sieve_swap.agreement import change
from stepline.sieve_swap.part_files import read_pairs as read_paired
from stepline.sieve_swap.run import Job, run
from stepline.sieve_swap.settings import SieveSwapSettings, SwapSettings
from stepline.sieve_swap.swap import are_instructions, sieve_and_swap
from stepline.sieve_swap.text_base.base import TextBase
from stepline.text import embed

RESULT_PATH = Path(__file__).parent / "results" / "sieve_swap.json"
CACHE_FOLDER = Path(tempfile.gettempdir()) / "stepline-sieve-swap"
GRID_COSINES = [round(float(t), 2) for t in np.arange(0.3, 0.82, 0.02)]
PAPER_COSINE = 0.75  # of the swap threshold, with MPNet
# those with English speech
CLIP_NAMES = ("howto100m_money_clip", "cocoa_tv_chef", "mixing_bowl_hosts", "hair_chat")
READ_COUNTS = {"youcook2": 40, "clips": 10, "made": 50}  # swaps that a person reads
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
    refusals = [change(pair.sentence, pair.step) for pair in pairs]
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
        outcome = run(Job(path, base, Path(folder) / "out", settings, embed=encode))
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
        "the same, swapped from 0.60, in a document's order": swapped | {"method": "monotone"},
        "the defaults": {},
    }
    settings = {}
    for plan, fields in fields_by_plan.items():
        settings[plan] = SwapSettings.model_validate({"scope": "all"} | fields)
    return settings


def narrated(identity: str, texts: Sequence[str], times: Sequence[tuple[float, float]]) -> Record:
    """Return a record of these sentences at these times."""
    spoken = []
    for text, (start, end) in zip(texts, times, strict=True):
        spoken.append(Sentence(text=text, span=Span(start, end)))
    spoken.sort(key=lambda sentence: sentence.span.start)
    transcript = Transcript(language="en", sentences=tuple(spoken))
    return Record(id=identity, video=Video(id=identity), transcript=transcript)


def read_table(path: Path) -> dict[str, Any]:
    return json.loads(gzip.decompress(path.read_bytes()))


def tutorials() -> list[Record]:
    """Return TutorialVQA's transcripts, which have no times: a second per sentence."""
    table = read_table(DATA_FOLDER / "tutorialvqa" / "tutorials.json.gz")
    records = []
    for name in sorted(table):
        lines = [line for line in table[name]["transcript"] if line.strip()]
        times = [(float(number), number + 1.0) for number in range(len(lines))]
        records.append(narrated(name, lines, times))
    return records


def youcook2() -> list[Record]:
    """Return YouCook2's validation sentences at their times, as if they were narration."""
    table = read_table(DATA_FOLDER / "youcook2" / "val.json.gz")
    records = []
    for name in sorted(table):
        row = table[name]
        texts = []
        times = []
        for (start, end), text in zip(row["timestamps"], row["sentences"], strict=True):
            if 0 <= start < end:
                texts.append(text)
                times.append((float(start), float(end)))
        records.append(narrated(name, texts, times))
    return records


def clips() -> list[Record]:
    """Return what the recogniser hears in the real clips with English speech."""
    return [transcribe(DATA_FOLDER / "videos" / f"{name}.mp4") for name in CLIP_NAMES]


def elsewhere(
    base: TextBase, settings_by_plan: dict[str, SwapSettings], encode: Encode
) -> dict[str, object]:
    """Return the share of sentences sieved out of other texts, by each plan, and the swaps of the
    last plan."""
    records_by_name = {"tutorialvqa": tutorials(), "youcook2": youcook2(), "clips": clips()}
    shares: dict[str, object] = {}
    for name, records in records_by_name.items():
        count = sum(len(sentences(record)) for record in records)
        row: dict[str, object] = {"sentences": count}
        swapped: list[Record] = []
        for plan, settings in settings_by_plan.items():
            swapped = sieve_and_swap(records, base, settings, embed=encode)
            kept_count = sum(len(step.sources) for record in swapped for step in record.steps)
            row[plan] = {
                "sieved out": round(1 - kept_count / count, 4),
                "in their own words": own_words(swapped),
                "contradictions": len(violations(swapped)),
            }
        swap_rows = []
        for record in swapped:
            for step in swapped_steps(record):
                texts = (step.alternatives[0], step.text, step.source_text)
                swap_rows.append((record.id, *texts, step.score))
        row["swaps"] = swap_rows
        shares[name] = row
    return shares


def to_read(
    videos: Sequence[MadeVideo],
    base: TextBase,
    settings: SwapSettings,
    encode: Encode,
    others: dict[str, object],
) -> list[dict[str, object]]:
    """Return the swaps that a person judges, drawn by seed. others: the swaps of `elsewhere`."""
    outside = [video for video in videos if not video.in_base]
    records = [video.record for video in outside]
    swapped = sieve_and_swap(records, base, settings, embed=encode)
    rows = []
    for name, shares in others.items():
        if name not in READ_COUNTS:
            continue
        count = min(READ_COUNTS[name], len(shares["swaps"]))
        for _, sentence, step, source, cosine in Random(0).sample(shares["swaps"], count):
            row = {
                "from": name,
                "said": sentence,
                "step": step,
                "source": source,
                "cosine": round(cosine, 2),
            }
            rows.append(row)
    made_swaps = Random(0).sample(swaps(outside, swapped), READ_COUNTS["made"])
    for sentence, text, lines in made_swaps:
        rows.append({"from": "made", "said": sentence, "step": text, "truth": lines})
    return rows


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

    # the plans that need no paired documents on other texts
    whole_base_plans = {}
    for name, plan in settings_by_plan.items():
        if plan.scope == "all" and plan.method == "nearest":
            whole_base_plans[name] = plan
    others = elsewhere(base, whole_base_plans, encode)
    if options.read:
        test_videos = [video for video in videos if video.half == "test"]
        rows = to_read(test_videos, base, settings_by_plan["the defaults"], encode, others)
        options.read.write_text(json.dumps(rows, indent=1), encoding="utf-8")
    for shares in others.values():
        del shares["swaps"]
    result["other texts"] = others
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
    parser.add_argument("--read", type=Path, help="write the swaps for a person to read here")
    return parser.parse_args()


if __name__ == "__main__":
    main()
