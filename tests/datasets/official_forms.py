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
    rows = [[1, 5.0, 8.8, "pour the milk"], [0, 10.5, 12.0, "I love this"], [1, 20, 20, "stir it"]]
    return write(folder / "htm_align.json", {"vidA": rows, "vidB": [[0, 1, 2, "hello"]]})


def ht_step(folder):
    def video(subset, activity, *rows):
        shown = [{"id": i, "segment": s} for i, s in rows]
        return {"subset": subset, "activity": activity, "annotations": shown}

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
    lines = [f"{task},{video},https://youtu.be/{video}\n" for task, video in rows]
    write(folder / "videos.csv", "".join(lines))
    write(folder / "videos_val.csv", "16815,bbb,https://youtu.be/bbb\n")
    shown = "1,95.34,99.14\n3,136.0,144\n1,146.4,199.5\n9,1,2\n3,5,5\n"
    write(folder / "annotations/23521_qLnTkIUO0so.csv", shown)
    write(folder / "annotations/16815_bbb.csv", "2,10,20\n")
    return folder


def coin(folder):
    run = "begin to run up"
    steps = [("373", [21.0, 22.0], run), ("374", [23, 24], "jump"), ("373", [25, 27], run)]
    video = {"duration": 26.795, "class": "PractisePoleVault", "start": 20, "end": 26}
    video |= {"subset": "training", "recipe_type": 116}
    video["annotation"] = [{"id": i, "segment": s, "label": t} for i, s, t in steps]
    return write(folder / "COIN.json", {"database": {"NLy71UrHElw": video}})


def youcook2(folder):
    told = ([90, 102], "spread margarine"), ([173, 174], "cut the sandwich"), ([240, 250], "eat")
    rows = [{"id": i, "segment": s, "sentence": t} for i, (s, t) in enumerate(told)]
    train = {"subset": "training", "duration": 241.62, "recipe_type": "113", "video_url": "u"}
    train["annotations"] = rows
    endless = {**train, "subset": "validation", "duration": float("inf")}
    database = {"GLd3aX16zBg": train, "xHr8X2Wpmno": endless}
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
    one = {"start": [1, 5, 4.5], "end": [9, 6, 4.5], "text": ["preheat the oven", " ", "mix"]}
    return write(folder / name, {"a1": one, "a2": {"start": [], "end": [], "text": []}})


def howtostep(folder):
    return columns(folder, "HowToStep.json")


def howto100m(folder):
    return columns(folder, "caption.json")


def whenact(folder):
    spoken = [["adding the onions", [20, 31], 0], ["mash it", [0, 11], 0]]
    spoken += [["love you", [40, 45], 1], ["mash it", [9, 9], 0]]
    shown = [["add the onions", 2.2, 55.0], ["mash it", 12.0, 12.0]]
    shown += [["buy a car", 1, 2], ["mash it", 14.0, 15.0]]
    write(folder / "dict_all_annotations_ordered.json", {"1p0_1mini_1.mp4": shown})
    clips = {"1p0_1mini_1.mp4": spoken, "1p0_1mini_2.mp4": []}
    return write(folder / "mapped_actions_time_label.json", clips)


def hirest(folder):
    def item(**changes):
        bounds = [[50, 58], [58, 58]]
        steps = [
            {"index": i, "heading": f"step {i}", "absolute_bounds": b} for i, b in enumerate(bounds)
        ]
        usual = {"relevant": True, "clip": True, "v_duration": 207.08, "bounds": [50, 121]}
        return usual | {"steps": steps} | changes

    oatmeal, pancakes = "5V3dI2zp1xA.mp4", "TcB42a05yzg.mp4"
    queries = {
        "Make Oatmeal": {oatmeal: item(), pancakes: item(clip=False, bounds=[0, 0], steps=[])},
        "Make Pancakes": {oatmeal: item(steps=[]), "other.mp4": item(relevant=False)},
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
    row = {"video_id": "1_7", "activity_name": "Microwave Egg Sandwich"}
    row |= {"output_texts": texts, "output_timestamps": seconds, "output_types": types}
    row |= {"output_actions": [""] * 5, "remaining_plan": [["Whisk the eggs."]] * 5}
    # the second instruction at once
    hasty = {**row, "video_id": "1_8", "output_timestamps": [4.0, 15.5, 4.0, 33.0, 35.5]}
    return write(folder / "main_test.json", [row, hasty])


def region(id, start, end, text, label="shown"):
    times = {"start": start, "end": end, "channel": 0}
    rows = [("labels", {"labels": [label]}), ("textarea", {"text": [text]})]
    base = {"id": id, "to_name": "audio", "original_length": 40.0}
    return [base | {"type": kind, "value": times | value} for kind, value in rows]


def label_studio(folder):
    first = region("1.0", 3.5, 9, "Fold") + region("2.0", 20, 25, "Fold")
    first += region("x", 30, 29, "Press")
    annotations = [
        {"result": region("1.0", 1, 2, "Other")},
        {"result": first, "ground_truth": True},
        {"result": [], "was_cancelled": True},
    ]
    said = region("1.0", 3, 4, "Glue it", label="said")
    said.append({"id": "n", "type": "choices", "value": {"choices": ["ok"]}})
    guessed = {"annotations": [], "predictions": [{"result": first}]}
    tasks = [
        {"data": {"id": "strip", "video": "/v/strip.mp4"}, "annotations": annotations},
        {"data": {"video": "b.mp4"}, "annotations": [{"result": said}]},
        {"data": {"id": "c", "video": "c.mp4"}, **guessed},
    ]
    return write(folder / "label_studio.json", tasks)


FORMS = (htm_align, ht_step, crosstask, coin, youcook2, tasty, sieve_swap, howtostep, howto100m)
FORMS += (whenact, hirest, interactive_cooking, label_studio)
SAMPLES = {form.__name__.replace("_", "-"): form for form in FORMS}
