"""The files that a holder of the papers' data has: official names and layouts, made content, in one
folder.

What a video shows is a row a second: noise, and while a step is shown the vector of its text. Words
have the vector of their spelling, so that texts and pictures share a space, as those of InternVideo
and S3D do.
"""

import csv
import io
import json
import sys
import zlib
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [
    str(TESTS / folder)
    for folder in ("datasets", "nasva", "vision")
    if str(TESTS / folder) not in sys.path
]

import checkpoints  # noqa: E402
from file_bytes import tar_bytes  # noqa: E402
from official_forms import write  # noqa: E402
from small_video import copy_demo, write_pictures  # noqa: E402

INTERNVIDEO, MIXED_5C = 768, 1024  # widths of InternVideo's rows and of HowTo100M's S3D rows
VERBS = ("slice", "wash", "chop", "peel", "fry", "boil", "mash", "grate")
THINGS = ("lemons", "onions", "carrots", "potatoes", "tomatoes", "apples", "garlic", "beans")
PLACES = ("in the pan", "on the board", "in the bowl", "over the salad")
TALK = (
    "hello everyone and welcome back",
    "my grandmother loved this kitchen",
    "I am so happy today",
    "love you all",
)


@dataclass(frozen=True)
class Size:
    """How many videos each part has, and how long they are, in seconds."""

    trained: int = 30  # videos of HowToStep, YouCook2, Tasty
    tested: int = 6  # videos of each test set
    drawn: int = 6  # video files
    seconds: int = 60
    drawn_seconds: int = 8
    spoken_seconds: int = 100  # of the demo video


WHOLE = Size()
SMALL = Size(trained=12, tested=3, drawn=3, seconds=40, drawn_seconds=4, spoken_seconds=16)


@dataclass(frozen=True)
class MadeVideo:
    """A video: what is shown when, in order, and what is talked about between."""

    id: str
    seconds: int
    steps: tuple[tuple[str, float, float], ...]  # text, start, end
    talk: tuple[tuple[str, float, float], ...]

    @property
    def narration(self):
        """What is said, in its order: of each step as it begins, and the talk."""
        said = [(f"now we {text}", start, min(end, start + 4.0)) for text, start, end in self.steps]
        return sorted([*said, *self.talk], key=lambda row: row[1])

    def rows(self, width):
        """Return (T, width) float32: one row a second."""
        rng = np.random.default_rng(zlib.crc32(self.id.encode()))
        rows = 0.05 * rng.standard_normal((self.seconds, width))
        for text, start, end in self.steps:
            rows[int(start) : int(end)] += vectors([text], width)
        return rows.astype(np.float32)


@cache
def _word(word, width):
    return np.random.default_rng([width, zlib.crc32(word.encode())]).standard_normal(width)


def vectors(texts, width):
    """Return (K, width) float32 unit vectors of texts: the sum of their words'."""
    rows = np.stack([sum(_word(word, width) for word in text.lower().split()) for text in texts])
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def made_videos(prefix, count, seconds, steps=4):
    """Return videos whose ids have the eleven letters of YouTube's."""
    videos = []
    for number in range(count):
        rng = np.random.default_rng([zlib.crc32(prefix.encode()), number])
        length = seconds + int(rng.integers(0, max(1, seconds // 4)))
        slot = length / steps
        things, told = rng.permutation(len(THINGS)), []
        for k in range(steps):
            start = round(slot * k + 0.4 * slot * rng.random() + 0.25, 2)
            text = f"{rng.choice(VERBS)} the {THINGS[things[k]]} {rng.choice(PLACES)}"
            told.append((text, start, round(start + 0.45 * slot, 2)))
        talk = [
            (TALK[k % len(TALK)], round(slot * k + 0.9 * slot, 2), round(slot * (k + 1), 2))
            for k in range(steps)
        ]
        videos.append(
            MadeVideo(f"{prefix}{number:0{11 - len(prefix)}}", length, tuple(told), tuple(talk))
        )
    return videos


def write_internvideo(folder, videos):
    """Write {sub}/{id}.pth.tar, (T, 768) half, as TAN's htm_zoo unpacks."""
    import torch

    for number, video in enumerate(videos):
        path = folder / f"htm_{number % 2:02}" / f"{video.id}.pth.tar"
        path.parent.mkdir(parents=True, exist_ok=True)
        torch.save(torch.from_numpy(video.rows(INTERNVIDEO)).half(), path)


def write_texts(folder, texts, times=None):
    """Write {id}.pth, {vid, start, end, text, features}, as NaSVA's extract_textualfeature.py
    does."""
    import torch

    folder.mkdir(parents=True, exist_ok=True)
    for id, lines in texts.items():
        starts, ends = zip(*times[id], strict=True) if times else ((), ())
        features = torch.from_numpy(vectors(lines, INTERNVIDEO)).half()
        tree = {"vid": id, "start": list(starts), "end": list(ends), "text": list(lines)}
        tree["features"] = features
        torch.save(tree, folder / f"{id}.pth")


def write_s3d_rows(folder, videos):
    """Write {id}.mp4.npy or {id}.webm.npy, (T, 1024) float32, as HowTo100M's features are."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, video in enumerate(videos):
        np.save(folder / f"{video.id}.{('mp4', 'webm')[number % 2]}.npy", video.rows(MIXED_5C))


def write_tar(path, files):
    """Write a .tar.gz of name -> bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(tar_bytes(files, "w:gz"))


def array_bytes(values):
    """Return the bytes of a .npy file."""
    file = io.BytesIO()
    np.save(file, values)
    return file.getvalue()


def write_nasva(path, seed):
    """Write a network under the names of NaSVA's release; its weights are random, its sizes
    small."""
    import torch
    from aligner_samples import released_layout

    from stepline.models.nasva.model import Aligner
    from stepline.models.nasva.settings import AlignerNetworkSettings

    torch.manual_seed(seed)
    sizes = {"width": 32, "encoder_layers": 1, "decoder_layers": 1}
    sizes |= {"feed_forward": 48, "projection": 8}
    torch.save(released_layout(Aligner(AlignerNetworkSettings(**sizes, text_positions=64))), path)


def write_own_video(folder, size):
    """Write a video of the user's own, lines to find in it, and InternVideo-MM's checkpoint in
    small."""
    checkpoints.write_internvideo(folder, INTERNVIDEO)
    copy_demo(folder / "my_video.mp4", size.spoken_seconds)
    lines = ("Stir the sugar into the water.", "Pour the lemonade over ice.")
    write(folder / "my_steps.txt", "\n".join(lines))


def write_interactive_cooking(folder, size):
    """Write a recording, its instructions one a line, and Qualcomm's messages to it."""
    messages = [
        ("Stir the sugar into the water.", 4.0, "instruction"),
        ("Pour the lemonade over ice.", 0.5 * size.spoken_seconds, "instruction"),
        ("That was all.", 0.95 * size.spoken_seconds, "feedback_finish_all"),
    ]
    texts, seconds, kinds = map(list, zip(*messages, strict=True))
    copy_demo(folder / "1_7.mp4", size.spoken_seconds)
    write(folder / "1_7.txt", "\n".join(texts[:2]))
    row = {"video_id": "1_7", "activity_name": "Lemonade", "output_texts": texts}
    row |= {"output_timestamps": seconds, "output_types": kinds}
    row |= {"output_actions": [""] * len(texts), "remaining_plan": [texts[:2]] * len(texts)}
    write(folder / "main_test.json", [row])


def write_nasva_files(folder, size):
    """Write what the tables of paper A need."""
    for name, seed in (("NSVA_narration.pth", 1), ("NSVA_step.pth", 2)):
        write_nasva(folder / name, seed)
    write_own_video(folder, size)
    write_interactive_cooking(folder, size)
    learned = made_videos("htm", size.trained, size.seconds)
    aligned = made_videos("alg", size.tested, size.seconds)
    steps = {
        split: made_videos(prefix, size.tested, size.seconds) for split, prefix in SPLITS.items()
    }
    crossed = same_steps(made_videos("crt", CROSSED, size.seconds // 3))
    tested = [*aligned, *(video for videos in steps.values() for video in videos), *crossed]
    write_internvideo(folder / "internvideo_MM_L14", [*learned, *tested])
    write_htm_align(folder, aligned)
    write_ht_step(folder, steps)
    write_crosstask(folder, crossed)
    files = {}
    for video in [*learned, aligned[0]]:  # of which the last must be kept out
        texts, starts, ends = map(list, zip(*video.steps, strict=True))
        tree = {"start": starts, "end": ends, "text": texts}
        files[f"HowToStep/{video.id}.json"] = json.dumps(tree).encode()
    write_tar(folder / "HowToStep.tar.gz", files)
    for name, kind in (("howtostep_text", "steps"), ("whisperx_text", "narration")):
        lines = {video.id: getattr(video, kind) for video in [*learned, aligned[0]]}
        times = {id: [row[1:] for row in rows] for id, rows in lines.items()}
        write_texts(
            folder / name, {id: [row[0] for row in rows] for id, rows in lines.items()}, times
        )


CROSSED = 66  # videos of CrossTask: its 20 test sets leave 30 of each of two tasks out
SPLITS = {"train": "tra", "val_seen": "vas", "val_unseen": "vau"}
SPLITS |= {"test_seen": "tes", "test_unseen": "teu"}


def same_steps(videos):
    """Return the videos as every second one of two tasks: all show the steps of the task's
    first."""
    made = []
    for number, video in enumerate(videos):
        pairs = zip(videos[number % 2].steps, video.steps, strict=True)
        steps = tuple((text, *times) for (text, *_), (_, *times) in pairs)
        made.append(replace(video, steps=steps))
    return made


def write_htm_align(folder, videos):
    """Write htm_align.json with a video that has nothing alignable and a span of no length, and the
    text features."""
    rows = {}
    for video in videos:
        shown = {f"now we {text}": (start, end) for text, start, end in video.steps}
        rows[video.id] = [
            [1, *shown[text], text] if text in shown else [0, start, end, text]
            for text, start, end in video.narration
        ]
    last = rows[videos[-1].id]
    rows[videos[-1].id] = [[0, start, end, text] for _, start, end, text in last]
    first = next(row for row in rows[videos[0].id] if row[0])
    first[2] = first[1]
    write(folder / "htm_align" / "htm_align.json", rows)
    write_texts(
        folder / "htm_align_text", {id: [row[3] for row in lines] for id, lines in rows.items()}
    )


def write_ht_step(folder, splits):
    """Write HT-Step's release, whose test videos have no annotation, the server's queries, and
    apart what it knows."""
    head = tuple(
        "global_step_index activity step_index variation variation_index headline paragraph".split()
    )
    table, annotations, queries, hidden = [head], {}, {}, {}
    for split, videos in splits.items():
        for video in videos:
            first, activity = len(table) - 1, f"Cook {video.id}"
            headlines = [f"{text.capitalize()}." for text, *_ in video.steps] + ["Serve it."]
            table += [
                (first + k, activity, k, "none", 1, line, "") for k, line in enumerate(headlines)
            ]
            marks = [
                {"id": first + k, "segment": [start, end]}
                for k, (_, start, end) in enumerate(video.steps)
            ]
            entry = {video.id: {"subset": split, "activity": activity, "annotations": marks}}
            (hidden if split.startswith("test") else annotations).update(entry)
            if split.startswith("test"):
                queries[video.id] = {"step_headline": headlines}
            write_texts(folder / "htstep_text", {video.id: headlines})
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerows(table)
    write(folder / "htstep" / "taxonomy.csv", file.getvalue())
    write(folder / "htstep" / "annotations.json", annotations)
    ids = {name: [one.id for one in videos] for name, videos in splits.items()}
    write(folder / "htstep" / "video_splits.json", ids)
    write(folder / "htstep" / "htm_test_input_headline.json", queries)
    write(folder / "hidden" / "taxonomy.csv", file.getvalue())
    write(folder / "hidden" / "annotations.json", hidden)


def write_crosstask(folder, videos):
    """Write the CrossTask release of two tasks whose videos show the task's steps, one of them
    twice."""
    release, tasks, listed = folder / "crosstask_release", [], []
    for number in range(2):
        texts = [text for text, *_ in videos[number].steps]
        tasks.append(
            f"{1000 + number}\nTask {number}\nhttps://www.wikihow.com/{number}\n4\n{','.join(texts)}\n"
        )
        for video in videos[number::2]:
            listed.append(f"{1000 + number},{video.id},https://youtu.be/{video.id}\n")
            marks = [
                f"{k},{start},{end}\n" for k, (_, start, end) in enumerate(video.steps, start=1)
            ]
            path = release / "annotations" / f"{1000 + number}_{video.id}.csv"
            write(path, "".join([*marks, marks[0]]))
            write_texts(folder / "crosstask_text", {video.id: texts})
    write(release / "tasks_primary.txt", "\n".join(tasks))
    write(release / "tasks_related.txt", "")
    write(release / "videos.csv", "".join(listed))
    write(release / "videos_val.csv", listed[0])


def flat(videos):
    """Return videos as YouCook2's flat form has them."""
    tree = {}
    for video in videos:
        times, texts = [times for _, *times in video.steps], [text for text, *_ in video.steps]
        tree[video.id] = {"duration": video.seconds, "timestamps": times, "sentences": texts}
    return tree


def write_procx_files(folder, size):
    """Write what the tables of paper B need: HowTo100M, RecipeNLG, and what Sieve & Swap's authors
    ship."""
    cooked = {
        split: made_videos(f"yc{split[0]}", count, size.seconds)
        for split, count in (("train", size.trained), ("val", size.tested))
    }
    tasty = {
        split: made_videos(f"ta{split[:2]}", count, size.seconds)
        for split, count in (("train", size.trained), ("val", size.tested), ("test", size.tested))
    }
    shipped = folder / "sieve_and_swap"
    names = {"train": "yc2_train.json", "val": "yc2_val_official_available.json"}
    for name, splits in (("yc2", cooked), ("tasty", tasty)):
        for split, videos in splits.items():
            file = names[split] if name == "yc2" else f"tasty_{split}.json"
            write(shipped / "downstream" / name / "data" / "captiondata" / file, flat(videos))
        rows = {
            f"features/{video.id}.npy": array_bytes(video.rows(512))
            for part in splits.values()
            for video in part
        }
        write_tar(shipped / "downstream" / name / "features.tar.gz", rows)
    write(folder / "pdvc_result.json", pdvc_result(cooked["val"]))
    narrated = made_videos("how", size.trained, size.seconds)
    write_howto100m(folder, [*narrated, cooked["val"][0]])
    swapped = flat(narrated)
    for video in swapped.values():
        video["sentences"] = [[text, f"{text} well"] for text in video["sentences"]]
    name = "htmrkb_dis_train_48k_6july_yc2format_clean.json"
    write(shipped / "pretraining" / "data" / name, swapped)
    rows = {f"features/{video.id}.npy": array_bytes(video.rows(512)) for video in narrated}
    write_tar(shipped / "pretraining" / "features" / "features.tar.gz", rows)


def pdvc_result(videos, queries=100):
    """Return what PDVC writes of videos: the proposals of all queries, the steps among them."""
    results = {}
    for number, video in enumerate(videos):
        rng = np.random.default_rng(number)
        rows = []
        for query in range(queries):
            text, start, end = video.steps[query % len(video.steps)]
            is_step = query < len(video.steps)
            start = start if is_step else float(rng.uniform(0, video.seconds - 2))
            row = {"timestamp": [start, end if is_step else start + 2.0]}
            row["proposal_score"] = float(rng.uniform(0.3, 0.9))
            row["sentence"] = text if is_step else "add salt"
            row["sentence_score"] = -float(rng.uniform(0.5, 4.0))
            counts = {"vid_duration": video.seconds, "pred_event_count": len(video.steps)}
            rows.append(row | {"query_id": query} | counts)
        results[video.id] = [rows[index] for index in rng.permutation(queries)]
    return {"version": "VERSION 1.0", "results": results, "valid_video_num": len(videos)}


def captions(videos):
    """Return what is said in videos, in columns, as HowTo100M's captions and the sentencified ones
    are."""
    tree = {}
    for video in videos:
        columns = map(list, zip(*video.narration, strict=True))
        tree[video.id] = dict(zip(("text", "start", "end"), columns, strict=True))
    return tree


def write_howto100m(folder, videos):
    """Write HowTo100M's table, tasks, caption.json and features, RecipeNLG's csv with a recipe a
    video."""
    table = "video_id,category_1,category_2,rank,task_id\n"
    table += "".join(
        f"{video.id},Food and Entertaining,Recipes,{n},{n % 2}\n" for n, video in enumerate(videos)
    )
    for kind in ("howto100m", "howto100m_captions"):
        write(folder / kind / "HowTo100M_v1.csv", table)
        write(folder / kind / "task_ids.csv", "0\tCook a Salad\n1\tCook a Stew\n")
    for kind in ("howto100m", "caption_alone"):  # with HowTo100M's tables, and without
        write(folder / kind / "caption.json", captions(videos))
    for video in videos:
        file = io.StringIO()
        told = ((start, end, text) for text, start, end in video.narration)
        rows = [("start", "end", "text"), *told]
        csv.writer(file, lineterminator="\n").writerows(rows)
        write(folder / "howto100m_captions" / f"{video.id}.csv", file.getvalue())
    write_s3d_rows(folder / "howto100m_s3d_features", videos)
    file = io.StringIO()
    rows = csv.writer(file, lineterminator="\n")
    rows.writerow(("", "title", "ingredients", "directions", "link", "source", "NER"))
    for number, video in enumerate(videos):
        texts = [f"{text.capitalize()}." for text, *_ in video.steps]
        lists = [json.dumps(["1 pinch salt"]), json.dumps(texts)]
        title = f"{('Salad', 'Stew')[number % 2]} {number}"
        origin = ("www.example.org", "Gathered", json.dumps(["salt"]))
        rows.writerow((number, title, *lists, *origin))
    write(folder / "full_dataset.csv", file.getvalue())


def write_wys2_files(folder, size):
    """Write what the tables of paper C need: S3D, COIN with its films and speech, VND, HTM-Align,
    HowTo100M."""
    from checkpoints import write_s3d

    coin = made_videos("coi", size.drawn, size.drawn_seconds, steps=2)
    vnd = made_videos("vnd", size.drawn // 3, size.drawn_seconds, steps=2)
    write_s3d(folder, [text for video in coin for text, *_ in video.narration])
    for video in [*coin, *vnd]:
        draw(folder / "coin_videos" / f"{video.id}.mp4", video)
        segments = [
            {"start": start, "end": end, "text": text} for text, start, end in video.narration
        ]
        write(
            folder / "coin_whisperx" / f"{video.id}.json", {"segments": segments, "language": "en"}
        )
    write(
        folder / "COIN.json", {"database": {video.id: coin_entry(video) for video in [*coin, *vnd]}}
    )
    clips = []
    for video in vnd:
        for k, (text, start, _) in enumerate(video.narration):
            clip = {"id": f"{video.id}:{k}", "video": f"coin_videos/{video.id}.mp4", "text": text}
            span = {"start": start, "end": start + 3.0}
            clips.append(clip | {"span": span, "shown": text not in TALK})
    write(folder / "vnd" / "vnd_clips.json", clips)
    write(folder / "vnd" / "vnd.json", {clip["id"]: int(clip["shown"]) for clip in clips})
    write(folder / "vnd" / "videos.txt", "".join(f"{video.id}\n" for video in vnd))
    aligned, narrated = (
        made_videos(prefix, size.tested, size.seconds) for prefix in ("alg", "how")
    )
    write_s3d_rows(folder / "howto100m_s3d_features", [*aligned, *narrated])
    write_htm_align(folder, aligned)
    write(folder / "htm_align" / "sentencified_htm_370k.json", captions(aligned))
    write(folder / "howto100m" / "caption.json", captions([*narrated, aligned[0]]))


def coin_entry(video):
    """Return a video's entry in COIN.json."""
    steps = [
        {"id": str(k), "segment": [start, end], "label": text}
        for k, (text, start, end) in enumerate(video.steps)
    ]
    tree = {"duration": video.seconds, "class": "MakeSalad", "start": 0, "end": video.seconds}
    tree |= {"subset": "training", "recipe_type": 1, "video_url": "u"}
    return tree | {"annotation": steps}


def draw(path, video):
    """Write a film whose colour tells which step is shown."""
    path.parent.mkdir(parents=True, exist_ok=True)
    images = []
    for index in range(4 * video.seconds):
        shown = [text for text, start, end in video.steps if start <= index / 4 < end]
        colour = zlib.crc32(shown[0].encode()).to_bytes(4, "big")[:3] if shown else b"\x20" * 3
        image = np.broadcast_to(np.frombuffer(colour, np.uint8), (64, 64, 3)).copy()
        image[20:40, index % 40 : index % 40 + 20] = 255
        images.append(image)
    write_pictures(path, images, 4)


PAPERS = {"A": write_nasva_files, "B": write_procx_files, "C": write_wys2_files}
