"""What a sentence's words alone tell of whether the picture shows it, on real narration, with the
labels that WYS2 infers from key-steps (section 3.1).

    python benchmarks/narration_judge.py NARRATION.json.gz

NARRATION: narrations of YouCook2 videos with the videos' own steps and spans, which stand for
key-steps. Each sentence is cut into clips, and counts as shown where one of its clips does:

    SS   the middle of the clip lies in a step's span, and its words are like the step's (cosine of
         MiniLM, c = 0.5)
    VR   the middle of the clip lies in a step's span

Judged by P(shown | wording) of `stepline.text.visibility`, by P(it describes a step) of the writer,
and by what the product does without pictures (`judge_by_words`). Also by logistic regressions of
the first two, each dish judged by a fit to the other dishes. Intervals: 95 % bootstrap over videos.
"""

import argparse
import gzip
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from narration import transcript_of

from stepline.evaluate.bootstrap import (
    Floats,
    Integers,
    Ratio,
    Statistic,
    interval,
    point_estimate,
    resample,
)
from stepline.evaluate.calibration import fit_logistic
from stepline.evaluate.ranking import AveragePrecision, RocAuc
from stepline.models.wys2.clips import NarratedClip, narrated_clips
from stepline.models.wys2.dataset import key_step_similarity, sentence_similarity_labels
from stepline.models.wys2.judge import PROBABILITY_MARGIN, judge_by_words
from stepline.models.wys2.settings import LabelSettings
from stepline.numeric import logit
from stepline.records import Record, Span, Step, Transcript, Video
from stepline.text import embed
from stepline.text.visibility import predict_visibility
from stepline.writing import write_steps
from stepline.writing.extractive.writer import sentence_step_probabilities

RESULT_PATH = Path(__file__).resolve().parent / "results" / "narration_judge.json"
BIN_COUNT = 10
ROUND_DIGITS = 4
WORDING_NAME = "wording"
TELLS_STEP_NAME = "tells a step"
BY_WORDS_NAME = "wording, and whether a step rests on it"
BOTH_REFITTED = "both, refitted"
REFITTED_JUDGES = {
    "wording, refitted": (WORDING_NAME,),
    "tells a step, refitted": (TELLS_STEP_NAME,),
    BOTH_REFITTED: (WORDING_NAME, TELLS_STEP_NAME),
}

Flags: TypeAlias = npt.NDArray[np.bool_]
Figure: TypeAlias = list[float]
Json: TypeAlias = dict[str, Any]
Videos: TypeAlias = dict[str, Json]


@dataclass(frozen=True)
class CalibrationError:
    """ECE under draws of videos. labels: (N,) 0 or 1. probabilities: (N,). video: (N,) 0..V-1."""

    labels: Floats
    probabilities: Floats
    video: Integers
    videos: int

    @property
    def width(self) -> int:
        """Numbers held for one draw."""
        return self.videos

    @property
    def items(self) -> int:
        """N."""
        return len(self.labels)

    @cached_property
    def bin_of(self) -> Integers:
        """(N,): the bin of P that each sentence falls in."""
        bins = (self.probabilities * BIN_COUNT).astype(np.int64)
        return np.minimum(bins, BIN_COUNT - 1)

    def by_video(self, values: Floats) -> Floats:
        """Return (V, bins): the sums of what each sentence has, (N,)."""
        sums = np.zeros((self.videos, BIN_COUNT))
        places = (self.video, self.bin_of)
        np.add.at(sums, places, values)
        return sums

    def __call__(self, weights: Floats) -> Floats:
        """Return (B,) errors."""
        gap = self.probabilities - self.labels
        gaps = weights @ self.by_video(gap)
        ones = np.ones(self.items)
        counts = weights @ self.by_video(ones)
        distances = np.abs(gaps).sum(axis=1)
        return np.asarray(distances / counts.sum(axis=1))


@dataclass(frozen=True)
class Narrations:
    """The sentences of all videos, N of them. video, dish: (N,) numbers. similar: SS. in_step: VR.
    tells_step: people's mark. probabilities: by judge, (N,)."""

    video: Integers
    dish: Integers
    similar: Flags
    in_step: Flags
    tells_step: Flags
    probabilities: dict[str, Floats]

    @property
    def videos(self) -> int:
        """How many videos there are."""
        return int(self.video.max()) + 1

    def tasks(self) -> dict[str, tuple[Flags, Flags]]:
        """Return, by name, which sentences are in question, and which of all are positive."""
        everything = np.ones(len(self.video), dtype=np.bool_)
        return {
            "SS, all sentences": (everything, self.similar),
            "VR, all sentences": (everything, self.in_step),
            "SS against sentences outside every step": (self.similar | ~self.in_step, self.similar),
            "SS, of sentences that tell a step": (self.tells_step, self.similar),
        }


def read_videos(path: Path) -> Videos:
    """Return the videos that have steps and sentences, by their ids."""
    videos = json.loads(gzip.decompress(path.read_bytes()))
    with_steps = {}
    for name, video in sorted(videos.items()):
        if video["steps"] and video["sentences"]:
            with_steps[name] = video
    return with_steps


def record_of(name: str, video: Json, transcript: Transcript) -> Record:
    """Return a video with its steps as the reference."""
    steps = []
    for number, row in enumerate(video["steps"]):
        start, end = row["span"]
        span = Span(start, end)
        step = Step(id=str(number), text=row["text"], spans=(span,))
        steps.append(step)
    duration = video["duration"]
    return Record(
        id=name,
        video=Video(id=name, duration=duration, task=video["title"]),
        transcript=transcript,
        reference=tuple(steps),
    )


def judge_video(transcript: Transcript) -> dict[str, list[float]]:
    """Return P(shown) of each sentence by the judges that need no fit."""
    texts = [sentence.text for sentence in transcript.sentences]
    vectors = embed(texts)
    cited = set()
    for step in write_steps(transcript).steps:
        cited.update(step.sources)
    is_cited = [number in cited for number in range(len(texts))]
    return {
        WORDING_NAME: predict_visibility(vectors).tolist(),
        TELLS_STEP_NAME: sentence_step_probabilities(texts),
        BY_WORDS_NAME: list(judge_by_words(vectors, is_cited)),
    }


def gather(videos: Videos) -> Narrations:
    """Return the sentences of the videos with labels and what judges say of them."""
    titles = {video["title"] for video in videos.values()}
    dishes = sorted(titles)
    clips: list[NarratedClip] = []
    clip_rows: list[int] = []
    video_of: list[int] = []
    dish_of: list[int] = []
    tells_step: list[bool] = []
    probabilities: dict[str, list[float]] = {}
    # sentences of all videos, one after the other
    for number, (name, video) in enumerate(videos.items()):
        first = len(video_of)
        transcript = transcript_of(video)
        for clip in narrated_clips(record_of(name, video, transcript)):
            clips.append(clip)
            clip_rows.append(first + clip.sentence)
        for judge, values in judge_video(transcript).items():
            probabilities.setdefault(judge, []).extend(values)
        tells_step += [row["is_step"] for row in video["sentences"]]
        video_of += [number] * len(transcript.sentences)
        dish = dishes.index(video["title"])
        dish_of += [dish] * len(transcript.sentences)
    # the labels of clips go to their sentences
    settings = LabelSettings()
    similar_clips = sentence_similarity_labels(key_step_similarity(clips, settings), settings)
    in_step_clips = np.array([clip.key_step is not None for clip in clips])
    count = len(video_of)
    by_judge = {}
    for judge, values in probabilities.items():
        by_judge[judge] = np.array(values)
    return Narrations(
        video=np.array(video_of),
        dish=np.array(dish_of),
        similar=any_clip(similar_clips, clip_rows, count),
        in_step=any_clip(in_step_clips, clip_rows, count),
        tells_step=np.array(tells_step),
        probabilities=by_judge,
    )


def any_clip(flags: Flags, sentence_of: list[int], count: int) -> Flags:
    """Return which sentences, (N,), have a clip whose flag is set."""
    sentences = np.zeros(count, dtype=np.bool_)
    with_clip = np.array(sentence_of)[flags]
    sentences[with_clip] = True
    return sentences


def refit(data: Narrations, judges: tuple[str, ...], in_question: Flags, positive: Flags) -> Floats:
    """Return P of each sentence, (N,), by a regression on what judges say, fitted to the sentences
    in question of other dishes."""
    columns = []
    for judge in judges:
        log_odds = logit(data.probabilities[judge], PROBABILITY_MARGIN)
        columns.append(log_odds)
    rows = np.column_stack(columns)
    probabilities = np.zeros(len(rows))
    for dish in np.unique(data.dish):
        is_other = in_question & (data.dish != dish)
        model = fit_logistic(rows[is_other], positive[is_other])
        of_dish = data.dish == dish
        probabilities[of_dish] = model(rows[of_dish])
    return probabilities


def measure(data: Narrations, in_question: Flags, positive: Flags) -> Json:
    """Return the figures of every judge on the sentences in question."""
    probabilities = dict(data.probabilities)
    for name, judges in REFITTED_JUDGES.items():
        probabilities[name] = refit(data, judges, in_question, positive)
    labels = positive[in_question].astype(np.float64)
    video = data.video[in_question]
    kinds: dict[str, Callable[..., Statistic]] = {
        "AUC": RocAuc,
        "AP": AveragePrecision,
        "ECE": CalibrationError,
    }
    # every figure of every judge, with the same draws of videos
    statistics: dict[str, Statistic] = {}
    for judge, values in probabilities.items():
        for kind, statistic in kinds.items():
            items = (labels, values[in_question], video, data.videos)
            statistics[f"{judge}: {kind}"] = statistic(*items)
    draws = resample(statistics)
    figures: dict[str, dict[str, Figure]] = {}
    for judge in probabilities:
        figures[judge] = {}
        for kind in kinds:
            name = f"{judge}: {kind}"
            value = point_estimate(statistics[name])
            figures[judge][kind] = rounded(value, draws[name])
    # what both add to each
    gains = {}
    of_both = f"{BOTH_REFITTED}: AUC"
    best = point_estimate(statistics[of_both])
    for judge in (WORDING_NAME, TELLS_STEP_NAME, BY_WORDS_NAME):
        name = f"{judge}: AUC"
        gain = best - point_estimate(statistics[name])
        drawn_gain = draws[of_both] - draws[name]
        gains[judge] = rounded(gain, drawn_gain)
    tables = {}
    for judge, values in probabilities.items():
        error = CalibrationError(labels, values[in_question], video, data.videos)
        tables[judge] = reliability(error)
    return {
        "sentences": len(labels),
        "positive": round(float(labels.mean()), ROUND_DIGITS),
        "judges": figures,
        "AUC gained by both, refitted, over": gains,
        "reliability": tables,
    }


def rounded(value: float, draws: Floats) -> list[float]:
    """Return [value, low, high]."""
    low, high = interval(draws)
    figure = np.array((value, low, high))
    return figure.round(ROUND_DIGITS).tolist()


def reliability(judge: CalibrationError) -> list[Json]:
    """Return, for each bin of P that holds a sentence: how many, the mean P, and the share that is
    positive."""
    counts = judge.by_video(np.ones(judge.items))
    hits = judge.by_video(judge.labels)
    sums = judge.by_video(judge.probabilities)
    rows = []
    for number in range(BIN_COUNT):
        count = counts[:, number].sum()
        if not count:
            continue
        share = Ratio(hits[:, number], counts[:, number])
        draws = resample({"share": share})
        stated = float(sums[:, number].sum() / count)
        row = {
            "from": number / BIN_COUNT,
            "sentences": int(count),
            "stated": round(stated, ROUND_DIGITS),
            "positive": rounded(point_estimate(share), draws["share"]),
        }
        rows.append(row)
    return rows


def markdown(result: Json) -> str:
    """Return the tables of docs/results/wys2.md."""
    lines = []
    for task, figures in result["tasks"].items():
        share = f"{figures['positive']:.3f} of {figures['sentences']}"
        lines.append(f"| {task} ({share}) | AUC | AP | ECE |")
        lines.append("|---|---|---|---|")
        for judge, row in figures["judges"].items():
            cells = [judge, *map(with_interval, row.values())]
            lines.append(f"| {' | '.join(cells)} |")
        lines.append("")
    for judge in (WORDING_NAME, TELLS_STEP_NAME, BY_WORDS_NAME, BOTH_REFITTED):
        lines += reliability_table(judge, result["tasks"])
    return "\n".join(lines)


def reliability_table(judge: str, tasks: Json) -> list[str]:
    """Return the lines of a judge's table: what is stated, and the shares of SS and of VR. A refit
    states another P of each."""
    names = ("SS, all sentences", "VR, all sentences")
    lines = [
        f"| {judge}: P from | stated, sentences, SS | stated, sentences, VR |",
        "|---|---|---|",
    ]
    cells: dict[float, dict[str, str]] = {}
    for name in names:
        for row in tasks[name]["reliability"][judge]:
            text = f"{row['stated']:.2f}, {row['sentences']}, {with_interval(row['positive'])}"
            cells.setdefault(row["from"], {})[name] = text
    for start in sorted(cells):
        columns = [f"{start:.1f}"]
        for name in names:
            column = cells[start].get(name, "–")
            columns.append(column)
        lines.append(f"| {' | '.join(columns)} |")
    return [*lines, ""]


def with_interval(figure: list[float]) -> str:
    """Return a figure and its interval as text."""
    value, low, high = figure
    return f"{value:.3f} [{low:.3f}, {high:.3f}]"


def main() -> None:
    """Measure, write and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("narration", type=Path)
    options = parser.parse_args()
    videos = read_videos(options.narration)
    data = gather(videos)
    tasks = {}
    for name, (in_question, positive) in data.tasks().items():
        tasks[name] = measure(data, in_question, positive)
    dishes = np.unique(data.dish)
    result: Json = {"videos": data.videos, "dishes": len(dishes)}
    result["tasks"] = tasks
    text = json.dumps(result, indent=1) + "\n"
    RESULT_PATH.write_text(text, encoding="utf-8")
    print(markdown(result))


if __name__ == "__main__":
    main()
