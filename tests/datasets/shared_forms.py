"""The shared real annotations, written in the official form of their dataset."""

import gzip
import json

from official_forms import write


def load(path):
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return json.load(file)


def real_coin(data, folder):
    database = {}
    for id, video in load(data / "coin/coin.json.gz").items():
        rows = [
            {"id": s["step_id"], "segment": s["segment"], "label": s["label"]}
            for s in video["steps"]
        ]
        known = {key: video[key] for key in ("class", "duration", "subset")}
        database[id] = {**known, "annotation": rows}
    return write(folder / "COIN.json", {"database": database})


def real_crosstask(data, folder):
    tasks, rows, blocks = load(data / "crosstask/tasks.json.gz"), [], []
    for id, task in tasks.items():
        count = len(task["step2headline"])
        steps = ",".join(f"step {n}" for n in range(1, count + 1))
        blocks.append("\n".join((id, task["task_full_name"], "url", str(count), steps)))
    write(folder / "tasks_primary.txt", "\n\n".join(blocks) + "\n\n")
    for video in load(data / "crosstask/videos.json.gz").values():
        task, id = video["task_id"], video["video_id"]
        rows.append(f"{task},{id},https://youtu.be/{id}\n")
        lines = "".join(
            f"{s['step_id']},{s['segment'][0]},{s['segment'][1]}\n" for s in video["steps"]
        )
        write(folder / f"annotations/{task}_{id}.csv", lines)
    write(folder / "videos.csv", "".join(rows))
    return folder


def real_youcook2(data, folder):
    for split in ("train", "val"):
        write(folder / f"yc2_{split}.json", load(data / f"youcook2/{split}.json.gz"))
    return folder


def real_whenact(data, folder):
    clips = load(data / "whenact/narrated_actions.json.gz")
    spoken = {
        id: [[a["text"], a["spoken"], int(not a["visible"])] for a in clip["actions"]]
        for id, clip in clips.items()
    }
    shown = {
        id: [[a["text"], *a["shown"]] for a in clip["actions"] if a["shown"]]
        for id, clip in clips.items()
    }
    write(folder / "mapped_actions_time_label.json", spoken)
    write(folder / "dict_all_annotations_ordered.json", shown)
    return folder


def real_hirest(data, folder):
    splits = {}
    for item in load(data / "hirest/hirest.json.gz"):
        steps = [
            {"index": i, "heading": s["heading"], "absolute_bounds": s["segment"]}
            for i, s in enumerate(item["steps"])
        ]
        video = {"relevant": True, "clip": True, "v_duration": item["duration"], "steps": steps}
        video["bounds"] = item["clip_bounds"]
        queries = splits.setdefault(item["split"], {}).setdefault(item["query"], {})
        queries[item["video_id"] + ".mp4"] = video
    for split, queries in splits.items():
        write(folder / f"all_data_{split}.json", queries)
    return folder


FORMS = (real_coin, real_crosstask, real_youcook2, real_whenact, real_hirest)
REAL = {form.__name__.removeprefix("real_"): form for form in FORMS}
