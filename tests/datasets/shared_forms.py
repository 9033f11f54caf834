"""The shared real annotations, written in the official form of their dataset."""

import csv
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
        database[id] = {
            **{key: video[key] for key in ("class", "duration", "subset")},
            "annotation": rows,
        }
    return write(folder / "COIN.json", {"database": database})


def real_crosstask(data, folder):
    tasks, rows = load(data / "crosstask/tasks.json.gz"), []
    blocks = [
        (
            id,
            task["task_full_name"],
            "url",
            str(len(task["step2headline"])),
            ",".join(f"step {n}" for n in range(1, len(task["step2headline"]) + 1)),
        )
        for id, task in tasks.items()
    ]
    write(folder / "tasks_primary.txt", "\n\n".join("\n".join(block) for block in blocks) + "\n\n")
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
    return data / "whenact/narrated_actions.json.gz"  # the joined form is read as it is


def real_hirest(data, folder):
    splits = {}
    for item in load(data / "hirest/hirest.json.gz"):
        steps = [
            {"index": i, "heading": s["heading"], "absolute_bounds": s["segment"]}
            for i, s in enumerate(item["steps"])
        ]
        video = {
            "relevant": True,
            "clip": True,
            "v_duration": item["duration"],
            "bounds": item["clip_bounds"],
            "steps": steps,
        }
        splits.setdefault(item["split"], {}).setdefault(item["query"], {})[
            item["video_id"] + ".mp4"
        ] = video
    for split, queries in splits.items():
        write(folder / f"all_data_{split}.json", queries)
    return folder


def real_captaincook4d(data, folder):
    return data / "captaincook4d/steps.json.gz"  # the official form, gzipped


def real_goal_step(data, folder):
    return write(
        folder / "goalstep_valid.json",
        {"videos": list(load(data / "goalstep/valid.json.gz").values())},
    )


def real_epic_kitchens(data, folder):
    with (folder / "EPIC_100_validation.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(
            ["narration_id", "video_id", "start_timestamp", "stop_timestamp", "narration"]
        )
        for id, rows in load(data / "epic_narrations/validation.json.gz").items():
            for index, row in enumerate(rows):
                writer.writerow([f"{id}_{index}", id, *map(clock, row["segment"]), row["text"]])
    return folder


def clock(seconds):
    hundredths = round(seconds * 100)
    minutes, rest = divmod(hundredths, 6000)
    return f"{minutes // 60:02}:{minutes % 60:02}:{rest / 100:05.2f}"


REAL = {
    "coin": real_coin,
    "crosstask": real_crosstask,
    "youcook2": real_youcook2,
    "whenact": real_whenact,
    "hirest": real_hirest,
    "captaincook4d": real_captaincook4d,
    "goal-step": real_goal_step,
    "epic-kitchens": real_epic_kitchens,
}
