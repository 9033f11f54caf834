"""Grounding while the video runs, against lag: python benchmarks/online.py TABLE --cache DIR
[--clips CLIPS]

    real     written steps of real clips (benchmarks/real_clips.py --cache), each known when its sentences end
    drawn    the scripts' own steps of drawn videos (benchmarks/grounding.py --cache)
    recipes  the current line, of drawn videos (--cache) and of the simulated world
    crosstask  average R@1 as CrossTask has it: its videos' own segments, seen by the simulated world

A step's answer at lag L is what `OnlineGrounder` says of it L seconds after its last word. `end` is
`ground`. `now`: in how many of the seconds that show a step the most likely one, as reported L
seconds later, is shown. Next to it the step that was said last by then. `recipes`: in how many of
the seconds that show a line it is the one reported. Orders of other videos are, of CrossTask, those
of 30 per task. --count others of the task are asked. Intervals: bootstrap over videos.
"""

import argparse
import functools
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import grounding
import numpy as np
import numpy.typing as npt
import real_clips
from baseline_data import TaskVideo, crosstask

from research.drawn_videos import true_record
from research.simulate import SHORT, SimulatedVideo, make_world, simulate
from research.simulate.scene import Timeline
from research.simulate.tasks import Task
from stepline.evaluate.crosstask import TRAIN_VIDEOS, best_rows, count_hits, rows_shown
from stepline.grounding.correspondence import load_weights
from stepline.grounding.evidence import TimedText, similarity
from stepline.grounding.ground import ground
from stepline.grounding.online import OnlineGrounder
from stepline.grounding.recipe_filter import RecipeFilter, line_evidence, order_from_videos
from stepline.grounding.settings import GroundSettings
from stepline.grounding.speech import steps_from_texts
from stepline.records import FeatureSequence, Matrix, Span, Step, Transcript
from stepline.vision import Activity

RESULTS = Path(__file__).resolve().parent / "results"
LAGS: tuple[float, ...] = (0, 2, 5, 10, 30, math.inf)  # seconds; inf = the end

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class RunningVideo:
    """All that a video says and shows. `known`: seconds at which each step's last word has been
    said, (K,)."""

    steps: tuple[Step, ...]
    transcript: Transcript
    duration: float
    features: FeatureSequence | None
    activity: Activity | None
    vectors: Matrix | None
    sentence_vectors: Matrix | None
    on_screen: Sequence[TimedText]

    @property
    def known(self) -> list[float]:
        """Return when each step is known: when the last of its sentences has ended."""
        ends = np.maximum.accumulate([0.0, *(s.span.end for s in self.transcript.sentences)])
        return [
            max(step.said.end if step.said else 0.0, float(ends[max(step.sources, default=-1) + 1]))
            for step in self.steps
        ]


@dataclass(frozen=True)
class LagAnswers:
    """steps: as answered so long after their words. now: (K, T) P(now) of each second so long after
    it."""

    steps: tuple[Step, ...]
    now: Array


def answers_by_lag(video: RunningVideo) -> dict[float, LagAnswers]:
    """Return what is answered at each lag, from one run through the video."""
    known, seconds = video.known, math.ceil(video.duration)
    grounder = OnlineGrounder()
    steps: dict[float, list[Step | None]] = {lag: [None] * len(video.steps) for lag in LAGS}
    now = {lag: np.zeros((len(video.steps), seconds)) for lag in LAGS}
    for second in range(1, seconds + 1):
        until = min(float(second), video.duration)
        rows = [k for k, time in enumerate(known) if time <= second]
        last = max((n for k in rows for n in video.steps[k].sources), default=-1)
        heard = [
            n for n, s in enumerate(video.transcript.sentences) if n <= last or s.span.end <= second
        ]
        sentences = video.transcript.sentences[: max(heard, default=-1) + 1]
        grounder.update_steps(
            [video.steps[k] for k in rows],
            video.transcript.model_copy(update={"sentences": sentences}),
            vectors=None if video.vectors is None else video.vectors[rows],
            sentence_vectors=None
            if video.sentence_vectors is None
            else video.sentence_vectors[: len(sentences)],
        )
        grounder.update_pictures(
            until, features=video.features, activity=video.activity, on_screen=video.on_screen
        )
        for lag in LAGS[:-1]:
            if second - 1 - lag >= 0:
                column = int(second - 1 - lag)
                now[lag][rows, column] = grounder.state(column).now
            for k, step in zip(rows, grounder.steps, strict=True):
                if steps[lag][k] is None and second >= known[k] + lag:
                    steps[lag][k] = step
    grounder.update_steps(
        video.steps,
        video.transcript,
        vectors=video.vectors,
        sentence_vectors=video.sentence_vectors,
    )
    end = grounder.finish(video.duration)
    now[math.inf] = end.alignment.scores.astype(np.float64)
    for lag in LAGS[:-1]:  # what no second was left for
        late = max(0, seconds - int(lag))
        now[lag][:, late:] = now[math.inf][:, late:]
    return {
        lag: LagAnswers(tuple(a or b for a, b in zip(steps[lag], end.steps, strict=True)), now[lag])
        for lag in LAGS
    }


def last_said(video: RunningVideo, lag: float) -> Array:
    """Return (K, T): 1 at the step whose words ended last, `lag` seconds later. At the end, by the
    second itself."""
    known, seconds = np.array(video.known), math.ceil(video.duration)
    told = np.zeros((len(known), seconds))
    for t in range(seconds):
        by = np.where(known <= t + 1 + (0 if math.isinf(lag) else lag), known, -1.0)
        if len(by) and by.max() >= 0:
            told[int(by.argmax()), t] = 1.0
    return told


def seconds_right(now: Array, shown: npt.NDArray[np.bool_], name: str) -> dict[str, int]:
    """Return in how many of the seconds that show a step the most likely one is shown. now, shown:
    (K, T)."""
    seconds = np.flatnonzero(shown.any(axis=0))
    told = seconds[now[:, seconds].max(axis=0) > 0] if len(now) else seconds[:0]
    return {name: int(shown[now[:, told].argmax(axis=0), told].sum()), f"{name} of": len(seconds)}


def shown_seconds(spans: Sequence[Sequence[Span]], seconds: int) -> npt.NDArray[np.bool_]:
    """Return (K, T): whether the middle of a second is in a span of the step."""
    return np.array(
        [[any(t + 0.5 in span for span in of_step) for t in range(seconds)] for of_step in spans]
    ).reshape(len(spans), seconds)


def real_rows(clips: Path, cache: Path) -> dict[float, list[dict[str, int]]]:
    """Return the figures of each clip at each lag."""
    labels = json.loads((clips / "labels.json").read_text())
    truths = {
        name: truth
        for name, truth in labels.items()
        if any(step.get("spoken") for step in truth["steps"])
    }
    rows: dict[float, list[dict[str, int]]] = {lag: [] for lag in LAGS}
    for name, record in real_clips.records(clips, list(truths), cache).items():
        seen = real_clips.pictures(clips / name, cache)
        transcript = record.transcript or Transcript()
        steps = tuple(
            Step(id=s.id, text=s.text, kind=s.kind, said=s.said, sources=s.sources)
            for s in record.steps
        )
        assert seen.backbone is not None
        assert seen.cues is not None
        topic = seen.backbone.name in load_weights().mean_pictures
        video = RunningVideo(
            steps,
            transcript,
            record.video.duration or 0.0,
            seen.features,
            seen.activity,
            seen.backbone.encode_texts([step.text for step in steps]),
            seen.backbone.encode_texts([s.text for s in transcript.sentences]) if topic else None,
            seen.cues.lines,
        )
        pairs = real_clips.matched(truths[name]["steps"], steps)
        of_step = {
            step.id: [Span(*map(float, pair)) for pair in label.get("shown") or ()]
            for label, step in pairs
        }
        shown = shown_seconds(
            [of_step.get(step.id, []) for step in steps], math.ceil(video.duration)
        )
        for lag, answer in answers_by_lag(video).items():
            row = real_clips.counts(truths[name], record.model_copy(update={"steps": answer.steps}))
            row |= seconds_right(answer.now, shown, "now")
            rows[lag].append(row | seconds_right(last_said(video, lag), shown, "now, last said"))
        print(name, flush=True)
    return rows


def drawn_rows(cache: Path, seeds: Sequence[int]) -> dict[float, list[dict[str, int]]]:
    """Return the figures of each drawn video at each lag."""
    rows: dict[float, list[dict[str, int]]] = {lag: [] for lag in LAGS}
    for seed in range(*seeds):
        path, script = grounding.rendered(seed, cache)
        seen, record = (
            grounding.seen(path, [step.text for step in script.steps]),
            true_record(script),
        )
        steps = tuple(
            s.model_copy(update={"spans": (), "at": None, "status": None}) for s in record.reference
        )
        video = RunningVideo(
            steps,
            record.transcript or Transcript(),
            script.duration,
            seen.features,
            seen.activity,
            seen.vectors,
            None,
            (),
        )
        shown = shown_seconds([true.spans for true in record.reference], math.ceil(script.duration))
        for lag, answer in answers_by_lag(video).items():
            pairs = list(zip(record.reference, answer.steps, strict=True))
            places = [
                any(step.at is not None and step.at in s for s in true.spans)
                for true, step in pairs
                if true.spans
            ]
            row = {
                "verdict": sum(
                    bool(true.spans) == (step.status == "shown") for true, step in pairs
                ),
                "verdict of": len(pairs),
                "at, stepline": sum(places),
                "at, stepline of": len(places),
            }
            row |= seconds_right(answer.now, shown, "now")
            rows[lag].append(row | seconds_right(last_said(video, lag), shown, "now, last said"))
        print(seed, flush=True)
    return rows


@dataclass(frozen=True)
class FollowedVideo:
    """A recipe's video: lines as known at second t (`lines_at`), features (T, D), vectors (K, D),
    the truth (K, T)."""

    lines_at: Callable[[float], list[Step]]
    features: FeatureSequence
    vectors: Matrix
    shown: npt.NDArray[np.bool_]
    before: Array | None
    activity: Activity | None = None
    usual: tuple[float, float] | None = None


def current_line(video: FollowedVideo) -> dict[str, int]:
    """Return in how many of the seconds that show a line each method reports it."""
    count, seconds = video.shown.shape
    cosine = np.nan_to_num(similarity(video.features, video.vectors, seconds))
    last = np.zeros((count, seconds))
    for t in range(seconds):
        ends = [line.said.end if line.said else -1.0 for line in video.lines_at(t + 1.0)]
        if max(ends) >= 0:
            last[int(np.argmax(ends)), t] = 1.0
    evenly = np.minimum((np.arange(seconds) + 0.5) / seconds * count, count - 1).astype(int)
    offline = ground(
        video.lines_at(math.inf),
        duration=float(seconds),
        features=video.features,
        step_vectors=video.vectors,
        activity=video.activity,
        written=False,
    ).alignment.scores
    told = {
        "last said": last,
        "order alone (evenly, with the length known)": (evenly == np.arange(count)[:, None]).astype(
            float
        ),
        "pictures alone": cosine - cosine.min() + 1e-6,
        "`ground`, offline": offline.astype(np.float64),
    }
    orders = {"the order of the lines": None, "no order": np.full((count, count), 0.5)}
    orders |= {} if video.before is None else {"the order of other videos": video.before}
    for name, before in orders.items():
        followed = follow(video, before)
        told |= {f"filter, {name}, lag {lag} s": now for lag, now in followed.items()}
    row: dict[str, int] = {}
    for name, now in told.items():
        row |= seconds_right(now, video.shown, name)
    return row


def follow(video: FollowedVideo, before: Array | None) -> dict[int, Array]:
    """Return P(line shown), (K, T), as reported immediately and ten seconds later."""
    count, seconds = video.shown.shape
    grounder = OnlineGrounder(before=before, usual=video.usual, written=False)
    found = {lag: np.zeros((count, seconds)) for lag in (0, 10)}
    for t in range(seconds):
        grounder.update_steps(video.lines_at(t + 1.0), vectors=video.vectors)
        grounder.update_pictures(t + 1.0, features=video.features, activity=video.activity)
        for lag, now in found.items():
            if t >= lag:
                now[:, t - lag] = grounder.follow(lag).now
    for t in range(max(0, seconds - 10), seconds):
        found[10][:, t] = grounder.follow(seconds - 1 - t).now
    return found


def lines_known(lines: Sequence[Step]) -> Callable[[float], list[Step]]:
    """Return the lines as they are known by a second: said only if their words have ended."""
    return lambda second: [
        line
        if line.said is None or line.said.end <= second
        else line.model_copy(update={"said": None, "sources": ()})
        for line in lines
    ]


def drawn_recipes(cache: Path, seeds: Sequence[int]) -> list[dict[str, int]]:
    """Return the counts of each drawn video. Its steps are the lines."""
    rows = []
    for seed in range(*seeds):
        path, script = grounding.rendered(seed, cache)
        seen, record = (
            grounding.seen(path, [step.text for step in script.steps]),
            true_record(script),
        )
        lines = [
            s.model_copy(update={"spans": (), "at": None, "status": None, "sources": ()})
            for s in record.reference
        ]
        shown = shown_seconds([true.spans for true in record.reference], math.ceil(script.duration))
        rows.append(
            current_line(
                FollowedVideo(
                    lines_known(lines), seen.features, seen.vectors, shown, None, seen.activity
                )
            )
        )
        print("drawn", seed, flush=True)
    return rows


def world_recipes(seed: int, count: int) -> list[dict[str, int]]:
    """Return the counts of the first held-out videos of a world. Orders and usual likeness are of
    the others."""
    simulation = simulate(seed)
    train = [v for v in simulation.videos if v.subset == "train"]
    usual = usual_similarity([(v.features(), v.vectors("recipe")) for v in train])
    rows = []
    for video in [v for v in simulation.videos if v.subset != "train"][:count]:
        place = {int(step): row for row, step in enumerate(video.recipe.step)}
        orders = [
            [place[int(s)] for s in v.timeline.steps]
            for v in train
            if v.task.number == video.task.number
        ]
        lines = [Step(id=str(n), text=text) for n, text in enumerate(video.record.recipe)]

        def lines_at(
            second: float, video: SimulatedVideo = video, lines: list[Step] = lines
        ) -> list[Step]:
            assert video.record.transcript is not None
            heard = [s.span.end <= second for s in video.record.transcript.sentences]
            kept = int(np.argmin([*heard, False]))
            sentences = video.record.transcript.sentences[:kept]
            told = video.record.transcript.model_copy(update={"sentences": sentences})
            said = steps_from_texts(
                [line.text for line in lines],
                told,
                video.embeddings("narration")[:kept],
                video.embeddings("recipe"),
            )
            return [step.model_copy(update={"sources": ()}) for step in said]

        before = order_from_videos(orders, len(lines))
        rows.append(
            current_line(
                FollowedVideo(
                    functools.cache(lines_at),
                    video.features(),
                    video.vectors("recipe"),
                    video.shown("recipe"),
                    before,
                    usual=usual,
                )
            )
        )
        print("world", video.id, flush=True)
    return rows


def usual_similarity(videos: Sequence[tuple[FeatureSequence, Matrix]]) -> tuple[float, float]:
    """Return the mean and the spread of the cosine of lines and seconds of videos."""
    cosines = [similarity(f, vectors, len(f.values)) for f, vectors in videos]
    return float(np.mean([c.mean() for c in cosines])), float(np.mean([c.std() for c in cosines]))


def print_recipes(cache: Path, seeds: Sequence[int], count: int) -> dict[str, Any]:
    """Print one row per method."""
    tables = {
        "drawn": real_clips.table(drawn_recipes(cache, seeds)),
        "world": real_clips.table(world_recipes(0, count)),
    }
    print("| | drawn videos | simulated world |\n|---|---|---|")
    for name in tables["world"]:
        cells = [tables[kind].get(name) for kind in tables]
        print(
            f"| {name} | "
            + " | ".join("" if c is None else f"{c[0]:.3f} [{c[1]:.3f}, {c[2]:.3f}]" for c in cells)
            + " |"
        )
    return tables


def crosstask_world(videos: Sequence[TaskVideo], seed: int = 0) -> dict[str, SimulatedVideo]:
    """Return videos of a world by id whose lines are shown when CrossTask's steps are. Tasks of as
    many lines."""
    world = make_world(seed, SHORT)
    names, rng = sorted({video.task for video in videos}), np.random.default_rng(seed)
    counts, kinds = {video.task: video.count for video in videos}, SHORT.tasks
    tasks = []
    for number, name in enumerate(names):
        objects = rng.choice(kinds.objects, kinds.objects_per_task, replace=False)
        pairs = rng.choice(kinds.actions * len(objects), counts[name], replace=False)
        order = np.arange(counts[name])
        tasks.append(Task(number, pairs // len(objects), objects[pairs % len(objects)], order))
    wordings = tuple(np.zeros(len(task), dtype=np.int64) for task in tasks)
    world = replace(world, domain=replace(world.domain, tasks=tuple(tasks)), wordings=wordings)
    found = {}
    for index, video in enumerate(videos):
        first = np.argsort(video.segments[:, 0], kind="stable")
        steps = np.array(video.steps)[first]
        again = np.array([step in steps[:place] for place, step in enumerate(steps)], dtype=bool)
        timeline = Timeline(video.duration, video.segments[first], steps, again)
        found[video.id] = SimulatedVideo(
            world, index, video.id, "train", tasks[names.index(video.task)], timeline
        )
    return found


def print_crosstask(most: int) -> dict[str, Any]:
    """Print average R@1 of each method, over `most` of the test videos of every task. 30 others a
    task are known."""
    videos, rng = crosstask(), np.random.default_rng(0)
    simulated = crosstask_world(videos)
    by_task: dict[str, list[TaskVideo]] = {}
    for video in videos:
        by_task.setdefault(video.task, []).append(video)
    told: dict[str, dict[str, list[Array]]] = {}  # method -> task -> (hits, steps) of each video
    for task, of_task in sorted(by_task.items()):
        drawn = [of_task[n] for n in rng.permutation(len(of_task))]
        known, asked = drawn[:TRAIN_VIDEOS], drawn[TRAIN_VIDEOS : TRAIN_VIDEOS + most]
        orders = [
            [video.steps[n] for n in np.argsort(video.segments[:, 0], kind="stable")]
            for video in known
        ]
        before = order_from_videos(orders, of_task[0].count)
        pairs = [
            (simulated[video.id].features(), simulated[video.id].vectors("recipe"))
            for video in known
        ]
        usual = usual_similarity(pairs)
        for video in asked:
            features, vectors = (
                simulated[video.id].features(),
                simulated[video.id].vectors("recipe"),
            )
            shown = rows_shown(
                [(a, b) for a, b in video.segments], video.steps, len(features.values), video.count
            )
            for name, now in crosstask_methods(features, vectors, before, usual).items():
                hits = np.array(count_hits(best_rows(-now.T).astype(np.float64), shown))
                told.setdefault(name, {}).setdefault(task, []).append(hits)
        print(task, flush=True)
    result = {}
    print("| method | online | training-free | average R@1 |\n|---|---|---|---|")
    for name, tasks in told.items():
        draws = [recall(tasks, rng) for _ in range(real_clips.DRAWS)]
        low, high = np.percentile(draws, [2.5, 97.5])
        result[name] = [round(100 * float(x), 1) for x in (recall(tasks), low, high)]
        online, free = "offline" not in name, "other videos" not in name
        cell = "{} [{}, {}]".format(*result[name])
        print(f"| {name} | {'yes' if online else 'no'} | {'yes' if free else 'no'} | {cell} |")
    return result


def recall(tasks: dict[str, list[Array]], rng: np.random.Generator | None = None) -> float:
    """Return recall averaged over tasks, of the videos or of as many drawn from them."""
    means = []
    for rows in tasks.values():
        table = np.array(rows)
        if rng is not None:
            table = table[rng.integers(0, len(table), len(table))]
        means.append(table[:, 0].sum() / max(1.0, table[:, 1].sum()))
    return float(np.mean(means))


def crosstask_methods(
    features: FeatureSequence, vectors: Matrix, before: Array, usual: tuple[float, float]
) -> dict[str, Array]:
    """Return scores (K, T) of each method. No line is spoken of."""
    count, seconds = len(vectors), len(features.values)
    cosine = similarity(features, vectors, seconds)
    lines = [Step(id=str(n), text=str(n)) for n in range(count)]
    offline = ground(
        lines, duration=float(seconds), features=features, step_vectors=vectors, written=False
    )
    at = (np.arange(count) + 0.5) / count * seconds
    found = {
        "order alone, evenly, offline": -np.abs(np.arange(seconds) + 0.5 - at[:, None]),
        "each second's likeness": cosine,
        "`ground`, offline": offline.alignment.scores.astype(np.float64),
    }
    none, settings = np.full((count, count), 0.5), GroundSettings()
    choices = {
        "filter, no order": (none, None),
        "filter, the order of the steps": (None, None),
        "filter, no order, usual likeness of other videos": (none, usual),
        "filter, order and usual likeness of other videos": (before, usual),
    }
    prior, said = np.full((count, seconds), 1 / seconds), np.zeros(count, dtype=bool)
    rate = np.full(count, settings.unsaid_rate)
    for name, (order, likeness) in choices.items():
        recipe, now, late = (
            RecipeFilter(count, settings, before=order, lag=10),
            np.zeros((count, seconds)),
            cosine * 0.0,
        )
        for t in range(seconds):
            seen = cosine[:, : t + 1]
            recipe.update(
                line_evidence(prior[:, : t + 1], seen, said, 0.0, settings, usual=likeness)[:, -1:],
                rate,
            )
            now[:, t] = recipe.state().now
            if t >= 10:
                late[:, t - 10] = recipe.state(10).now
        found |= {name: now, f"{name}, 10 s later": late}
    return found


FIGURES = {
    "found": "found",
    "at, stepline": "R@1",
    "verdict": "verdict",
    "now": "now",
    "now, last said": "last said",
}


def print_lags(rows: dict[float, list[dict[str, int]]]) -> dict[str, Any]:
    """Print one row a lag."""
    result = {
        ("end" if math.isinf(lag) else f"{lag:g}"): real_clips.table(of_lag)
        for lag, of_lag in rows.items()
    }
    names = [key for key in FIGURES if key in result["end"]]
    print(
        "| lag, s | "
        + " | ".join(FIGURES[key] for key in names)
        + " |\n|"
        + "---|" * (len(names) + 1)
    )
    for lag, figures in result.items():
        cells = (f"{v:.3f} [{a:.3f}, {b:.3f}]" for v, a, b, _ in (figures[key] for key in names))
        print(f"| {lag} | " + " | ".join(cells) + " |")
    print("of: " + ", ".join(f"{FIGURES[key]} {result['end'][key][3]}" for key in names))
    return {lag: {key: figures[key] for key in names} for lag, figures in result.items()}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    tables: dict[str, Callable[[argparse.Namespace], dict[str, Any]]] = {
        "real": lambda args: print_lags(real_rows(args.clips, args.cache)),
        "drawn": lambda args: print_lags(drawn_rows(args.cache, args.seeds)),
    }
    tables |= {
        "recipes": lambda args: print_recipes(args.cache, args.seeds, args.count),
        "crosstask": lambda args: print_crosstask(args.count),
    }
    parser.add_argument("table", choices=tables)
    parser.add_argument("--clips", type=Path, help="clips and labels.json, for `real`")
    parser.add_argument("--cache", type=Path, help="records and pictures, or drawn videos")
    parser.add_argument(
        "--seeds",
        type=int,
        nargs=2,
        default=(200, 230),
        help="first drawn video, and one past the last",
    )
    parser.add_argument(
        "--count", type=int, default=10, help="videos of the world, or of each task of CrossTask"
    )
    args = parser.parse_args()
    result = tables[args.table](args)
    path = RESULTS / "online.json"
    known = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(known | {args.table: result}, indent=2) + "\n")


if __name__ == "__main__":
    main()
