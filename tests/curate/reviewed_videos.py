"""Made videos with captions, features and a known truth, and a person who answers by that truth."""

import json
from pathlib import Path

import numpy as np
from small_video import draw_video

from stepline.annotate import Answer, AnswerLog, read_clips
from stepline.records import Span
from stepline.text import embed

SECONDS = 30
STEP_SECONDS = 6
PHRASES = (
    "slice the lemons into thin rounds",
    "pour the juice into the bowl",
    "whisk the sugar into the water",
    "boil the potatoes in a large pot",
    "chop the onions with a sharp knife",
    "fold the egg whites into the batter",
    "grate the cheese over the pasta",
    "spread the butter on the bread",
    "sand the edges of the board",
    "drill two holes into the wall",
    "tighten the screws with a wrench",
    "paint the frame with a brush",
)


def make_videos(folder, count):
    """Make `count` videos of four spoken steps each, a list of them, and return the truth: id ->
    phrase -> the span that shows it, None where nothing does.

    Of ten steps six are shown while they are said, three in the six seconds after, one nowhere. A
    second's feature is the vector of what is shown in it, beside noise.
    """
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    vectors = dict(zip(PHRASES, embed(list(PHRASES)), strict=True))
    bytes_of_video = draw_video(
        folder / "drawn.mp4", seconds=SECONDS, rate=2, size=(64, 48)
    ).read_bytes()
    (folder / "drawn.mp4").unlink()
    truth = {}
    rows = ["id,video,captions,features"]
    for number in range(count):
        id = f"made{number:03}"
        # an empty box of its own, so that no file is another's copy
        box = (12).to_bytes(4, "big") + b"free" + number.to_bytes(4, "big")
        (folder / f"{id}.mp4").write_bytes(bytes_of_video + box)
        phrases = [PHRASES[index] for index in rng.permutation(len(PHRASES))[:4]]
        truth[id] = {}
        cues = ["WEBVTT"]
        values = rng.normal(0, 0.02, (SECONDS, len(vectors[PHRASES[0]]))).astype(np.float32)
        for index, phrase in enumerate(phrases):
            start = 1 + index * (STEP_SECONDS + 1)
            cues.append(f"00:00:{start:02}.000 --> 00:00:{start + 4:02}.000\nNow {phrase}.")
            kind = rng.random()
            shown = None
            if kind < 0.9:
                begins = start if kind < 0.6 else min(start + STEP_SECONDS, SECONDS - 5)
                shown = Span(float(begins), float(begins + 5))
                values[begins : begins + 5] += 0.6 * vectors[phrase]
            truth[id][phrase] = shown
        (folder / f"{id}.vtt").write_text("\n\n".join(cues) + "\n")
        np.save(folder / f"{id}.npy", values / np.linalg.norm(values, axis=1, keepdims=True))
        rows.append(f"{id},{id}.mp4,{id}.vtt,{id}.npy")
    (folder / "videos.csv").write_text("\n".join(rows) + "\n")
    return truth


def is_shown(truth, clip):
    """Tell whether a clip of the queue shows its words."""
    spans = truth[clip.id.partition("/")[0]]
    words = set(clip.text.lower().split())
    phrase = max(spans, key=lambda phrase: len(words & set(phrase.split())))
    span = spans[phrase]
    return span is not None and span.iou(clip.span) >= 0.3


def answer_clips(home, truth, people, *, errs=lambda person, number: False):
    """Let people answer every open clip of a workflow's folder. errs(person, number): whether they
    answer the clip of that number wrongly."""
    answers = AnswerLog(home / "answers.jsonl")
    done = {(answer.clip, answer.annotator) for answer in answers}
    for number, clip in enumerate(read_clips(home / "clips.json")):
        for person in people:
            if (clip.id, person) not in done:
                shown = is_shown(truth, clip) != errs(person, number)
                answers.add(Answer(clip=clip.id, annotator=person, shown=shown, confidence="very"))


def clip_texts(path: Path) -> list[str]:
    return [clip["text"] for clip in json.loads(path.read_text())]
