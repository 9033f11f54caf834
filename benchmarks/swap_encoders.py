"""Sieve & Swap of real narration with MiniLM and with MPNet: how like the swapped text is to what
people wrote for that second.

    OMP_NUM_THREADS=1 python benchmarks/swap_encoders.py NARRATION.json.gz [--videos 60] [--cache DIR]

The narration is YouCook2's, with YouCook2's own captions and a mark on each sentence that describes
a step. The base is the recipes of ../shared/data whose title shares a content word with a video's
dish (equation 5), a sample drawn by seed. The rule is that of `sieve-swap --preset paper`. Only the
encoder and the threshold differ. Likeness is METEOR, which neither encoder has a part in.
"""

import argparse
import gzip
import json
import math
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from made_transcripts import Recipe, read_recipes
from made_transcripts.base import LICENCE_TEXT
from narration import transcript_of

from stepline.cli.options import preset_files
from stepline.evaluate.bootstrap import Floats, Ratio, interval, point_estimate, resample
from stepline.evaluate.meteor import Meteor
from stepline.evaluate.ptb import Tokenizer
from stepline.files.storage import to_json
from stepline.records import Record, Span, Video
from stepline.settings import load_settings
from stepline.sieve_swap.content_words import title_words
from stepline.sieve_swap.settings import SieveSwapSettings
from stepline.sieve_swap.swap import sieve_and_swap
from stepline.sieve_swap.text_base import build_base
from stepline.sieve_swap.text_base.base import TextBase

RESULT_PATH = Path(__file__).parent / "results" / "swap_encoders.json"
CACHE_FOLDER = Path(tempfile.gettempdir()) / "stepline-swap-encoders"
ENCODER_NAMES = ("minilm", "mpnet")
BASE_RECIPES = 1_000  # drawn of those whose title fits
PAPER_FLOOR = 0.75  # cosine, section 4.2
SWAPPED_SHARES = (0.1, 0.25, 0.5, 1.0)  # shares of the pieces of narration that are swapped
GRID_COSINES = [round(float(floor), 2) for floor in np.arange(0.3, 0.81, 0.05)]  # cosines


@dataclass(frozen=True)
class Piece:
    """A piece of narration and the step nearest to it.

    video: number. caption: the step that people wrote for its middle second. None where they wrote
    none.
    is_step: a sentence of it is marked to describe a step.
    likeness, own: METEOR of the swapped text and of what was said, 0 without a caption.
    """

    video: int
    cosine: float
    span: Span
    caption: int | None
    is_step: bool
    likeness: float
    own: float


def fit_recipes(recipes: Sequence[Recipe], dishes: Sequence[str]) -> list[Recipe]:
    """Return recipes whose title shares a content word with a dish, BASE_RECIPES drawn by seed."""
    dish_words: set[str] = set()
    for words in title_words(dishes):
        dish_words.update(words)
    titles = title_words([recipe.title for recipe in recipes])
    fitting = []
    for recipe, words in zip(recipes, titles, strict=True):
        if dish_words.intersection(words):
            fitting.append(recipe)
    return Random(0).sample(fitting, min(BASE_RECIPES, len(fitting)))


def base_of(recipes: Sequence[Recipe], settings: SieveSwapSettings, folder: Path) -> TextBase:
    """Return the base of these recipes by the settings' encoder, built in the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    source = folder / "recipes.jsonl"
    lines = []
    for recipe in recipes:
        row = {
            "id": recipe.id,
            "title": recipe.title,
            "steps": list(recipe.steps),
            "url": recipe.url,
        }
        lines.append(json.dumps(row) + "\n")
    source.write_text("".join(lines), encoding="utf-8")
    base_folder = folder / settings.text_base.encoder
    return build_base([source], base_folder, settings.text_base, licence=LICENCE_TEXT)


def swapped_records(
    videos: Sequence[dict[str, Any]], base: TextBase, settings: SieveSwapSettings
) -> list[Record]:
    """Return each video with every piece of its narration swapped, however far the step."""
    records = []
    for number, row in enumerate(videos):
        video = Video(id=str(number), title=row["title"])
        records.append(Record(id=video.id, video=video, transcript=transcript_of(row)))
    every_piece = settings.match.model_copy(update={"scope": "all", "similarity": 0.0})
    return sieve_and_swap(records, base, every_piece)


def caption_at(second: float, steps: Sequence[dict[str, Any]]) -> int | None:
    """Return which step of YouCook2 holds a second. The shortest where several do."""
    best = None
    shortest = math.inf
    for number, step in enumerate(steps):
        start, end = step["span"]
        if start <= second <= end and end - start < shortest:
            best = number
            shortest = end - start
    return best


def pieces_of(videos: Sequence[dict[str, Any]], records: Sequence[Record]) -> list[Piece]:
    """Return every piece of narration with its likeness to the caption of its second."""
    tokens = Tokenizer()
    meteor = Meteor()
    pieces = []
    for number, (video, record) in enumerate(zip(videos, records, strict=True)):
        for step in record.steps:
            span = step.spans[0]
            sentences = [video["sentences"][source] for source in step.sources]
            narration = " ".join(sentence["text"] for sentence in sentences)
            caption = caption_at((span.start + span.end) / 2, video["steps"])
            likeness = 0.0
            own = 0.0
            if caption is not None:
                references = [tokens(video["steps"][caption]["text"])]
                likeness = meteor.segment(references, tokens(step.text))
                own = meteor.segment(references, tokens(narration))
            piece = Piece(
                video=number,
                cosine=step.score or 0.0,
                span=span,
                caption=caption,
                is_step=any(sentence["is_step"] for sentence in sentences),
                likeness=likeness,
                own=own,
            )
            pieces.append(piece)
    return pieces


def sums(pieces: Sequence[Piece], values: Sequence[float], videos: int) -> Floats:
    """Return the sum of one value per piece, by video."""
    total = np.zeros(videos)
    for piece, value in zip(pieces, values, strict=True):
        total[piece.video] += value
    return total


def statistics_at(pieces: Sequence[Piece], floor: float, videos: int) -> dict[str, Ratio]:
    """Return what is measured of the pieces whose step is as near as `floor`.

    likeness: mean METEOR of the swapped text over pieces said while a caption holds. Own words: the
    same of what was said. In a caption: pieces said then, of all near ones.

    precision, recall: near pieces that describe a step, of the near ones and of those that describe
    one.
    """
    near = [piece for piece in pieces if piece.cosine >= floor]
    inside = [piece for piece in near if piece.caption is not None]
    near_count = sums(near, [1.0] * len(near), videos)
    inside_count = sums(inside, [1.0] * len(inside), videos)
    near_steps = sums(near, [float(piece.is_step) for piece in near], videos)
    all_steps = sums(pieces, [float(piece.is_step) for piece in pieces], videos)
    likeness = sums(inside, [piece.likeness for piece in inside], videos)
    own = sums(inside, [piece.own for piece in inside], videos)
    return {
        "likeness": Ratio(likeness, inside_count),
        "own words": Ratio(own, inside_count),
        "in a caption": Ratio(inside_count, near_count),
        "precision": Ratio(near_steps, near_count),
        "recall": Ratio(near_steps, all_steps),
    }


def row_at(pieces: Sequence[Piece], floor: float, videos: int) -> dict[str, object]:
    """Return the numbers at one threshold, each with its 95 % interval over videos."""
    statistics = statistics_at(pieces, floor, videos)
    draws = resample(statistics)
    near_count = sum(piece.cosine >= floor for piece in pieces)
    row: dict[str, object] = {"floor": round(floor, 3), "pieces": near_count}
    for name, statistic in statistics.items():
        low, high = interval(draws[name])
        row[name] = [round(value, 4) for value in (point_estimate(statistic), low, high)]
    return row


def floor_of(pieces: Sequence[Piece], share: float) -> float:
    """Return the threshold that a share of the pieces reaches."""
    return float(np.quantile([piece.cosine for piece in pieces], 1.0 - share))


def differences(
    first: Sequence[Piece], second: Sequence[Piece], videos: int
) -> dict[str, dict[str, list[float]]]:
    """Return what the second gains over the first at equal amounts of swapped text."""
    gains: dict[str, dict[str, list[float]]] = {}
    for share in SWAPPED_SHARES:
        first_statistics = statistics_at(first, floor_of(first, share), videos)
        second_statistics = statistics_at(second, floor_of(second, share), videos)
        first_draws = resample(first_statistics)
        second_draws = resample(second_statistics)
        row = {}
        for name in ("likeness", "precision"):
            first_value = point_estimate(first_statistics[name])
            gain = point_estimate(second_statistics[name]) - first_value
            low, high = interval(second_draws[name] - first_draws[name])
            row[name] = [round(value, 4) for value in (gain, low, high)]
        gains[f"{share:.2f}"] = row
    return gains


def main() -> None:
    options = read_options()
    table = json.loads(gzip.decompress(options.narration.read_bytes()))
    captioned = [table[name] for name in sorted(table) if table[name]["steps"]]
    videos = Random(0).sample(captioned, min(options.videos, len(captioned)))
    recipes = fit_recipes(read_recipes(), [video["title"] for video in videos])
    preset = preset_files("sieve-swap")["paper"]
    result: dict[str, Any] = {"videos": len(videos), "recipes": len(recipes), "encoders": {}}
    pieces_by_encoder: dict[str, list[Piece]] = {}
    for encoder in ENCODER_NAMES:
        began = time.process_time()
        overrides = [f'text_base.encoder="{encoder}"']
        settings = load_settings(SieveSwapSettings, None, overrides, preset=preset)
        base = base_of(recipes, settings, options.cache)
        records = swapped_records(videos, base, settings)
        seconds = time.process_time() - began
        pieces = pieces_of(videos, records)
        pieces_by_encoder[encoder] = pieces
        lines = "\n".join(map(to_json, records))
        (options.cache / f"{encoder}.json").write_text(lines, encoding="utf-8")

        # thresholds that a share of the pieces reaches, and a grid of them
        floors = {f"{share:.2f} of all": floor_of(pieces, share) for share in SWAPPED_SHARES}
        floors |= {f"{floor:.2f}": floor for floor in GRID_COSINES}
        rows = {name: row_at(pieces, floor, len(videos)) for name, floor in floors.items()}
        result["encoders"][encoder] = {
            "steps": base.step_count,
            "pieces": len(pieces),
            "cpu seconds": round(seconds, 1),
            "rows": rows,
        }
        print(encoder, json.dumps(result["encoders"][encoder]), flush=True)
    gains = differences(pieces_by_encoder["minilm"], pieces_by_encoder["mpnet"], len(videos))
    result["mpnet over minilm"] = gains
    RESULT_PATH.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(gains, indent=1))


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("narration", type=Path)
    parser.add_argument("--videos", type=int, default=60, help="drawn by seed of those captioned")
    parser.add_argument(
        "--cache", type=Path, default=CACHE_FOLDER, help="where bases are built and kept"
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
