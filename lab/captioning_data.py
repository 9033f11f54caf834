"""Captions and predictions for lab/captioning.py, all made by seed."""

import gzip
import json
import random
from collections.abc import Iterator
from pathlib import Path

from stepline.evaluate.events import Event

Videos = dict[str, list[Event]]

DRAW_SEED = 20_240

# words of the synthetic captions
CAPTION_VERBS = [
    "add",
    "mix",
    "stir",
    "pour",
    "chop",
    "slice",
    "cut",
    "fry",
    "boil",
    "bake",
    "place",
    "spread",
    "heat",
]
CAPTION_THINGS = [
    *(
        "onions",
        "garlic",
        "tomatoes",
        "butter",
        "oil",
        "flour",
        "eggs",
        "milk",
        "salt",
        "pepper",
        "chicken",
        "beef",
    ),
    *(
        "pork",
        "rice",
        "noodles",
        "cheese",
        "potatoes",
        "carrots",
        "dough",
        "sauce",
        "mixture",
        "bread",
        "lettuce",
    ),
    *(
        "mushrooms",
        "shrimp",
        "lemon juice",
        "sugar",
        "vinegar",
        "water",
        "stock",
        "herbs",
        "basil",
        "ginger",
    ),
    *(
        "chillies",
        "beans",
        "tofu",
        "salmon",
        "bacon",
        "cream",
        "yeast",
        "cabbage",
        "spinach",
        "coriander",
        "cumin",
    ),
]
CAPTION_PLACES = [
    "pan",
    "pot",
    "bowl",
    "oven",
    "plate",
    "board",
    "skillet",
    "wok",
    "tray",
    "jar",
    "blender",
    "grill",
    "fridge",
]
CAPTION_ENDINGS = [
    "well",
    "until golden brown",
    "for ten minutes",
    "on low heat",
    "gently",
    "over the top",
    "in half",
]
CAPTION_ARTICLES = ["the", "the", "the", "a", "some"]
SYNONYM_OF_WORD = {
    "add": "put in",
    "mix": "combine",
    "chop": "cut",
    "fry": "saute",
    "place": "put",
    "bowl": "dish",
    "stir": "mix",
    "pan": "skillet",
    "heat": "warm",
    "cut": "slice",
    "oil": "olive oil",
    "until": "till",
    "some": "a few",
}


def youcook2(path: Path, count: int) -> Videos:
    """Return the events of the first `count` videos of YouCook2's validation set."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        videos = json.load(file)
    events: Videos = {}
    for video, entry in sorted(videos.items())[:count]:
        events[video] = []
        for (start, end), text in zip(entry["timestamps"], entry["sentences"], strict=True):
            events[video].append((start, end, text))
    return events


def predicted(references: Videos) -> Videos:
    """Return predictions made from the references: jitter, drop, duplicate, paraphrase, borrow."""
    draw = random.Random(DRAW_SEED)
    texts = [text for events in references.values() for _, _, text in events]
    predictions: Videos = {}
    for video, events in references.items():
        predicted_events: list[Event] = []
        for start, end, text in events:
            if draw.random() < 0.15:
                continue
            wobble = (end - start) * 0.35
            is_borrowed = draw.random() < 0.15
            caption = draw.choice(texts) if is_borrowed else paraphrase(text, draw)
            predicted_start = start + draw.gauss(0, wobble)
            predicted_end = end + draw.gauss(0, wobble)
            event = (predicted_start, predicted_end, caption)
            predicted_events.append(event)
            if draw.random() < 0.1:
                predicted_events.append(event)
        predictions[video] = predicted_events
    return predictions


def paraphrase(text: str, draw: random.Random) -> str:
    """Drop, replace and bend words."""
    words = []
    for word in text.split():
        chance = draw.random()
        if chance < 0.12:
            continue
        if chance < 0.45 and word in SYNONYM_OF_WORD:
            word = SYNONYM_OF_WORD[word]
        elif chance < 0.2:
            word += draw.choice(("s", "ed", "ing", ",", "'s"))
        words.append(word)
    return " ".join(words)


def synthetic(videos: int, events: int) -> Videos:
    """Return videos of made-up events."""
    draw = random.Random(DRAW_SEED)
    return {f"video{video:05d}": list(_events(events, draw)) for video in range(videos)}


def _events(count: int, draw: random.Random) -> Iterator[Event]:
    clock = draw.uniform(0, 30)
    for _ in range(count):
        end = clock + draw.uniform(5, 40)
        yield clock, end, _caption(draw)
        clock = end + draw.uniform(0, 15)


def _caption(draw: random.Random) -> str:
    things = draw.sample(CAPTION_THINGS, draw.randint(1, 4))
    words = [draw.choice(CAPTION_VERBS), draw.choice(CAPTION_ARTICLES), " and ".join(things)]
    words += [
        draw.choice(("in", "on", "into", "to")),
        draw.choice(CAPTION_ARTICLES),
        draw.choice(CAPTION_PLACES),
    ]
    if draw.random() < 0.4:
        words.append(draw.choice(CAPTION_ENDINGS))
    return " ".join(words)
