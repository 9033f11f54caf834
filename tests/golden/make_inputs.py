"""Make what tests/test_golden.py reads: videos, features, captions, references, and one trained network a system.

They were made once, before the modules were moved, and stay as they are: that today's loaders read the networks shows
that neither KIND nor a key of their files has changed. Making them anew makes another golden test.
The recipe of `curate`, inputs/recipe.toml, is written by hand.

    PYTHONPATH=. python tests/golden/make_inputs.py
"""

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

INPUTS = Path(__file__).parent / "inputs"
VERBS = ("slice", "wash", "chop", "peel", "dice", "fry", "boil", "mash")
THINGS = ("lemons", "onions", "carrots", "potatoes", "tomatoes", "apples")
PLACES = ("into the bowl", "on the board", "in the pan", "over the salad")
TALK = ("Hello everyone and welcome back to my channel.", "My grandmother loved this kitchen.")
ENCODER = "minilm"   # whose vectors stand for pictures as well
WIDTH = 384          # of them
SECONDS = 5          # from step to step
SHOWN = 4            # seconds of a step
LAG = 1              # seconds from a step's words to its pictures

ALIGNER = ("width=16", "heads=2", "encoder_layers=1", "decoder_layers=1", "feed_forward=24", "projection=8",
           "text_positions=32")
DESCRIBER = (
    "rows=16", "attention.width=16", "attention.heads=2", "attention.levels=2", "attention.points=2",
    "encoder_layers=1", "decoder_layers=1", "feed_forward=24", "queries=6", "most_steps=8", "captioner.width=16",
    "captioner.heads=2", "captioner.text_layers=1", "captioner.joint_layers=1", "captioner.feed_forward=24",
    "captioner.projection=8", "captioner.longest=16",
)


def sentences(rng, count):
    """Return what is said: a greeting, then a sentence a step; and the steps."""
    steps = [f"{rng.choice(VERBS)} the {rng.choice(THINGS)} {rng.choice(PLACES)}" for _ in range(count)]
    lines = [f"{'First' if number == 0 else 'Then'} {step}." for number, step in enumerate(steps)]
    return [str(rng.choice(TALK)), *lines], steps


def video(rng, count):
    """Return features (T, 384), sentences with times, and steps with the seconds in which they are shown."""
    from stepline.text import embed

    said, steps = sentences(rng, count)
    times = [(SECONDS * number + 0.5, SECONDS * number + 3.5) for number in range(len(said))]
    rows = 0.03 * rng.standard_normal((SECONDS * len(said) + 2, WIDTH))
    spans = [(SECONDS * (number + 1) + LAG, SECONDS * (number + 1) + LAG + SHOWN) for number in range(count)]
    for (start, end), vector in zip(spans, embed(steps, model=ENCODER), strict=True):
        rows[start:end] += vector
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return rows.astype(np.float16), list(zip(said, times, strict=True)), list(zip(steps, spans, strict=True))


def transcript(id, rows, said):
    """Return a record that holds what is said, in the public JSON form."""
    lines = [{"text": text, "start": start, "end": end} for text, (start, end) in said]
    about = {"id": id, "duration": float(len(rows)), "title": f"Salad {id}", "task": "salad"}
    return {"version": 1, "id": id, "video": about, "transcript": {"language": "en", "sentences": lines}}


def flat(rows, steps):
    """Return a video's steps as YouCook2's flat form has them."""
    texts, spans = zip(*steps, strict=True)
    return {"duration": len(rows), "timestamps": [list(map(float, span)) for span in spans], "sentences": list(texts)}


def captions(said):
    """Return WebVTT."""
    cues = [f"00:00:{a:06.3f} --> 00:00:{b:06.3f}\n{text}\n" for text, (a, b) in said]
    return "WEBVTT\n\n" + "\n".join(cues)


def write(path, tree):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(tree if isinstance(tree, str) else json.dumps(tree, indent=1) + "\n")


def stepline(*arguments, cwd):
    command = [sys.executable, "-m", "stepline", *map(str, arguments)]
    subprocess.run(command, cwd=cwd, check=True)


def sets(*pairs):
    return [part for pair in pairs for part in ("--set", pair)]


def networks(folder, count=300):
    """Train one network a system on videos that nothing else reads."""
    rng, truth = np.random.default_rng(7), {}
    for number in range(count):
        id = f"t{number:03}"
        rows, said, steps = video(rng, int(rng.integers(2, 5)))
        (folder / "features").mkdir(exist_ok=True)
        np.save(folder / "features" / f"{id}.npy", rows.astype(np.float32))
        write(folder / "narrations" / f"{id}.json", transcript(id, rows, said))
        truth[id] = flat(rows, steps)
    write(folder / "truth.json", truth)
    stepline("features", "import", "features", "--out", "store", "--backbone", "conse", cwd=folder)
    given = ("--features", "store")
    stepline(
        "train", "nasva", *given, "--steps", "youcook2:truth.json", "--step-vectors", ENCODER, "--out", "nasva",
        *sets(*(f"model.{each}" for each in ALIGNER), "train.epochs=8", "train.learning_rate=0.003"), cwd=folder,
    )
    stepline(
        "train", "procx", *given, "--steps", "youcook2:truth.json", "--out", "procx",
        *sets(*(f"model.{each}" for each in DESCRIBER), "vocabulary.size=300", "train.epochs=10",
              "train.learning_rate=0.003"), cwd=folder,
    )
    marked = ("--key-steps", "youcook2:truth.json", "--narrations", "narrations", "--vectors", ENCODER)
    stepline(
        "train", "wys2", *given, *marked, "--out", "wys2",
        *sets("detector.hidden=16", "detector.width=8", "detector.score=dot", "train.epochs=10",
              "train.learning_rate=1e-5"), cwd=folder,
    )
    for name in ("nasva/aligner.safetensors", "procx/procx.safetensors", "wys2/detector.safetensors",
                 "wys2/detector.shown.json"):
        (INPUTS / "networks").mkdir(parents=True, exist_ok=True)
        shutil.copy(folder / name, INPUTS / "networks" / Path(name).name)


def corpus():
    """Write seven videos as features and captions, a real small one, and the list of twelve that `curate` reads."""
    from small_video import CAPTIONS, draw_video

    rng, made = np.random.default_rng(2024), {}
    for number in range(1, 8):
        made[f"a{number}"] = video(rng, 2 + number % 3)
    rows, said, steps = made["a1"]
    made["twin"] = (rows[:, ::-1].copy(), said, steps)
    made["silent"] = (rows[::-1].copy(), said[:1], steps)
    for id, (rows, said, _) in made.items():
        (INPUTS / "features").mkdir(parents=True, exist_ok=True)
        np.save(INPUTS / "features" / f"{id}.npy", rows)
        write(INPUTS / "captions" / f"{id}.vtt", captions(said))
        if id.startswith("a"):
            write(INPUTS / "narrations" / f"{id}.json", transcript(id, rows, said))
    write(INPUTS / "captions" / "small.srt", CAPTIONS)
    (INPUTS / "media").mkdir(exist_ok=True)
    draw_video(INPUTS / "media" / "small.mp4", steady_light=True)
    (INPUTS / "media" / "broken.mp4").write_text("this is no video")
    lines = ["id,video,captions,features,title,task,duration"]
    for id, (rows, _, _) in made.items():
        task = "soup" if id in ("a3", "a4") else "salad"
        lines.append(f"{id},,captions/{id}.vtt,features/{id}.npy,{id} | how to,{task},{len(rows)}")
    for id, name in (("m1", "small"), ("m2", "small"), ("m3", "broken"), ("m4", "nowhere")):
        lines.append(f"{id},media/{name}.mp4,captions/small.srt,,,lemonade,")
    write(INPUTS / "videos.csv", "\n".join(lines) + "\n")
    references({id: made[id] for id in made if id.startswith("a")})


def references(made):
    """Write the truth of the videos in the forms of the benchmarks, and predictions of nobody in particular."""
    folder, rng = INPUTS / "references", np.random.default_rng(3)
    rows = {}
    for id, (_, said, steps) in made.items():
        shown = ([1, *map(float, span), text] for (text, _), (_, span) in zip(said[1:], steps, strict=True))
        rows[id] = [[0, *said[0][1], said[0][0]], *shown]
    write(folder / "htm_align.json", rows)
    write(folder / "youcook2.json", {id: flat(features, steps) for id, (features, _, steps) in made.items()})
    taxonomy, annotations, blocks = [], {}, []
    for number, (id, (_, _, steps)) in enumerate(made.items()):
        first = len(taxonomy)
        taxonomy += [f"{first + k},Make {id},{k},none,1,{text.capitalize()}.," for k, (text, _) in enumerate(steps)]
        marks = [{"id": first + k, "segment": list(span)} for k, (_, span) in enumerate(steps)]
        annotations[id] = {"subset": "val_seen", "activity": f"Make {id}", "annotations": marks}
        texts = ",".join(text for text, _ in steps)
        blocks.append(f"{100 + number}\nMake {id}\nhttps://www.wikihow.com/{id}\n{len(steps)}\n{texts}\n")
        marked = "".join(f"{k},{start},{end}\n" for k, (_, (start, end)) in enumerate(steps, start=1))
        write(folder / "crosstask" / "annotations" / f"{100 + number}_{id}.csv", marked)
    head = "global_step_index,activity,step_index,variation,variation_index,headline,paragraph\n"
    write(folder / "htstep" / "taxonomy.csv", head + "\n".join(taxonomy) + "\n")
    write(folder / "htstep" / "video_splits.json", {"val_seen": list(made)})
    write(folder / "htstep" / "annotations.json", annotations)
    named = "".join(f"{100 + number},{id},https://youtu.be/{id}\n" for number, id in enumerate(made))
    write(folder / "crosstask" / "tasks_primary.txt", "\n".join(blocks))
    write(folder / "crosstask" / "videos.csv", named)
    write(folder / "crosstask" / "videos_val.csv", named.splitlines()[-1] + "\n")
    coin = {id: {"duration": len(features), "class": "Make", "start": 0, "end": len(features), "subset": "testing",
                 "recipe_type": 1, "annotation": [{"id": str(k), "segment": list(map(float, span)), "label": text}
                                                  for k, (text, span) in enumerate(steps)]}
            for id, (features, _, steps) in made.items()}
    write(folder / "coin.json", {"database": coin})
    write(folder / "vnd.json", {id: rng.integers(0, 2, 6).tolist() for id in made})
    write(folder / "ivsum.json", {id: rng.integers(0, 2, 40).tolist() for id in made})
    folder = INPUTS / "predictions"
    seconds = {id: [round(float(np.mean(span) + rng.normal(0, 3)), 2) for _, span in steps]
               for id, (_, _, steps) in made.items()}
    write(folder / "htm_align.json", {
        id: {"seconds": [1.0, *row], "alignability": rng.random(len(row) + 1).round(3).tolist()}
        for id, row in seconds.items()
    })
    write(folder / "htstep.json", seconds)
    first = {id: 100 + number for number, id in enumerate(made)}
    write(folder / "crosstask.json", {f"{first[id]}_{id}": row for id, row in seconds.items()})
    write(folder / "coin.json", {id: {str(k): value for k, value in enumerate(row)} for id, row in seconds.items()})
    told = {
        id: [{"sentence": text if k % 2 else f"now {text} well", "timestamp": [a + 1.5, b + 0.5]}
             for k, (text, (a, b)) in enumerate(steps)]
        for id, (_, _, steps) in list(made.items())[:-1]
    }
    write(folder / "youcook2.json", {"results": told})
    write(folder / "vnd.json", {id: rng.random(6).round(3).tolist() for id in made})
    write(folder / "ivsum.json", {id: rng.random(40).round(3).tolist() for id in made})


if __name__ == "__main__":
    corpus()
    with tempfile.TemporaryDirectory() as scratch:
        networks(Path(scratch))
