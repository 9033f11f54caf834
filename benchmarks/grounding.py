"""Measures grounding on drawn videos: speech alone next to speech and pictures.

    python benchmarks/grounding.py --cache DIR --seeds 200 230

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

from research.drawn_videos import (
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
from stepline.text.visibility import predict_visibility
from stepline.vision import Activity

RESULTS = Path(__file__).resolve().parent / "results"
FAR = 5.0  # s between the spoken span and the nearest shown one
DRAWS = 2000  # bootstrap samples
LOOKS = 4  # frames per second that motion is measured on, as the pipeline does

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Seen:
    """A video's pictures: conse features, activity, and the vectors of its steps."""

    features: FeatureSequence
    activity: Activity
    vectors: npt.NDArray[np.float32]


@dataclass(frozen=True)
class Item:
    """One true step: is it shown, is it far, and what each method says of it (second, P(shown))."""

    video: int
    shown: bool
    far: bool
    hit: tuple[bool, ...]
    score: tuple[float, ...]
    said_shown: tuple[bool, ...]


def rendered(seed: int, cache: Path) -> tuple[Path, Script]:
    """Return the video and script of a seed, drawn if the cache does not hold them."""
    video, beside = cache / f"world_{seed:05d}.mp4", cache / f"world_{seed:05d}.json"
    if not beside.exists():
        cache.mkdir(parents=True, exist_ok=True)
        write_script(
            render(make_script(seed), video, RenderSettings(frame_rate=LOOKS, threads=1)), beside
        )
    return video, read_script(beside)


def seen(video: Path, texts: Sequence[str]) -> Seen:
    """Return the pictures of a video, encoded once and then taken from the file next to it."""
    from stepline.text import embed

    store = video.with_suffix(".npz")
    if not store.exists():
        features, activity = look(video)
        cuts_ = np.array(activity.cuts)
        peaks, looks = activity.peaks, activity.looks
        np.savez(
            store,
            features=features.values,
            motion=activity.motion,
            cuts=cuts_,
            peaks=peaks,
            looks=looks,
        )
    with np.load(store) as saved:
        features = FeatureSequence(saved["features"], 1.0, "conse")
        cuts = tuple(float(cut) for cut in saved["cuts"])
        activity = Activity(saved["motion"], cuts, 1.0, saved["peaks"], saved["looks"])
    return Seen(features, activity, embed(list(texts)))


def look(video: Path) -> tuple[FeatureSequence, Activity]:
    from stepline.media import read_frames
    from stepline.vision import ActivityMeter, VideoEncoder, VisionSettings, load_backbone

    settings = VisionSettings()
    encoder = VideoEncoder(load_backbone(settings), rate=1.0, batch=settings.batch)
    meter = ActivityMeter(rate=1.0, cut_ratio=settings.cut_ratio, cut_floor=settings.cut_floor)
    for frame in read_frames(video, float(LOOKS), 224):
        encoder.add(frame)
        meter.add(frame)
    return encoder.finish(), meter.finish()


METHODS = ("speech alone", "speech and pictures")


def items(seed: int, script: Script, pictures: Seen, settings: GroundSettings) -> list[Item]:
    """Return what both methods say of each true step of one video."""
    record = true_record(script)
    steps = [
        step.model_copy(update={"spans": (), "at": None, "status": None})
        for step in record.reference
    ]
    transcript = record.transcript or Transcript()
    wording = [float(p) for p in predict_visibility(pictures.vectors)]
    alone = ground(
        steps, duration=script.duration, transcript=transcript, visible=wording, settings=settings
    )
    fused = ground(
        steps,
        duration=script.duration,
        transcript=transcript,
        features=pictures.features,
        step_vectors=pictures.vectors,
        activity=pictures.activity,
        visible=wording,
        settings=settings,
    )
    rows = []
    for k, true in enumerate(record.reference):
        seconds = [int(g.alignment.scores[k].argmax()) + 0.5 for g in (alone, fused)]
        rows.append(
            Item(
                video=seed,
                shown=bool(true.spans),
                far=bool(true.spans) and away(true) >= FAR,
                hit=tuple(any(second in span for span in true.spans) for second in seconds),
                score=tuple(float(g.steps[k].score or 0.0) for g in (alone, fused)),
                said_shown=tuple(g.steps[k].status == "shown" for g in (alone, fused)),
            )
        )
    return rows


def away(step: Step) -> float:
    """Return the seconds between the spoken span and the nearest shown one, 0 when they touch."""
    said = step.said or Span(0.0, 1e9)
    return min(max(0.0, span.start - said.end, said.start - span.end) for span in step.spans)


def auc(score: Array, shown: Array) -> float:
    ranks, positive = rankdata(score), shown.sum()
    negative = len(shown) - positive
    return float(
        (ranks[shown > 0].sum() - positive * (positive + 1) / 2) / max(1, positive * negative)
    )


def summary(rows: Sequence[Item]) -> dict[str, list[float]]:
    """Return each figure for speech alone, both together, and their difference."""
    shown, far = [r for r in rows if r.shown], [r for r in rows if r.far]
    near = [r for r in shown if not r.far]
    out: dict[str, list[float]] = {}
    for name, part in (("R@1", shown), ("R@1 near", near), ("R@1 far", far)):
        out[name] = [
            float(np.mean([r.hit[m] for r in part])) if part else float("nan") for m in (0, 1)
        ]
    truth_ = np.array([r.shown for r in rows], dtype=float)
    out["AUC"] = [auc(np.array([r.score[m] for r in rows]), truth_) for m in (0, 1)]
    out["accuracy"] = [float(np.mean([r.said_shown[m] == r.shown for r in rows])) for m in (0, 1)]
    return {name: [*pair, pair[1] - pair[0]] for name, pair in out.items()}


def with_intervals(rows: Sequence[Item]) -> dict[str, list[list[float]]]:
    """Return, per figure, [value, low, high] of speech alone, of both, and of the difference.
    Bootstrap over videos."""
    videos = sorted({r.video for r in rows})
    by_video = {v: [r for r in rows if r.video == v] for v in videos}
    rng = np.random.default_rng(0)
    draws = [
        summary([r for v in rng.choice(videos, len(videos)) for r in by_video[v]])
        for _ in range(DRAWS)
    ]
    table = {}
    for name, values in summary(rows).items():
        spread = np.nanpercentile([draw[name] for draw in draws], [2.5, 97.5], axis=0)  # (2, 3)
        table[name] = [
            [round(float(x), 4) for x in (v, *spread[:, n])] for n, v in enumerate(values)
        ]
    return table


def markdown(table: dict[str, list[list[float]]]) -> str:
    lines = ["| | " + " | ".join((*METHODS, "difference")) + " |", "|---|---|---|---|"]
    for name, cells in table.items():
        lines.append(
            f"| {name} | "
            + " | ".join(f"{v:.3f} [{low:.3f}, {high:.3f}]" for v, low, high in cells)
            + " |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--cache", type=Path, required=True, help="folder of rendered videos, filled as needed"
    )
    parser.add_argument(
        "--seeds", type=int, nargs=2, default=(200, 230), help="first seed, and one past the last"
    )
    parser.add_argument("--name", default="grounding", help="of the result file")
    parser.add_argument("--no-wording", action="store_true", help="leave P(shown | wording) out")
    args = parser.parse_args()
    settings = GroundSettings(wording=0.0) if args.no_wording else GroundSettings()
    rows: list[Item] = []
    for seed in range(*args.seeds):
        video, script = rendered(seed, args.cache)
        rows += items(seed, script, seen(video, [step.text for step in script.steps]), settings)
    table = with_intervals(rows)
    counts = {
        "videos": len({r.video for r in rows}),
        "steps": len(rows),
        "shown": sum(r.shown for r in rows),
    }
    counts["far"] = sum(r.far for r in rows)
    RESULTS.mkdir(exist_ok=True)
    result = {"seeds": list(args.seeds), "counts": counts, "table": table}
    (RESULTS / f"{args.name}.json").write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(counts))
    print(markdown(table))


if __name__ == "__main__":
    main()
