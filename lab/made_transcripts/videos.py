"""Videos with times and truth: the steps of a recipe as spoken, idle lines between, sentences
merged and split."""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from random import Random
from typing import Literal, TypeAlias

from made_transcripts.grammar import Clause, clauses_of, say_step
from made_transcripts.noise import PUNCTUATED_VIDEO_RATE, punctuated, spoken
from made_transcripts.recipes import Recipe, short_name
from made_transcripts.tables import idle_lines

from stepline.records import Record, Sentence, Span, Transcript, Video

Half: TypeAlias = Literal["development", "test"]
SaidSentence: TypeAlias = tuple[str, tuple[int, ...]]  # its words, and the steps that it says

STEP_COUNTS = (4, 14)  # single steps that a recipe must have for a video, from and to
SECOND_FOLDER_VIDEOS = 50  # of 300, from the second, smaller folder
# how often ...
MERGED_STEP_RATE = 0.12  # ... a step is run together with the next one into one sentence
SPLIT_STEP_RATE = 0.3  # ... a step of several clauses is cut into two sentences
SKIPPED_STEP_RATE = 0.04  # ... a step is not said
IDLE_LINE_RATE = 0.62  # ... an idle line comes after a sentence
SECOND_IDLE_RATE = 0.4  # ... another comes after that
WORDS_PER_SECOND = 2.6  # of speech
MIDDLE_KINDS = (
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
    """Return `count` videos, half of them development and half test.

    Half of the recipes of each half are in the base.
    first_folder: take five of six from the larger folder. Otherwise all come from the smaller one.
    """
    second_folder_count = SECOND_FOLDER_VIDEOS * count // 300 if first_folder else count
    drawn = _draw_recipes(recipes, count, second_folder_count, Random(seed))
    videos = []
    for index, recipe in enumerate(drawn):
        half: Half = "development" if index < count // 2 else "test"
        rng = Random(zlib.crc32(f"{seed} {recipe.id}".encode()))
        videos.append(_make_video(recipe, half, index % 2 == 0, rng))
    return videos


def _draw_recipes(
    recipes: Sequence[Recipe], count: int, second_folder_count: int, rng: Random
) -> list[Recipe]:
    """Draw recipes of fitting length and unlike titles, from both folders, in random order."""
    fitting = {recipe.title.lower(): recipe for recipe in recipes if _fits(recipe)}
    first: list[Recipe] = []
    second: list[Recipe] = []
    for recipe in fitting.values():
        is_second = recipe.id.startswith("recipes_based_cooking")
        (second if is_second else first).append(recipe)
    drawn = rng.sample(second, second_folder_count)
    drawn += rng.sample(first, count - second_folder_count)
    rng.shuffle(drawn)
    return drawn


def _fits(recipe: Recipe) -> bool:
    least_steps, most_steps = STEP_COUNTS
    if not least_steps <= len(recipe.steps) <= most_steps:
        return False
    lengths = [len(step.split()) for step in recipe.steps]
    return len(_ingredient_names(recipe)) >= 3 and max(lengths) <= 40 and min(lengths) >= 2


def _ingredient_names(recipe: Recipe) -> list[str]:
    names = {short_name(ingredient) for ingredient in recipe.ingredients}
    return sorted(names - {""})


def _make_video(recipe: Recipe, half: Half, in_base: bool, rng: Random) -> MadeVideo:
    # what is said, each sentence with the steps that it says
    greetings = _idle(recipe, half, ("greetings",), rng)
    sentences: list[SaidSentence] = [(text, ()) for text in greetings]
    del sentences[rng.randint(1, 3) :]
    idle_texts = iter(_idle(recipe, half, MIDDLE_KINDS, rng))
    for sentence in _instructions(clauses_of(recipe.steps, rng), half, rng):
        sentences.append(sentence)
        if rng.random() < IDLE_LINE_RATE:
            has_second = rng.random() < SECOND_IDLE_RATE
            for text in islice(idle_texts, 1 + has_second):
                sentences.append((text, ()))
    goodbyes = _idle(recipe, half, ("goodbyes",), rng)
    for text in goodbyes[: rng.randint(1, 2)]:
        sentences.append((text, ()))

    # what a recogniser hears of it
    is_punctuated = rng.random() < PUNCTUATED_VIDEO_RATE
    texts = []
    truth = []
    for text, steps in sentences:
        recognised = spoken(text, rng)
        if recognised:
            texts.append(punctuated(recognised) if is_punctuated else recognised.lower())
            truth.append(steps)
    return MadeVideo(_record(recipe, texts, rng), recipe, tuple(truth), half, in_base)


def _instructions(steps: Sequence[Sequence[Clause]], half: Half, rng: Random) -> list[SaidSentence]:
    """Return what is said of the steps, sentence by sentence, with the steps that each says."""
    sentences: list[SaidSentence] = []
    last_noun = ""
    is_open = False  # the last sentence goes on with the next step
    for step, clauses in enumerate(steps):
        if not clauses or rng.random() < SKIPPED_STEP_RATE:
            is_open = False
            continue
        spoken_clauses = say_step(clauses, rng, half, last_noun=last_noun)
        for clause in clauses:
            last_noun = clause.head or last_noun

        # one sentence, or two
        cut = 0
        if len(clauses) > 1 and rng.random() < SPLIT_STEP_RATE:
            cut = rng.randint(1, len(clauses) - 1)
        parts = [" ".join(spoken_clauses[cut:])]
        if cut:
            parts.insert(0, " ".join(spoken_clauses[:cut]))

        if is_open:
            text, earlier_steps = sentences.pop()
            sentences.append((f"{text} and then {parts.pop(0)}", (*earlier_steps, step)))
        for part in parts:
            sentences.append((part, (step,)))
        is_one_step = len(sentences[-1][1]) == 1
        is_open = not cut and is_one_step and rng.random() < MERGED_STEP_RATE
    return sentences


def _idle(recipe: Recipe, half: Half, kinds: Sequence[str], rng: Random) -> list[str]:
    """Return all idle lines of these kinds in random order, naming the recipe's own dish and
    ingredients."""
    names = _ingredient_names(recipe)
    table = idle_lines(half)
    lines = []
    for kind in kinds:
        lines += table[kind]
    rng.shuffle(lines)
    texts = []
    for line in lines:
        first, second = rng.sample(names, 2)
        texts.append(line.format(dish=recipe.title.lower(), ingredient=first, another=second))
    return texts


def _record(recipe: Recipe, texts: Sequence[str], rng: Random) -> Record:
    sentences = []
    now = rng.uniform(0.0, 3.0)
    for text in texts:
        end = now + max(0.8, len(text.split()) / WORDS_PER_SECOND)
        sentences.append(Sentence(text=text, span=Span(round(now, 2), round(end, 2))))
        now = end + rng.choice((0.1, 0.4, 1.0, 2.5, 6.0))
    name = recipe.id.replace("/", "-")
    video = Video(id=name, title=recipe.title, duration=round(now + 1.0, 2))
    transcript = Transcript(language="en", sentences=tuple(sentences))
    return Record(id=name, video=video, transcript=transcript)
