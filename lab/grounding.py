"""Measures grounding on drawn videos: speech alone next to speech and pictures.

    python lab/grounding.py --cache DIR --seeds 200 230

The script's own steps are grounded from where they are really spoken: the grounding is measured
alone, without the recogniser and the writer. R@1: the most likely second lies inside a true span of
a shown step. Far: those shown at least 5 s away from where they are said. AUC: P(shown) of shown
against said-only steps. Accuracy: the verdict shown or said is right. Differences are paired by
step. Intervals are bootstrapped over videos. Videos are drawn at 4 frames per second, the rate at
which the pipeline looks.
"""

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from scipy.stats import rankdata

from lab.drawn_videos import (
    RenderSettings,
    Script,
    make_script,
    read_script,
    render,
    true_record,
    write_script,
)
from stepline.grounding.ground import ground
from stepline.grounding.settings import GroundSettings
from stepline.records import FeatureSequence, Span, Step, Transcript
from stepline.vision import Activity

RESULTS_FOLDER = Path(__file__).resolve().parent / "results"
MIN_FAR_SECONDS = 5.0  # s between the spoken span and the nearest shown one
BOOTSTRAP_DRAWS = 2000
FRAMES_PER_SECOND = 4  # on which motion is measured, as the pipeline does

Array = npt.NDArray[np.float64]
Table = dict[str, list[list[float]]]  # figure -> [value, low, high] by method


@dataclass(frozen=True)
class Seen:
    """A video's pictures: conse features, activity, and the vectors of its steps."""

    features: FeatureSequence
    activity: Activity
    vectors: npt.NDArray[np.float32]


@dataclass(frozen=True)
class Item:
    """One true step: is it shown, is it far, and what each method says of it."""

    video: int
    is_shown: bool
    far: bool
    hit: tuple[bool, ...]
    score: tuple[float, ...]
    said_shown: tuple[bool, ...]


def rendered(seed: int, cache: Path) -> tuple[Path, Script]:
    """Return the video and script of a seed, drawn if the cache does not hold them."""
    video = cache / f"world_{seed:05d}.mp4"
    script_path = cache / f"world_{seed:05d}.json"
    if not script_path.exists():
        cache.mkdir(parents=True, exist_ok=True)
        settings = RenderSettings(frame_rate=FRAMES_PER_SECOND, threads=1)
        script = render(make_script(seed), video, settings)
        write_script(script, script_path)
    return video, read_script(script_path)


def seen(video: Path, texts: Sequence[str]) -> Seen:
    """Return the pictures of a video, encoded once and then taken from the file next to it."""
    from stepline.text import embed

    store = video.with_suffix(".npz")
    if not store.exists():
        features, activity = look(video)
        np.savez(
            store,
            features=features.values,
            motion=activity.motion,
            cuts=np.array(activity.cuts),
            peaks=activity.peak_changes,
            looks=activity.thumbnails,
        )
    with np.load(store) as arrays:
        features = FeatureSequence(arrays["features"], 1.0, "conse")
        cuts = tuple(float(cut) for cut in arrays["cuts"])
        activity = Activity(arrays["motion"], cuts, 1.0, arrays["peaks"], arrays["looks"])
    vectors = embed(list(texts))
    return Seen(features, activity, vectors)


def look(video: Path) -> tuple[FeatureSequence, Activity]:
    from stepline.media import read_frames
    from stepline.vision import ActivityMeter, VideoEncoder, VisionSettings, load_backbone

    settings = VisionSettings()
    backbone = load_backbone(settings)
    encoder = VideoEncoder(backbone, rate=1.0, batch=settings.batch)
    meter = ActivityMeter(rate=1.0)
    for frame in read_frames(video, float(FRAMES_PER_SECOND), 224):
        encoder.add(frame)
        meter.add(frame)
    return encoder.finish(), meter.finish()


METHOD_NAMES = ("speech alone", "speech and pictures")
METHOD_NUMBERS = range(len(METHOD_NAMES))


def unplaced(step: Step) -> Step:
    """Return a step without what grounding says of it."""
    return step.model_copy(update={"spans": (), "at": None, "status": None, "basis": None})


def is_in_spans(second: float | None, step: Step) -> bool:
    """Say whether a second is in one of a step's true spans."""
    return second is not None and any(second in span for span in step.spans)


def is_far(step: Step) -> bool:
    """Say whether a true step is shown, and far from where it is said."""
    return bool(step.spans) and away(step) >= MIN_FAR_SECONDS


def items(seed: int, script: Script, pictures: Seen, settings: GroundSettings) -> list[Item]:
    """Return what both methods say of each true step of one video."""
    record = true_record(script)
    steps = [unplaced(step) for step in record.reference]
    transcript = record.transcript or Transcript()
    # the same steps by speech alone, and with pictures
    alone = ground(steps, duration=script.duration, transcript=transcript, settings=settings)
    fused = ground(
        steps,
        duration=script.duration,
        transcript=transcript,
        features=pictures.features,
        step_vectors=pictures.vectors,
        activity=pictures.activity,
        settings=settings,
    )
    # what each method says of a true step
    rows = []
    for number, true in enumerate(record.reference):
        hits = []
        scores = []
        verdicts = []
        for grounding in (alone, fused):
            step = grounding.steps[number]
            hits.append(is_in_spans(step.at, true))
            scores.append(float(step.score or 0.0))
            verdicts.append(bool(step.spans) and step.doubt is None)
        item = Item(
            video=seed,
            is_shown=bool(true.spans),
            far=is_far(true),
            hit=tuple(hits),
            score=tuple(scores),
            said_shown=tuple(verdicts),
        )
        rows.append(item)
    return rows


def away(step: Step) -> float:
    """Return the seconds between the spoken span and the nearest shown one, 0 when they touch."""
    spoken = step.said or Span(0.0, 1e9)
    distances = []
    for span in step.spans:
        distance = max(0.0, span.start - spoken.end, spoken.start - span.end)
        distances.append(distance)
    return min(distances)


def auc(score: Array, shown_truth: Array) -> float:
    ranks = rankdata(score)
    positive = shown_truth.sum()
    negative = len(shown_truth) - positive
    rank_sum = ranks[shown_truth > 0].sum()
    wins = rank_sum - positive * (positive + 1) / 2
    return float(wins / max(1, positive * negative))


def hit_rate(rows: Sequence[Item], method: int) -> float:
    """Return the share of steps that a method places in a true span, NaN of no step."""
    if not rows:
        return float("nan")
    return float(np.mean([row.hit[method] for row in rows]))


def summary(rows: Sequence[Item]) -> dict[str, list[float]]:
    """Return each figure for speech alone, both together, and their difference."""
    shown_rows = [row for row in rows if row.is_shown]
    far_rows = [row for row in rows if row.far]
    near_rows = [row for row in shown_rows if not row.far]
    pairs: dict[str, list[float]] = {}
    for name, part in (("R@1", shown_rows), ("R@1 near", near_rows), ("R@1 far", far_rows)):
        pairs[name] = [hit_rate(part, method) for method in METHOD_NUMBERS]

    truth = np.array([row.is_shown for row in rows], dtype=float)
    areas = []
    accuracies = []
    for method in METHOD_NUMBERS:
        scores = np.array([row.score[method] for row in rows])
        is_right = [row.said_shown[method] == row.is_shown for row in rows]
        areas.append(auc(scores, truth))
        accuracies.append(float(np.mean(is_right)))
    pairs["AUC"] = areas
    pairs["accuracy"] = accuracies
    return {name: [*pair, pair[1] - pair[0]] for name, pair in pairs.items()}


def with_intervals(rows: Sequence[Item]) -> Table:
    """Return, per figure, [value, low, high] of speech alone, of both, and of the difference.
    Bootstrap over videos."""
    by_video: dict[int, list[Item]] = {}
    for row in rows:
        by_video.setdefault(row.video, []).append(row)
    videos = sorted(by_video)
    rng = np.random.default_rng(0)
    draws = []
    for _ in range(BOOTSTRAP_DRAWS):
        drawn_rows: list[Item] = []
        for video in rng.choice(videos, len(videos)):
            drawn_rows += by_video[video]
        draws.append(summary(drawn_rows))

    table: Table = {}
    for name, values in summary(rows).items():
        drawn_values = [draw[name] for draw in draws]
        lows, highs = np.nanpercentile(drawn_values, [2.5, 97.5], axis=0)  # (3,) each
        cells = []
        for cell in zip(values, lows, highs, strict=True):
            cells.append([round(float(figure), 4) for figure in cell])
        table[name] = cells
    return table


def markdown(table: Table) -> str:
    header = " | ".join((*METHOD_NAMES, "difference"))
    lines = [f"| | {header} |", "|---|---|---|---|"]
    for name, cells in table.items():
        texts = [f"{value:.3f} [{low:.3f}, {high:.3f}]" for value, low, high in cells]
        lines.append(f"| {name} | {' | '.join(texts)} |")
    return "\n".join(lines)


def count_steps(rows: Sequence[Item]) -> dict[str, int]:
    """Return how many steps are shown, and how many of them far from their words."""
    return {"shown": sum(row.is_shown for row in rows), "far": sum(row.far for row in rows)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--cache", type=Path, required=True, help="folder of rendered videos, filled as needed"
    )
    parser.add_argument(
        "--seeds", type=int, nargs=2, default=(200, 230), help="first seed, and one past the last"
    )
    args = parser.parse_args()
    settings = GroundSettings()
    rows: list[Item] = []
    for seed in range(*args.seeds):
        video, script = rendered(seed, args.cache)
        pictures = seen(video, [step.text for step in script.steps])
        rows += items(seed, script, pictures, settings)

    table = with_intervals(rows)
    videos = {row.video for row in rows}
    counts = {"videos": len(videos), "steps": len(rows)} | count_steps(rows)
    RESULTS_FOLDER.mkdir(exist_ok=True)
    result = {"seeds": list(args.seeds), "counts": counts, "table": table}
    text = json.dumps(result, indent=2)
    (RESULTS_FOLDER / "grounding.json").write_text(f"{text}\n")
    print(json.dumps(counts))
    print(markdown(table))


if __name__ == "__main__":
    main()
