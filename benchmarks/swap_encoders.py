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
from stepline.records import Record, Span, Video
from stepline.settings import load_settings
from stepline.sieve_swap.content_words import title_words
from stepline.sieve_swap.settings import SieveSwapSettings
from stepline.sieve_swap.swap import sieve_and_swap
from stepline.storage import to_json
from stepline.text_base import build_base
from stepline.text_base.base import TextBase

RESULT = Path(__file__).parent / "results" / "swap_encoders.json"
CACHE = Path(tempfile.gettempdir()) / "stepline-swap-encoders"
ENCODERS = ("minilm", "mpnet")
BASE_RECIPES = 1_000  # drawn of those whose title fits
PAPER_FLOOR = 0.75  # cosine, section 4.2
AMOUNTS = (0.1, 0.25, 0.5, 1.0)  # shares of the pieces of narration that are swapped
GRID = [round(float(floor), 2) for floor in np.arange(0.3, 0.81, 0.05)]  # cosines


@dataclass(frozen=True)
class Piece:
    """A piece of narration and the step nearest to it.

    video: number. caption: what people wrote for its middle second. None where they wrote nothing.
    `tells`: a sentence of it is marked to describe a step.
    likeness, own: METEOR of the swapped text and of what was said, 0 without a caption.
    """

    video: int
    cosine: float
    span: Span
    caption: int | None
    tells: bool
    likeness: float
    own: float


def fit_recipes(recipes: Sequence[Recipe], dishes: Sequence[str]) -> list[Recipe]:
    """Return recipes whose title shares a content word with a dish, BASE_RECIPES drawn by seed."""
    wanted = {word for words in title_words(dishes) for word in words}
    titles = title_words([recipe.title for recipe in recipes])
    fit = [
        recipe for recipe, words in zip(recipes, titles, strict=True) if wanted.intersection(words)
    ]
    return Random(0).sample(fit, min(BASE_RECIPES, len(fit)))


def base_of(recipes: Sequence[Recipe], settings: SieveSwapSettings, folder: Path) -> TextBase:
    """Return the base of these recipes by the settings' encoder, built in the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    source = folder / "recipes.jsonl"
    rows = [
        {"id": recipe.id, "title": recipe.title, "steps": list(recipe.steps), "url": recipe.url}
        for recipe in recipes
    ]
    source.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return build_base(
        [source], folder / settings.text_base.encoder, settings.text_base, licence=LICENCE_TEXT
    )


def swapped_records(
    videos: Sequence[dict[str, Any]], base: TextBase, settings: SieveSwapSettings
) -> list[Record]:
    """Return each video with every piece of its narration swapped, however far the step."""
    records = [
        Record(
            id=str(number),
            video=Video(id=str(number), title=video["title"]),
            transcript=transcript_of(video),
        )
        for number, video in enumerate(videos)
    ]
    everything = settings.match.model_copy(update={"scope": "all", "similarity": 0.0})
    return sieve_and_swap(records, base, everything)


def caption_at(second: float, steps: Sequence[dict[str, Any]]) -> int | None:
    """Return which step of YouCook2 holds a second. The shortest where several do."""
    holding = [
        number for number, step in enumerate(steps) if step["span"][0] <= second <= step["span"][1]
    ]
    if not holding:
        return None
    return min(holding, key=lambda number: steps[number]["span"][1] - steps[number]["span"][0])


def pieces_of(videos: Sequence[dict[str, Any]], records: Sequence[Record]) -> list[Piece]:
    """Return every piece of narration with its likeness to the caption of its second."""
    rows = []
    for number, (video, record) in enumerate(zip(videos, records, strict=True)):
        for step in record.steps:
            span = step.spans[0]
            caption = caption_at((span.start + span.end) / 2, video["steps"])
            tells = any(video["sentences"][source]["is_step"] for source in step.sources)
            said = " ".join(video["sentences"][source]["text"] for source in step.sources)
            rows.append((number, step.score or 0.0, span, caption, tells, step.text, said))
    tokens = Tokenizer()
    meteor = Meteor()
    pieces = []
    for number, cosine, span, caption, tells, text, said in rows:
        likeness, own = 0.0, 0.0
        if caption is not None:
            written = [tokens(videos[number]["steps"][caption]["text"])]
            likeness = meteor.segment(written, tokens(text))
            own = meteor.segment(written, tokens(said))
        pieces.append(Piece(number, cosine, span, caption, tells, likeness, own))
    return pieces


def sums(pieces: Sequence[Piece], values: Sequence[float], videos: int) -> Floats:
    """Return the sum of one value a piece, by video."""
    total = np.zeros(videos)
    for piece, value in zip(pieces, values, strict=True):
        total[piece.video] += value
    return total


def statistics_at(pieces: Sequence[Piece], floor: float, videos: int) -> dict[str, Ratio]:
    """Return what is measured of the pieces whose step is as near as `floor`.

    likeness: mean METEOR of the swapped text over pieces said while a caption holds. Own words: the
    same of what was said. In a caption: pieces said then, of all kept.

    precision, recall: kept pieces that tell a step, of the kept ones and of those that tell one.
    """
    kept = [piece for piece in pieces if piece.cosine >= floor]
    inside = [piece for piece in kept if piece.caption is not None]
    ones = sums(kept, [1.0] * len(kept), videos)
    held = sums(inside, [1.0] * len(inside), videos)
    telling = sums(kept, [float(piece.tells) for piece in kept], videos)
    all_telling = sums(pieces, [float(piece.tells) for piece in pieces], videos)
    return {
        "likeness": Ratio(sums(inside, [piece.likeness for piece in inside], videos), held),
        "own words": Ratio(sums(inside, [piece.own for piece in inside], videos), held),
        "in a caption": Ratio(held, ones),
        "precision": Ratio(telling, ones),
        "recall": Ratio(telling, all_telling),
    }


def row_at(pieces: Sequence[Piece], floor: float, videos: int) -> dict[str, object]:
    """Return the numbers at one threshold, each with its 95 % interval over videos."""
    statistics = statistics_at(pieces, floor, videos)
    draws = resample(statistics)
    row: dict[str, object] = {
        "floor": round(floor, 3),
        "pieces": sum(piece.cosine >= floor for piece in pieces),
    }
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
    for share in AMOUNTS:
        sides = [statistics_at(side, floor_of(side, share), videos) for side in (first, second)]
        draws = [resample(side) for side in sides]
        gains[f"{share:.2f}"] = {}
        for name in ("likeness", "precision"):
            gain = point_estimate(sides[1][name]) - point_estimate(sides[0][name])
            low, high = interval(draws[1][name] - draws[0][name])
            gains[f"{share:.2f}"][name] = [round(value, 4) for value in (gain, low, high)]
    return gains


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("narration", type=Path)
    parser.add_argument("--videos", type=int, default=60, help="drawn by seed of those captioned")
    parser.add_argument("--cache", type=Path, default=CACHE, help="where bases are built and kept")
    options = parser.parse_args()
    table = json.loads(gzip.decompress(options.narration.read_bytes()))
    captioned = [table[name] for name in sorted(table) if table[name]["steps"]]
    videos = Random(0).sample(captioned, min(options.videos, len(captioned)))
    recipes = fit_recipes(read_recipes(), [video["title"] for video in videos])
    preset = preset_files("sieve-swap")["paper"]
    result: dict[str, Any] = {"videos": len(videos), "recipes": len(recipes), "encoders": {}}
    pieces: dict[str, list[Piece]] = {}
    for encoder in ENCODERS:
        began = time.process_time()
        overrides = [f'text_base.encoder="{encoder}"']
        settings = load_settings(SieveSwapSettings, None, overrides, preset=preset)
        base = base_of(recipes, settings, options.cache)
        records = swapped_records(videos, base, settings)
        seconds = time.process_time() - began
        pieces[encoder] = found = pieces_of(videos, records)
        (options.cache / f"{encoder}.json").write_text(
            "\n".join(map(to_json, records)), encoding="utf-8"
        )
        floors = {f"{share:.2f} of all": floor_of(found, share) for share in AMOUNTS}
        floors |= {f"{floor:.2f}": floor for floor in GRID}
        result["encoders"][encoder] = {
            "steps": base.step_count,
            "pieces": len(found),
            "cpu seconds": round(seconds, 1),
            "rows": {name: row_at(found, floor, len(videos)) for name, floor in floors.items()},
        }
        print(encoder, json.dumps(result["encoders"][encoder]), flush=True)
    result["mpnet over minilm"] = differences(pieces["minilm"], pieces["mpnet"], len(videos))
    RESULT.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(result["mpnet over minilm"], indent=1))


if __name__ == "__main__":
    main()
