"""Videos with times and truth: the steps of a recipe as spoken, idle lines between, sentences
merged and split."""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from random import Random
from typing import Literal, TypeAlias

from made_transcripts.grammar import Clause, clauses_of, say_step
from made_transcripts.noise import PUNCTUATED, punctuated, spoken
from made_transcripts.recipes import Recipe, short_name
from made_transcripts.tables import idle_lines
from stepline.records import Record, Sentence, Span, Transcript, Video

Half: TypeAlias = Literal["development", "test"]

STEPS = (4, 14)  # single steps that a recipe must have for a video, from and to
SECOND_FOLDER = 50  # videos from the second, smaller folder
MERGED = 0.12  # a step: run together with the next one into one sentence
SPLIT = 0.3  # a step of several clauses: cut into two sentences
SKIPPED = 0.04  # a step: not said
IDLE_BETWEEN = 0.62  # after a sentence: an idle line; then another with IDLE_AGAIN
IDLE_AGAIN = 0.4
WORDS_A_SECOND = 2.6  # of speech
MIDDLE = (
    "taste",
    "anecdotes",
    "equipment",
    "about the food",
    "talk about the video",
    "plans and other days",
    "jokes and noises",
    "sponsors",
)


@dataclass(frozen=True)
class MadeVideo:
    """A made video. truth: for each sentence the indices of the recipe's steps that it says, none
    for idle talk.

    in_base: whether the text base may hold the recipe.
    """

    record: Record
    recipe: Recipe
    truth: tuple[tuple[int, ...], ...]
    half: Half
    in_base: bool


def make_videos(
    recipes: Sequence[Recipe], count: int = 300, seed: int = 0, *, first_folder: bool = True
) -> list[MadeVideo]:
    """Return `count` videos, half of them development and half test; of each half, half the recipes
    are in the base.

    first_folder: take five of six from the larger folder; otherwise all come from the smaller one.
    """
    rng = Random(seed)
    chosen = _chosen(recipes, count, SECOND_FOLDER * count // 300 if first_folder else count, rng)
    made = []
    for place, recipe in enumerate(chosen):
        half: Half = "development" if place < count // 2 else "test"
        made.append(
            _made(recipe, half, place % 2 == 0, Random(zlib.crc32(f"{seed} {recipe.id}".encode())))
        )
    return made


def _chosen(recipes: Sequence[Recipe], count: int, few: int, rng: Random) -> list[Recipe]:
    """Draw recipes of fitting length and unlike titles, from both folders, in random order."""
    fitting = {recipe.title.lower(): recipe for recipe in recipes if _fits(recipe)}
    second = [one for one in fitting.values() if one.id.startswith("recipes_based_cooking")]
    first = [one for one in fitting.values() if not one.id.startswith("recipes_based_cooking")]
    chosen = rng.sample(second, few) + rng.sample(first, count - few)
    rng.shuffle(chosen)
    return chosen


def _fits(recipe: Recipe) -> bool:
    named = [name for name in map(short_name, recipe.ingredients) if name]
    lengths = [len(step.split()) for step in recipe.steps]
    return (
        STEPS[0] <= len(lengths) <= STEPS[1]
        and len(set(named)) >= 3
        and max(lengths) <= 40
        and min(lengths) >= 2
    )


def _made(recipe: Recipe, half: Half, in_base: bool, rng: Random) -> MadeVideo:
    said: list[tuple[str, tuple[int, ...]]] = [
        (text, ()) for text in _idle(recipe, half, ("greetings",), rng)
    ]
    del said[rng.randint(1, 3) :]
    between = iter(_idle(recipe, half, MIDDLE, rng))
    for text, steps in _instructions(clauses_of(recipe.steps, rng), half, rng):
        said.append((text, steps))
        if rng.random() < IDLE_BETWEEN:
            said += [(line, ()) for line in islice(between, 1 + (rng.random() < IDLE_AGAIN))]
    said += [(text, ()) for text in _idle(recipe, half, ("goodbyes",), rng)[: rng.randint(1, 2)]]
    stops = rng.random() < PUNCTUATED
    heard = [(spoken(text, rng), steps) for text, steps in said]
    kept = [(punctuated(text) if stops else text.lower(), steps) for text, steps in heard if text]
    record = _record(recipe, [text for text, _ in kept], rng)
    return MadeVideo(record, recipe, tuple(steps for _, steps in kept), half, in_base)


def _instructions(
    steps: Sequence[Sequence[Clause]], half: Half, rng: Random
) -> list[tuple[str, tuple[int, ...]]]:
    """Return what is said of the steps, sentence by sentence, with the steps that each says."""
    said: list[tuple[str, tuple[int, ...]]] = []
    named, open_ended = "", False
    for place, clauses in enumerate(steps):
        if not clauses or rng.random() < SKIPPED:
            open_ended = False
            continue
        spoken_clauses = say_step(clauses, rng, half, named=named)
        named = next((clause.head for clause in reversed(clauses) if clause.head), named)
        cut = rng.randint(1, len(clauses) - 1) if len(clauses) > 1 and rng.random() < SPLIT else 0
        parts = [" ".join(part) for part in (spoken_clauses[:cut], spoken_clauses[cut:]) if part]
        if open_ended:
            before, earlier = said.pop()
            said.append((f"{before} and then {parts[0]}", (*earlier, place)))
            parts = parts[1:]
        said += [(part, (place,)) for part in parts]
        open_ended = not cut and len(said[-1][1]) == 1 and rng.random() < MERGED
    return said


def _idle(recipe: Recipe, half: Half, kinds: Sequence[str], rng: Random) -> list[str]:
    """Return all idle lines of these kinds in random order, naming the recipe's own dish and
    ingredients."""
    names = sorted({name for name in map(short_name, recipe.ingredients) if name})
    table = idle_lines(half)
    lines = [line for kind in kinds for line in table[kind]]
    rng.shuffle(lines)
    named = []
    for line in lines:
        first, second = rng.sample(names, 2)
        named.append(line.format(dish=recipe.title.lower(), ingredient=first, another=second))
    return named


def _record(recipe: Recipe, texts: Sequence[str], rng: Random) -> Record:
    sentences, now = [], rng.uniform(0.0, 3.0)
    for text in texts:
        end = now + max(0.8, len(text.split()) / WORDS_A_SECOND)
        sentences.append(Sentence(text=text, span=Span(round(now, 2), round(end, 2))))
        now = end + rng.choice((0.1, 0.4, 1.0, 2.5, 6.0))
    name = recipe.id.replace("/", "-")
    video = Video(id=name, title=recipe.title, duration=round(now + 1.0, 2))
    return Record(
        id=name, video=video, transcript=Transcript(language="en", sentences=tuple(sentences))
    )
