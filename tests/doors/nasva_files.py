"""A tiny corpus in the layout that NaSVA's code reads: features, vectors of texts, HTM-Align,
HT-Step, CrossTask, WhisperX."""

import csv
import json

import closed_forms
import torch

WIDTH = 768  # InternVideo's; the code knows no other for it

# HTM-Align: id -> seconds, rows of (alignable, start, end, text). Spans with whole and broken ends,
# shorter than a row, over a row's edge, past the end, and a video that shows nothing.
ONE = """1 2.0 9.0 chop the onion | 0 9.0 12.5 I love this pan | 1 12.25 20.75 fry it in butter |
1 21.4 21.9 add the rice | 1 22.0 36.0 stir until it is soft | 1 5.5 30.5 keep the heat low"""
TWO = """1 0 12 cut a board | 1 13.9 40.1 drill two holes | 0 41 44 my father had one |
1 45 70 screw it to the wall | 1 0 64 wear gloves"""
HTM_ALIGN = {
    "aligned-one": (37, closed_forms.marked_rows(ONE)),
    "aligned-two": (64, closed_forms.marked_rows(TWO)),
    "aligned-three": (25, [[1, 3.2, 18.8, "knead the dough"]]),
    "talks-only": (30, [[0, 1, 5, "hello everyone"], [0, 6, 9, "see you"]]),
}

# HT-Step's question of a test split: id -> seconds, headlines in the taxonomy's order.
HT_STEP = {
    "stepped-one": (41, ["Boil the water.", "Add the salt.", "Drain the pasta.", "Serve it hot."]),
    "stepped-two": (28, ["Sand the wood.", "Paint it."]),
    "stepped-three": (55, ["Measure.", "Mark the line.", "Saw.", "Glue the joint.", "Clamp it."]),
}

# CrossTask: task -> (title, steps), videos: id -> (task, seconds, rows of step, start, end)
CROSSTASK_TASKS = {
    "16815": ("Make Jello Shots", ["pour jello powder", "stir mixture", "pour into cups"]),
    "23521": ("Make Taco Salad", ["cut onion", "add onion", "cut tomato", "add tomato"]),
}
CROSSTASK = {
    "crossed-one": ("16815", 33, [(1, 2.5, 9.0), (2, 9.2, 15.7), (3, 16.0, 29.9), (1, 30.0, 32.4)]),
    "crossed-two": ("16815", 20, [(2, 0.0, 19.5)]),
    "crossed-three": ("23521", 47, [(1, 1.0, 12.6), (3, 13.0, 30.0), (4, 28.7, 46.2)]),
}

# WhisperX: id -> seconds, rows of (start, end, text): rows without a whole second, past the end of
# the features, and ones that end after 1,200 s
WHISPERX = {
    "told-one": (31, [(0, 3, "first"), (3.1, 3.6, "short"), (4.25, 9.5, "then"), (20, 29, "last")]),
    "told-two": (
        1230,
        [(5, 8, "early"), (1190.5, 1199.5, "late"), (1195, 1200, "cut"), (1201, 1210, "no")],
    ),
    "told-three": (12, [(1.0, 2.5, "one"), (8.0, 15.0, "over the end")]),
}


def network_state(shapes):
    """Return the weights that the released code's `Checkpointer` would store, without the fixed
    positions of seconds."""
    known = {name: shape for name, shape in shapes.items() if name != "visual_pos_enc.pe"}
    return closed_forms.weights(known)


def text_rows(texts):
    """Return the vectors (K, WIDTH) of texts, one a text."""
    return torch.tensor([closed_forms.rows(text, 1, WIDTH)[0].tolist() for text in texts])


def write_video(folder, id, seconds):
    """Write the features of a video as HowTo100M's InternVideo rows are released: half precision."""
    folder.mkdir(parents=True, exist_ok=True)
    values = torch.tensor(closed_forms.rows(id, seconds, WIDTH)).half()
    torch.save(values, folder / f"{id}.pth.tar")


def write_texts(folder, id, texts, times):
    """Write the vectors of a video's texts as `extract_textualfeature.py` does."""
    folder.mkdir(parents=True, exist_ok=True)
    told = {"vid": id, "start": [s for s, _ in times], "end": [e for _, e in times]}
    torch.save(told | {"text": texts, "features": text_rows(texts)}, folder / f"{id}.pth")


def write_corpus(folder):
    """Write all of the files."""
    features = folder / "internvideo" / "part"
    for id, (seconds, marked) in HTM_ALIGN.items():
        write_video(features, id, seconds)
        texts = [text for *_, text in marked]
        write_texts(folder / "htm_align_text", id, texts, [(s, e) for _, s, e, _ in marked])
    tree = {id: marked for id, (_, marked) in HTM_ALIGN.items()}
    (folder / "htm_align.json").write_text(json.dumps(tree))

    (folder / "htstep").mkdir(exist_ok=True)
    for id, (seconds, lines) in HT_STEP.items():
        write_video(features, id, seconds)
        write_texts(folder / "htstep_text", id, lines, [(0, 0)] * len(lines))
    asked = {id: {"step_headline": lines} for id, (_, lines) in HT_STEP.items()}
    (folder / "htstep" / "htm_test_input_headline.json").write_text(json.dumps(asked))

    _write_crosstask(folder, features)

    for id, (seconds, told) in WHISPERX.items():
        write_video(features, id, seconds)
        texts = [text for *_, text in told]
        write_texts(folder / "whisperx_text" / "part", id, texts, [(s, e) for s, e, _ in told])


def _write_crosstask(folder, features):
    release = folder / "crosstask_release"
    (release / "annotations").mkdir(parents=True, exist_ok=True)
    blocks = []
    for task, (title, steps) in CROSSTASK_TASKS.items():
        page = "https://www.wikihow.com/x"
        blocks.append(f"{task}\n{title}\n{page}\n{len(steps)}\n{','.join(steps)}\n")
    (release / "tasks_primary.txt").write_text("\n".join(blocks) + "\n")
    with open(release / "videos.csv", "w", newline="") as file:
        for id, (task, seconds, marked) in CROSSTASK.items():
            csv.writer(file).writerow([task, id, f"https://www.youtube.com/watch?v={id}"])
            write_video(features, id, seconds)
            steps = CROSSTASK_TASKS[task][1]
            write_texts(folder / "crosstask_text", id, steps, [(0, 0)] * len(steps))
            lines = "".join(f"{step},{start},{end}\n" for step, start, end in marked)
            (release / "annotations" / f"{task}_{id}.csv").write_text(lines)
    (release / "videos_val.csv").write_text("")
