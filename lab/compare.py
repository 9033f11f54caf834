"""TaskComparison of videos: how much of a left-out video the procedure of the others covers.

    python lab/compare.py NARRATION.json.gz
    python lab/compare.py youcookii_annotations_trainval.json --dishes 60
    python lab/compare.py COIN.json.gz --tasks
    python lab/compare.py CROSSTASK_VIDEOS.json.gz --headlines CROSSTASK_TASKS.json.gz

The first file is {id: {title: dish, steps: [{span, text}]}}. The second is YouCook2's own, whose
recipe types are the dishes. From each dish of at least three videos, each video is left out once. A
step of it is covered where a step of the procedure, or of the other video, does the same. By
`meaning` this is a cosine of MiniLM of at least .6. By `words` they share at least half of the
smaller one's content words. Pairs of its steps are predicted where both are covered by different
steps that are in the same order there. Steps and pairs that are not covered count as misses.

Arms: the whole graph. The common procedure alone. As many steps of the graph as the single video
has, those of most videos first. Those in one wording each, where the other arms of the graph match
the wordings of all its videos. The last is the single video, which covers most of the others on
average (so it is chosen without the left-out one). Scores are means over a dish's videos, then over
dishes, with a bootstrap interval over dishes.

The third reads {id: {class, steps: [{label}]}}, where every step is called by its label in the
task's list. The labels that at least half of a task's videos do (20 videos at most) are the truth
for the common steps. Printed are recall and precision of the common procedure, and the share of
steps that are in a group with another label. Also in how many pairs of common labels the order is
that of most videos, and that of the task's list. CrossTask's videos.json.gz has numbers for labels,
which --headlines tasks.json.gz turns into the headlines of the task's wikiHow article.
"""

import argparse
import gzip
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from stepline.compare.procedure import ProcedureStep, TaskComparison, compare
from stepline.compare.settings import CompareSettings
from stepline.records import Matrix, Record, Step, Video
from stepline.text import embed
from stepline.writing.quantities import STOP_WORDS, stem, tokens

Dishes: TypeAlias = dict[str, list[list[str]]]  # dish -> the steps of each video
Coverage: TypeAlias = Callable[[Sequence[str], Sequence[str]], Matrix]
Scores: TypeAlias = dict[str, float]

COVERING_COSINE = 0.6  # from which two steps do the same, by meaning
COVERING_WORDS = 0.5  # share of the smaller one's content words
MIN_VIDEOS = 3  # of a dish: one is left out, two are compared
MIN_TASK_VIDEOS = 10  # of a task of COIN
MAX_TASK_VIDEOS = 20  # of it that are compared
BOOTSTRAP_DRAWS = 2000  # of the bootstrap over dishes
BOOTSTRAP_SEED = 7
NO_FLOOR = CompareSettings(video_likeness=0.0)


def read_dishes(path: Path, least: int = MIN_VIDEOS) -> Dishes:
    """Return the steps of the videos of each dish that has at least that many of them."""
    data = path.read_bytes()
    if path.suffix == ".gz":
        data = gzip.decompress(data)
    tree = json.loads(data)
    dishes: Dishes = defaultdict(list)
    if "database" in tree:
        for video in tree["database"].values():
            texts = [row["sentence"] for row in video["annotations"]]
            dishes[str(video["recipe_type"])].append(texts)
    else:
        for video in tree.values():
            texts = [step["text"] for step in video["steps"]]
            dishes[video["title"]].append(texts)
    enough: Dishes = {}
    for dish, videos in sorted(dishes.items()):
        with_steps = [texts for texts in videos if texts]
        if len(with_steps) >= least:
            enough[dish] = with_steps
    return enough


class CachedVectors:
    """Vectors of texts, each embedded once."""

    def __init__(self, texts: Sequence[str]) -> None:
        distinct = list(dict.fromkeys(texts))
        self._row_of = {text: row for row, text in enumerate(distinct)}
        self._vectors = embed(distinct)

    def __call__(self, texts: Sequence[str]) -> Matrix:
        """Return the vectors of known texts, (N, D)."""
        return self._vectors[[self._row_of[text] for text in texts]]


def content_words(text: str) -> set[str]:
    """Return the stems of the words of meaning."""
    words = [word for word in tokens(text) if word.isalpha()]
    return {stem(word) for word in words if word not in STOP_WORDS}


def shared_words(texts: Sequence[str], others: Sequence[str]) -> Matrix:
    """Return the share of the smaller text's content words that both hold, (N, M)."""
    shares = np.zeros((len(texts), len(others)), dtype=np.float32)
    other_words = [content_words(other) for other in others]
    for row, text in enumerate(texts):
        words = content_words(text)
        for column, other in enumerate(other_words):
            smaller = max(1, min(len(words), len(other)))
            shares[row, column] = len(words & other) / smaller
    return shares


def graph_likeness(
    texts: Sequence[str], steps: Sequence[ProcedureStep], likeness: Coverage
) -> Matrix:
    """Return how like each text is to the most similar wording of each step, (K, N)."""
    columns = []
    for step in steps:
        wordings = [occurrence.text for occurrence in step.occurrences]
        columns.append(likeness(texts, wordings).max(axis=1))
    return np.stack(columns, axis=1)


def score(matches: Matrix, floor: float, precedes: Callable[[int, int], bool]) -> Scores:
    """Return the shares of steps covered and of pairs predicted.

    matches: (K, N) likeness of steps and of what covers them. precedes: whether one of the N is
    done before another.
    """
    count = len(matches)
    # What covers each step that is covered, in their order
    covering = [int(row.argmax()) for row in matches if row.max() >= floor]
    right = 0
    decided = 0
    for first, second in combinations(covering, 2):
        if first != second:
            decided += 1
            right += precedes(first, second)
    pairs = count * (count - 1) / 2
    return {
        "covered": len(covering) / count,
        "pairs": right / pairs if pairs else np.nan,
        "decided right": right / decided if decided else np.nan,
    }


def graph_order(comparison: TaskComparison, steps: Sequence[ProcedureStep]) -> Callable[..., bool]:
    """Return whether one step comes before another: by most videos, else by their places."""
    before = {(order.first, order.then) for order in comparison.orders}

    def precedes(first: int, second: int) -> bool:
        first_id = steps[first].id
        second_id = steps[second].id
        if (first_id, second_id) in before:
            return True
        if (second_id, first_id) in before:
            return False
        return ids.index(first_id) < ids.index(second_id)

    ids = [step.id for step in comparison.steps]
    return precedes


def best_single(videos: Sequence[Sequence[str]], likeness: Coverage, floor: float) -> int:
    """Return the number of the video that covers the most of the others on average."""
    shares = []
    for candidate in videos:
        covered = []
        for other in videos:
            if other is not candidate:
                best = likeness(other, candidate).max(axis=1)
                covered.append((best >= floor).mean())
        shares.append(np.mean(covered))
    return int(np.argmax(shares))


def leave_one_out(
    videos: Sequence[Sequence[str]], vectors: CachedVectors, likeness: Coverage, floor: float
) -> dict[str, dict[str, float]]:
    """Return the mean scores of each arm over the videos of a dish, left out in turn."""
    rows = defaultdict(list)
    for number, texts in enumerate(videos):
        others = [video for row, video in enumerate(videos) if row != number]
        comparison = compare_steps(others, vectors)
        single = others[best_single(others, likeness, floor)]
        by_videos = sorted(comparison.steps, key=lambda step: -step.videos)
        short_ids = {step.id for step in by_videos[: len(single)]}
        short = [step for step in comparison.steps if step.id in short_ids]
        arms = {
            "graph": list(comparison.steps),
            "common procedure": list(comparison.common_steps),
            "graph, as short": short,
            "graph, as short, one wording": short,
        }
        for arm, steps in arms.items():
            scores = {"covered": 0.0, "pairs": 0.0, "decided right": np.nan}
            if arm.endswith("one wording"):
                matches = likeness(texts, [step.text for step in steps])
                scores = score(matches, floor, graph_order(comparison, steps))
            elif steps:
                matches = graph_likeness(texts, steps, likeness)
                scores = score(matches, floor, graph_order(comparison, steps))
            rows[arm].append(scores | {"steps": len(steps)})
        scores = score(likeness(texts, single), floor, lambda first, second: first < second)
        rows["best single video"].append(scores | {"steps": len(single)})
    means = {}
    for arm, scores_of_arm in rows.items():
        names = scores_of_arm[0]
        means[arm] = {name: nan_mean([row[name] for row in scores_of_arm]) for name in names}
    return means


def compare_steps(videos: Sequence[Sequence[str]], vectors: CachedVectors) -> TaskComparison:
    """Return the comparison of videos by their steps alone."""
    records = [make_record(number, texts) for number, texts in enumerate(videos)]
    return compare(records, NO_FLOOR, embedder=vectors)


def make_record(number: int, texts: Sequence[str]) -> Record:
    """Return a record that has steps alone."""
    steps = [Step(id=str(row), text=text) for row, text in enumerate(texts)]
    id = f"v{number}"
    return Record(id=id, video=Video(id=id), steps=tuple(steps))


def nan_mean(values: Sequence[float]) -> float:
    """Return the mean of what is known. NaN where nothing is."""
    numbers = [value for value in values if not np.isnan(value)]
    return float(np.mean(numbers)) if numbers else float("nan")


def interval(values: Sequence[float]) -> str:
    """Return the mean and its 95 % interval over dishes."""
    numbers = np.array([value for value in values if not np.isnan(value)])
    rng = np.random.default_rng(BOOTSTRAP_SEED)
    count = len(numbers)
    draws = rng.integers(count, size=(BOOTSTRAP_DRAWS, count))
    low, high = np.percentile(numbers[draws].mean(axis=1), [2.5, 97.5])
    return f"{numbers.mean():.3f} [{low:.3f}, {high:.3f}]"


def task_scores(task: "Task", vectors: CachedVectors) -> Scores:
    """Return how well the common steps of a task and their order are found."""
    videos = task.videos
    comparison = compare_steps(videos, vectors)
    counts: Counter[str] = Counter()
    for labels in videos:
        counts.update(set(labels))
    least = max(2, len(videos) / 2)
    common = {label for label, count in counts.items() if count >= least}
    procedure = [step.text for step in comparison.common_steps]
    mixed = []
    for step in comparison.steps:
        labels = [occurrence.text for occurrence in step.occurrences]
        usual = Counter(labels).most_common(1)[0][0]
        mixed += [label != usual for label in labels]
    right = []
    as_listed = []
    common_texts = [text for text in procedure if text in common]
    for first, second in combinations(common_texts, 2):
        if first == second:
            continue
        as_listed.append(task.places[first] < task.places[second])
        both = [labels for labels in videos if first in labels and second in labels]
        before = sum(labels.index(first) < labels.index(second) for labels in both)
        if before * 2 != len(both):
            right.append(before * 2 > len(both))
    recall = np.nan
    if common:
        recall = len(common & set(procedure)) / len(common)
    return {
        "common steps": len(common),
        "recall": recall,
        "precision": nan_mean([text in common for text in procedure]),
        "mixed": float(np.mean(mixed)),
        "order": nan_mean(right),
        "order of the list": nan_mean(as_listed),
    }


@dataclass
class Task:
    """videos: the labels of each one's steps, in order. places: of the labels in the task's
    list."""

    videos: list[list[str]]
    places: dict[str, int]


def read_packed(path: Path) -> dict[str, Any]:
    """Return what a packed JSON file holds."""
    tree: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()))
    return tree


def read_coin(path: Path) -> dict[str, Task]:
    """Return the tasks of COIN."""
    tasks: dict[str, Task] = defaultdict(lambda: Task([], {}))
    for video in read_packed(path).values():
        task = tasks[video["class"]]
        for step in video["steps"]:
            task.places.setdefault(step["label"], int(step["step_id"]))
        task.videos.append([step["label"] for step in video["steps"]])
    return tasks


def read_crosstask(path: Path, headlines: Path) -> dict[str, Task]:
    """Return the tasks of CrossTask, whose steps are called by the headlines of their article.

    A step without a headline is left out. Steps of one headline are one.
    """
    named_tasks = read_packed(headlines)
    tasks: dict[str, Task] = defaultdict(lambda: Task([], {}))
    for video in read_packed(path).values():
        article = named_tasks[video["task_id"]]
        task = tasks[article["task_full_name"]]
        labels = []
        for step in video["steps"]:
            place = step["step_id"] - 1
            rows = article["step2headline"][place]
            if rows == "_":
                continue
            # The rows count from 0.
            lines = [article["headlines"][int(row)] for row in rows.split("/")]
            label = " ".join(lines)
            task.places[label] = min(place, task.places.get(label, place))
            labels.append(label)
        task.videos.append(labels)
    return tasks


def print_tasks(tasks: dict[str, Task], count: int | None) -> None:
    """Print the means over tasks with their intervals."""
    chosen_tasks = []
    for name in sorted(tasks):
        videos = list(filter(None, tasks[name].videos))[:MAX_TASK_VIDEOS]
        if len(videos) >= MIN_TASK_VIDEOS:
            chosen_tasks.append(Task(videos, tasks[name].places))
    chosen_tasks = chosen_tasks[:count]
    texts = [text for task in chosen_tasks for labels in task.videos for text in labels]
    vectors = CachedVectors(texts)
    rows = [task_scores(task, vectors) for task in chosen_tasks]
    count_of_videos = sum(len(task.videos) for task in chosen_tasks)
    print(f"{len(rows)} tasks, {count_of_videos} videos, {len(texts)} steps")
    for name in rows[0]:
        print(f"  {name} {interval([row[name] for row in rows])}")


def print_table(dishes: Dishes, vectors: CachedVectors, likeness: Coverage, floor: float) -> None:
    """Print the arms with their intervals, and each one's difference from the single video."""
    results = [leave_one_out(videos, vectors, likeness, floor) for videos in dishes.values()]
    single = [result["best single video"] for result in results]
    for arm in results[0]:
        cells = []
        for name in results[0][arm]:
            values = [result[arm][name] for result in results]
            cells.append(f"{name} {interval(values)}")
            if name in ("covered", "pairs") and arm != "best single video":
                gains = [value - row[name] for value, row in zip(values, single, strict=True)]
                cells.append(f"gain {interval(gains)}")
        print(f"  {arm}: {'; '.join(cells)}")


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("annotations", type=Path)
    parser.add_argument("--dishes", type=int, help="only that many")
    parser.add_argument("--tasks", action="store_true", help="the file is COIN's: labels, no words")
    parser.add_argument("--headlines", type=Path, help="CrossTask's tasks.json.gz")
    options = parser.parse_args()
    if options.headlines is not None:
        tasks = read_crosstask(options.annotations, options.headlines)
        print_tasks(tasks, options.dishes)
        return
    if options.tasks:
        print_tasks(read_coin(options.annotations), options.dishes)
        return
    all_dishes = read_dishes(options.annotations)
    dishes = dict(list(all_dishes.items())[: options.dishes])
    texts = [text for videos in dishes.values() for video in videos for text in video]
    vectors = CachedVectors(texts)
    print(f"{len(dishes)} dishes, {sum(map(len, dishes.values()))} videos, {len(texts)} steps")
    print("by meaning")

    def cosines(texts: Sequence[str], others: Sequence[str]) -> Matrix:
        return vectors(texts) @ vectors(others).T

    print_table(dishes, vectors, cosines, COVERING_COSINE)
    print("by words")
    print_table(dishes, vectors, shared_words, COVERING_WORDS)


if __name__ == "__main__":
    main()
