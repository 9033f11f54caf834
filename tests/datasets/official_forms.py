"""Every dataset in its official form: small samples made by hand."""

import json


def write(path, tree):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(tree if isinstance(tree, str) else json.dumps(tree), encoding="utf-8")
    return path


TAXONOMY = """global_step_index,activity,step_index,variation,variation_index,headline,paragraph
0,Make A,0,none,1,"Boil water, then salt it.",Long text
1,Make A,1,none,2,Drain.,
2,Make B,0,A,1,Whisk.,
3,Make B,1,A,2,Fold.,
4,Make B,2,B,1,Fry.,
"""
TASKS = """23521
Make Jello Shots
https://www.wikihow.com/x
3
pour water,stir mixture,pour into cups

16815
Jack Up a Car
https://www.wikihow.com/y
2
brake on,raise jack

"""


def htm_align(folder):
    rows = [
        [1, 5.0, 8.8, "pour the milk"],
        [0, 10.5, 12.0, "I love this"],
        [1, 20.0, 20.0, "stir it"],
    ]
    return write(folder / "htm_align.json", {"vidA": rows, "vidB": [[0, 1, 2, "hello"]]})


def ht_step(folder):
    def video(subset, activity, *rows):
        return {
            "subset": subset,
            "activity": activity,
            "annotations": [{"id": i, "segment": s} for i, s in rows],
        }

    annotations = {
        "v1": video("train", "Make A", (0, [3.0, 9.5]), (0, [20, 25.5]), (1, [30, 29])),
        "v2": video("val_seen", "Make B", (3, [1, 2]), (4, [5, 6]), (99, [7, 8])),
        "v3": video("val_seen", "Make B"),
    }
    write(folder / "taxonomy.csv", TAXONOMY)
    write(folder / "video_splits.json", {"train": ["v1"], "val_seen": ["v2", "v3"]})
    write(folder / "annotations.json", annotations)
    return folder


def crosstask(folder):
    write(folder / "tasks_primary.txt", TASKS)
    rows = [(23521, "qLnTkIUO0so"), (16815, "bbb"), (16815, "ccc"), (999, "ddd")]
    write(
        folder / "videos.csv",
        "".join(f"{task},{video},https://youtu.be/{video}\n" for task, video in rows),
    )
    write(folder / "videos_val.csv", "16815,bbb,https://youtu.be/bbb\n")
    write(
        folder / "annotations/23521_qLnTkIUO0so.csv",
        "1,95.34,99.14\n3,136.0,144\n1,146.4,199.5\n9,1,2\n3,5,5\n",
    )
    write(folder / "annotations/16815_bbb.csv", "2,10,20\n")
    return folder


def coin(folder):
    steps = [
        ("373", [21.0, 22.0], "begin to run up"),
        ("374", [23, 24], "jump"),
        ("373", [25, 27], "begin to run up"),
    ]
    video = {
        "duration": 26.795,
        "class": "PractisePoleVault",
        "start": 20,
        "end": 26,
        "subset": "training",
        "recipe_type": 116,
        "annotation": [{"id": i, "segment": s, "label": t} for i, s, t in steps],
    }
    return write(folder / "COIN.json", {"database": {"NLy71UrHElw": video}})


def youcook2(folder):
    def rows(*items):
        return [{"id": i, "segment": s, "sentence": t} for i, (s, t) in enumerate(items)]

    train = {
        "subset": "training",
        "duration": 241.62,
        "recipe_type": "113",
        "video_url": "u",
        "annotations": rows(
            ([90, 102], "spread margarine"), ([173, 174], "cut the sandwich"), ([240, 250], "eat")
        ),
    }
    database = {
        "GLd3aX16zBg": train,
        "xHr8X2Wpmno": {**train, "subset": "validation", "duration": float("inf")},
    }
    return write(folder / "youcookii_annotations_trainval.json", {"database": database})


def flat(folder, name, prefix="", sentences=("chop lettuce", "None")):
    video = {"duration": 206.86, "timestamps": [[47, 60], [67.5, 89]], "sentences": list(sentences)}
    return write(folder / name, {prefix + "xHr8X2Wpmno": video})


def tasty(folder):
    return flat(folder, "tasty_val.json")


def sieve_swap(folder):
    texts = (["make rye dough", "stir together the flours"], ["add all flour", ""])
    return flat(folder, "htmrkb_dis_train_48k_6july_yc2format_clean.json", sentences=texts)


def columns(folder, name):
    texts = ["preheat the oven", " ", "mix"]
    return write(
        folder / name,
        {
            "a1": {"start": [1, 5, 4.5], "end": [9, 6, 4.5], "text": texts},
            "a2": {"start": [], "end": [], "text": []},
        },
    )


def howtostep(folder):
    return columns(folder, "HowToStep.json")


def howto100m(folder):
    return columns(folder, "caption.json")


def whenact(folder):
    spoken = [
        ["adding the onions", [20, 31], 0],
        ["mash it", [0, 11], 0],
        ["love you", [40, 45], 1],
        ["mash it", [9, 9], 0],
    ]
    shown = [
        ["add the onions", 2.2, 55.0],
        ["mash it", 12.0, 12.0],
        ["buy a car", 1, 2],
        ["mash it", 14.0, 15.0],
    ]
    write(folder / "dict_all_annotations_ordered.json", {"1p0_1mini_1.mp4": shown})
    return write(
        folder / "mapped_actions_time_label.json",
        {"1p0_1mini_1.mp4": spoken, "1p0_1mini_2.mp4": []},
    )


def hirest(folder):
    def item(**changes):
        steps = [
            {"index": i, "heading": f"step {i}", "absolute_bounds": b}
            for i, b in enumerate([[50, 58], [58, 58]])
        ]
        return {
            "relevant": True,
            "clip": True,
            "v_duration": 207.08,
            "bounds": [50, 121],
            "steps": steps,
        } | changes

    queries = {
        "Make Oatmeal": {
            "5V3dI2zp1xA.mp4": item(),
            "TcB42a05yzg.mp4": item(clip=False, bounds=[0, 0], steps=[]),
        },
        "Make Pancakes": {"5V3dI2zp1xA.mp4": item(steps=[]), "other.mp4": item(relevant=False)},
    }
    return write(folder / "all_data_val.json", queries)


def interactive_cooking(folder):
    messages = [
        ("Crack 2 eggs into a bowl.", 4.0, "instruction"),
        ("Use a second egg too.", 15.5, "feedback_action_aligned_mistake_measurement_error"),
        ("Whisk the eggs.", 21.0, "instruction"),
        ("Well done.", 33.0, "feedback_action_aligned_success"),
        ("Nice job, that was all.", 35.5, "feedback_finish_all"),
    ]
    texts, seconds, types = map(list, zip(*messages, strict=True))
    row = {
        "video_id": "1_7",
        "activity_name": "Microwave Egg Sandwich",
        "output_texts": texts,
        "output_timestamps": seconds,
        "output_types": types,
        "output_actions": [""] * len(texts),
        "remaining_plan": [["Whisk the eggs."]] * len(texts),
    }
    hasty = {
        **row,
        "video_id": "1_8",
        "output_timestamps": [4.0, 15.5, 4.0, 33.0, 35.5],  # the second instruction at once
    }
    return write(folder / "main_test.json", [row, hasty])


def region(id, start, end, text, label="shown"):
    times = {"start": start, "end": end, "channel": 0}
    rows = [("labels", {"labels": [label]}), ("textarea", {"text": [text]})]
    base = {"id": id, "to_name": "audio", "original_length": 40.0}
    return [base | {"type": kind, "value": times | value} for kind, value in rows]


def label_studio(folder):
    first = [
        *region("1.0", 3.5, 9, "Fold"),
        *region("2.0", 20, 25, "Fold"),
        *region("x", 30, 29, "Press"),
    ]
    second = [*region("1.0", 1, 2, "Other")]
    annotations = [
        {"result": second},
        {"result": first, "ground_truth": True},
        {"result": [], "was_cancelled": True},
    ]
    said = [
        *region("1.0", 3, 4, "Glue it", label="said"),
        {"id": "n", "type": "choices", "value": {"choices": ["ok"]}},
    ]
    tasks = [
        {"data": {"id": "strip", "video": "/v/strip.mp4"}, "annotations": annotations},
        {"data": {"video": "b.mp4"}, "annotations": [{"result": said}]},
        {
            "data": {"id": "c", "video": "c.mp4"},
            "annotations": [],
            "predictions": [{"result": first}],
        },
    ]
    return write(folder / "label_studio.json", tasks)


SAMPLES = {
    "htm-align": htm_align,
    "ht-step": ht_step,
    "crosstask": crosstask,
    "coin": coin,
    "youcook2": youcook2,
    "tasty": tasty,
    "sieve-swap": sieve_swap,
    "howtostep": howtostep,
    "howto100m": howto100m,
    "whenact": whenact,
    "hirest": hirest,
    "interactive-cooking": interactive_cooking,
    "label-studio": label_studio,
}
