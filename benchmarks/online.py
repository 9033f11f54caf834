"""Grounding while the video runs, against lag: python benchmarks/online.py TABLE --cache DIR
[--clips CLIPS]

    real     written steps of real clips (benchmarks/real_clips.py --cache), each known when its sentences end
    drawn    the scripts' own steps of drawn videos (benchmarks/grounding.py --cache)

A step's answer at lag L is what `OnlineGrounder` says of it L seconds after its last word. `end` is
`ground`. `now`: in how many of the seconds that show a step the most likely one, as reported L
seconds later, is shown. Next to it the step that was said last by then. Intervals: bootstrap over videos.
"""

import argparse
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grounding
import numpy as np
import real_clips
from grounding import unplaced
from online_figures import Array, Counts, Flags, interval, one_at_last, seconds_right, shown_seconds

from research.drawn_videos import true_record
from stepline.grounding.correspondence import load_weights
from stepline.grounding.evidence import TimedText
from stepline.grounding.online import OnlineGrounder
from stepline.pipeline.pictures import VisualFeatures
from stepline.records import FeatureSequence, Matrix, Record, Span, Step, Transcript
from stepline.vision import Activity

RESULTS_FOLDER = Path(__file__).resolve().parent / "results"
LAG_SECONDS: tuple[float, ...] = (0, 2, 5, 10, 30, math.inf)  # inf = the end
RUNNING_LAGS = LAG_SECONDS[:-1]

RowsByLag = dict[float, list[Counts]]


@dataclass(frozen=True)
class RunningVideo:
    """All that a video says and shows."""

    steps: tuple[Step, ...]
    transcript: Transcript
    duration: float
    features: FeatureSequence | None
    activity: Activity | None
    vectors: Matrix | None
    sentence_vectors: Matrix | None
    on_screen: Sequence[TimedText]

    @property
    def seconds(self) -> int:
        """Return the seconds that the video has begun."""
        return math.ceil(self.duration)

    @property
    def known_from(self) -> list[float]:
        """Return when each step is known: when the last of its sentences has ended."""
        ends = [0.0]
        for sentence in self.transcript.sentences:
            ends.append(max(ends[-1], sentence.span.end))
        times = []
        for step in self.steps:
            words_end = step.said.end if step.said else 0.0
            last_source = max(step.sources, default=-1)
            times.append(max(words_end, float(ends[last_source + 1])))
        return times


@dataclass(frozen=True)
class LagAnswers:
    """steps: as answered that long after their words.

    now: (K, T) P(now) of each second that long after it.
    """

    steps: tuple[Step, ...]
    now: Array


def answers_by_lag(video: RunningVideo) -> dict[float, LagAnswers]:
    """Return what is answered at each lag, from one run through the video."""
    known_from = video.known_from
    seconds = video.seconds
    count = len(video.steps)
    grounder = OnlineGrounder()
    steps: dict[float, list[Step | None]] = {lag: [None] * count for lag in LAG_SECONDS}
    now = {lag: np.zeros((count, seconds)) for lag in LAG_SECONDS}
    for second in range(1, seconds + 1):
        rows = [row for row, time in enumerate(known_from) if time <= second]
        update_grounder(grounder, video, rows, second)
        for lag in RUNNING_LAGS:
            column = int(second - 1 - lag)
            if column >= 0:
                now[lag][rows, column] = grounder.state(column).now
            for row, step in zip(rows, grounder.steps, strict=True):
                if steps[lag][row] is None and second >= known_from[row] + lag:
                    steps[lag][row] = step

    # the whole video, for what no second was left for
    grounder.update_steps(
        video.steps,
        video.transcript,
        vectors=video.vectors,
        sentence_vectors=video.sentence_vectors,
    )
    end = grounder.finish(video.duration)
    now[math.inf] = end.alignment.scores.astype(np.float64)
    for lag in RUNNING_LAGS:
        late = max(0, seconds - int(lag))
        now[lag][:, late:] = now[math.inf][:, late:]
    answers = {}
    for lag in LAG_SECONDS:
        pairs = zip(steps[lag], end.steps, strict=True)
        lag_steps = tuple(step or last_step for step, last_step in pairs)
        answers[lag] = LagAnswers(lag_steps, now[lag])
    return answers


def update_grounder(
    grounder: OnlineGrounder, video: RunningVideo, rows: list[int], second: int
) -> None:
    """Give the grounder what is said and shown by a second. rows: the steps known by then."""
    sources = [source for row in rows for source in video.steps[row].sources]
    count = max(sources, default=-1) + 1
    for number, sentence in enumerate(video.transcript.sentences):
        if sentence.span.end <= second:
            count = max(count, number + 1)
    sentences = video.transcript.sentences[:count]
    vectors = None if video.vectors is None else video.vectors[rows]
    sentence_vectors = video.sentence_vectors
    if sentence_vectors is not None:
        sentence_vectors = sentence_vectors[: len(sentences)]
    grounder.update_steps(
        [video.steps[row] for row in rows],
        video.transcript.model_copy(update={"sentences": sentences}),
        vectors=vectors,
        sentence_vectors=sentence_vectors,
    )
    grounder.update_pictures(
        min(float(second), video.duration),
        features=video.features,
        activity=video.activity,
        on_screen=video.on_screen,
    )


def last_said(video: RunningVideo, lag: float) -> Array:
    """Return (K, T): 1 at the step whose words ended last, `lag` seconds later.

    At the end, by the second itself.
    """
    known_from = np.array(video.known_from)
    answers = np.zeros((len(known_from), video.seconds))
    seconds_later = 0 if math.isinf(lag) else lag
    for second in range(video.seconds):
        until = second + 1 + seconds_later
        ends = np.where(known_from <= until, known_from, -1.0)
        row = one_at_last(ends)
        if row is not None:
            answers[row, second] = 1.0
    return answers


def now_counts(video: RunningVideo, answer: LagAnswers, truth: Flags, lag: float) -> Counts:
    """Return the counts of `now` at a lag, and of the step that was said last by then."""
    row = seconds_right(answer.now, truth, "now")
    return row | seconds_right(last_said(video, lag), truth, "now, last said")


def real_rows(clips: Path, cache: Path) -> RowsByLag:
    """Return the figures of each clip at each lag."""
    truths = {}
    for name, truth in json.loads((clips / "labels.json").read_text()).items():
        if any(step.get("spoken") for step in truth["steps"]):
            truths[name] = truth
    rows: RowsByLag = {lag: [] for lag in LAG_SECONDS}
    for name, record in real_clips.records(clips, list(truths), cache).items():
        visual = real_clips.pictures(clips / name, cache)
        video = running_clip(record, visual)
        label_spans: dict[str, list[Span]] = {}
        for label, step in real_clips.matched(truths[name]["steps"], video.steps):
            pairs = label.get("shown") or ()
            label_spans[step.id] = [Span(float(start), float(end)) for start, end in pairs]
        spans = [label_spans.get(step.id, []) for step in video.steps]
        truth = shown_seconds(spans, video.seconds)
        for lag, answer in answers_by_lag(video).items():
            answered = record.model_copy(update={"steps": answer.steps})
            row = real_clips.counts(truths[name], answered)
            rows[lag].append(row | now_counts(video, answer, truth, lag))
        print(name, flush=True)
    return rows


def running_clip(record: Record, visual: VisualFeatures) -> RunningVideo:
    """Return a clip with its written steps, none of them placed."""
    backbone = visual.backbone
    assert backbone is not None
    assert visual.cues is not None
    transcript = record.transcript or Transcript()
    steps = tuple(real_clips.spoken_step(step) for step in record.steps)
    sentence_vectors = None
    if backbone.name in load_weights().mean_pictures:
        texts = [sentence.text for sentence in transcript.sentences]
        sentence_vectors = backbone.encode_texts(texts)
    return RunningVideo(
        steps=steps,
        transcript=transcript,
        duration=record.video.duration or 0.0,
        features=visual.features,
        activity=visual.activity,
        vectors=backbone.encode_texts([step.text for step in steps]),
        sentence_vectors=sentence_vectors,
        on_screen=visual.cues.lines,
    )


def drawn_rows(cache: Path, seeds: Sequence[int]) -> RowsByLag:
    """Return the figures of each drawn video at each lag."""
    rows: RowsByLag = {lag: [] for lag in LAG_SECONDS}
    for seed in range(*seeds):
        path, script = grounding.rendered(seed, cache)
        pictures = grounding.seen(path, [step.text for step in script.steps])
        record = true_record(script)
        video = RunningVideo(
            steps=tuple(unplaced(step) for step in record.reference),
            transcript=record.transcript or Transcript(),
            duration=script.duration,
            features=pictures.features,
            activity=pictures.activity,
            vectors=pictures.vectors,
            sentence_vectors=None,
            on_screen=(),
        )
        truth = shown_seconds([step.spans for step in record.reference], video.seconds)
        for lag, answer in answers_by_lag(video).items():
            row = drawn_counts(record.reference, answer.steps)
            rows[lag].append(row | now_counts(video, answer, truth, lag))
        print(seed, flush=True)
    return rows


def drawn_counts(reference: Sequence[Step], steps: Sequence[Step]) -> Counts:
    """Return the counts of verdicts and of seconds within true spans."""
    verdicts = []
    hits = []
    for true, step in zip(reference, steps, strict=True):
        is_shown = bool(true.spans)
        verdicts.append(is_shown == (step.status == "shown"))
        if is_shown:
            hits.append(grounding.is_in_spans(step.at, true))
    return {
        "verdict": sum(verdicts),
        "verdict of": len(verdicts),
        "at, stepline": sum(hits),
        "at, stepline of": len(hits),
    }


FIGURE_TITLES = {
    "found": "found",
    "at, stepline": "R@1",
    "verdict": "verdict",
    "now": "now",
    "now, last said": "last said",
}


def print_lags(rows: RowsByLag) -> dict[str, Any]:
    """Print one row per lag."""
    tables = {}
    for lag, lag_rows in rows.items():
        name = "end" if math.isinf(lag) else f"{lag:g}"
        tables[name] = real_clips.table(lag_rows)
    keys = [key for key in FIGURE_TITLES if key in tables["end"]]
    titles = " | ".join(FIGURE_TITLES[key] for key in keys)
    print(f"| lag, s | {titles} |")
    print("|" + "---|" * (len(keys) + 1))
    for name, figures in tables.items():
        cells = [interval(figures[key]) for key in keys]
        print(f"| {name} | {' | '.join(cells)} |")
    totals = [f"{FIGURE_TITLES[key]} {tables['end'][key][3]}" for key in keys]
    print("of: " + ", ".join(totals))
    result = {}
    for name, figures in tables.items():
        result[name] = {key: figures[key] for key in keys}
    return result


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    tables: dict[str, Callable[[argparse.Namespace], dict[str, Any]]] = {
        "real": lambda args: print_lags(real_rows(args.clips, args.cache)),
        "drawn": lambda args: print_lags(drawn_rows(args.cache, args.seeds)),
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
    args = parser.parse_args()
    result = tables[args.table](args)
    path = RESULTS_FOLDER / "online.json"
    results = json.loads(path.read_text()) if path.exists() else {}
    results[args.table] = result
    path.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
