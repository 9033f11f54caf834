"""Eight steps of a video whose truth is known, and a server that tells it, more or less."""

import base64
import json
import re
import zlib

import numpy as np
from llm_fakes import Answers, completion

from stepline.grounding.ground import ground
from stepline.grounding.vision_language.ask import GroundedVideo
from stepline.grounding.vision_language.questions import NONE_ANSWER
from stepline.llm.pictures import PICTURE_LETTERS
from stepline.records import Span, Step

SECONDS, SHOT = 120, 6
SHOTS = [slice(start, start + SHOT) for start in range(0, SECONDS, SHOT)]
NAMES = (
    *("slice the lemons", "pour the sugar", "boil the water", "stir the syrup"),
    *("press the juice", "fill the jug", "add the ice", "cut the mint"),
)
SAID = (2, 14, 26, 38, 50, 62, 74, 86)
# step -> second; far from its words: 3, 5; never: 7
SHOWN = {0: 4, 1: 16, 2: 28, 3: 110, 4: 52, 5: 104, 6: 76}


def grounded():
    steps = [
        Step(id=str(n), text=text, said=Span(float(s), s + 3.0))
        for n, (text, s) in enumerate(zip(NAMES, SAID, strict=True), start=1)
    ]
    return ground(steps, duration=float(SECONDS))


def right_letters(step, seconds):
    """The letters of the pictures in the shot that shows a step, or "none"."""
    shots = []
    for letter, second in zip(PICTURE_LETTERS, seconds, strict=False):
        if step in SHOWN and int(second) // SHOT == SHOWN[step] // SHOT:
            shots.append(letter)
    return shots or [NONE_ANSWER]


def parts(body):
    """The steps, as rows, and the seconds of the pictures that a request asks about."""
    content = body["messages"][0]["content"]
    asked = re.findall(r"<step>(.*)</step>", content[0]["text"].split("\n\n")[1])
    urls = [part["image_url"]["url"] for part in content if part["type"] == "image_url"]
    seconds = [float(base64.b64decode(url.partition(",")[2])) for url in urls]
    return [NAMES.index(text) for text in asked], seconds


def knows(r=1.0, kind="", wrong=()):
    """A behaviour: the truth with reliability r; else a wrong answer, or what its kind says.

    Of the steps in `wrong`, the first picture that does not show it."""

    def letter(step, seconds):
        rng = np.random.default_rng(zlib.crc32(f"{step} {seconds}".encode()))
        options = [*PICTURE_LETTERS[: len(seconds)], NONE_ANSWER]
        right = right_letters(step, seconds)
        if kind == "another step":
            return right_letters((step + 3) % len(NAMES), seconds)[0]
        if kind in ("A", NONE_ANSWER):
            return kind
        if kind == "never none":
            return str(rng.choice(options[:-1]))
        others = [each for each in options if each not in right]
        if step in wrong:
            return others[0]
        return right[0] if rng.random() < r else str(rng.choice(others))

    def act(handler):
        steps, seconds = parts(handler.question)
        letters = enumerate((letter(k, seconds) for k in steps), start=1)
        said = {str(n): {"after": "done", "shown": each} for n, each in letters}
        Answers.raw(completion(json.dumps(said)))(handler)

    return act


def grounded_video(grounding):
    """The video of a grounding; each picture is its second in digits."""
    known = (grounding.steps, grounding.alignment, SHOTS)
    return GroundedVideo(*known, picture_files, float(SECONDS))


def picture_files(seconds):
    return {second: str(second).encode() for second in seconds}


def right(steps):
    """Return which of the shown steps stand in their shot."""
    placed = [(k, step.at) for k, step in enumerate(steps) if k in SHOWN and step.at is not None]
    return [k for k, at in placed if int(at) // SHOT == SHOWN[k] // SHOT]


def unchanged(answers, grounding):
    places = tuple(step.model_copy(update={"seen": ()}) for step in answers.steps)
    same = answers.alignment.scores == grounding.alignment.scores
    return places == grounding.steps and same.all()
