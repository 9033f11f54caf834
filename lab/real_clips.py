"""The main job on real clips: python lab/real_clips.py CLIPS --cache DIR [--table
given|wrong]

CLIPS holds clips and labels.json: steps with the seconds in which they are spoken and shown
(docs/real_clips.md). DIR keeps the record of each clip and what is seen of it. An empty one has
every clip run again. A written step and a labelled one are the same when their texts have a cosine
(MiniLM) of .65. With .45 they must also be spoken within 8 s of each other. Pairs are one to one,
the best total first. `at`: the second is in a labelled span, 1 s of slack either way, of the found
steps that are shown. Next to it are the middle of the spoken words and a second later, a second
after the first word, and places spread evenly. ECE: of P(shown), ten bins, of found steps.
Intervals: bootstrap over clips.

    whole      the whole main job (the default)
    given      the labelled steps as `--texts`: placing apart from writing
    wrong      black, noise, a still of the clip, and cards that bear its own steps instead of its pictures
"""

import argparse
import itertools
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from altered_clips import WRONG_KINDS, wrong_pictures
from scipy.optimize import linear_sum_assignment

from stepline.evaluate.calibration import calibration_error
from stepline.media import probe
from stepline.pipeline.networks import load_networks
from stepline.pipeline.pictures import VisualFeatures, VisualOptions, extract_features
from stepline.pipeline.placing import ground_steps
from stepline.pipeline.request import Request, StepsSettings
from stepline.pipeline.understand import place_user_lines, understand
from stepline.records import FeatureSequence, Record, Span, Step, Transcript
from stepline.settings import load_settings
from stepline.storage import read_record, write_record
from stepline.text import embed
from stepline.vision import Activity, load_backbone
from stepline.vision.on_screen_text import ScreenText

RESULTS_FOLDER = Path(__file__).resolve().parent / "results"
SAME_COSINE = 0.65  # from which two texts are the same step
NEARBY_SAME_COSINE = 0.45  # the same, of steps that are spoken near each other
NEARBY_SECONDS = 8.0
SLACK_SECONDS = 1.0  # seconds
BOOTSTRAP_DRAWS = 2000  # bootstrap samples
FALSE_KEY = "shown in clips that show nothing"

Row = dict[str, Any]
Counts = dict[str, int]  # hits, and of how many under the key with " of"
Table = dict[str, list[float]]  # figure -> [value, low, high, of how many]
Records = dict[str, Record]
Pictures = dict[str, VisualFeatures]
Pair = tuple[Row, Step]  # a labelled step and a written one
Cell = Sequence[float]  # of a table: value, low, high, of how many


def spoken_center(step: Step, after: float = 0.0) -> float | None:
    """Return the middle of a step's words, or some seconds later."""
    return step.said and step.said.center + after


def evenly_spread(step: Step, record: Record) -> float:
    """Return where a step is if the steps divide the video evenly."""
    share = (record.steps.index(step) + 0.5) / len(record.steps)
    return share * (record.video.duration or 0.0)


SECOND_OF_METHOD: dict[str, Callable[[Step, Record], float | None]] = {
    "stepline": lambda step, _: step.at,
    "voice": lambda step, _: spoken_center(step),
    "voice + 1 s": lambda step, _: spoken_center(step, 1),
    "first word + 1 s": lambda step, _: step.said and step.said.start + 1,
    "uniform": evenly_spread,
}


def records(
    clips: Path, names: Sequence[str], cache: Path, settings: StepsSettings | None = None
) -> Records:
    """Return the record of each clip, by the whole main job. Those in the cache are read."""
    cache.mkdir(parents=True, exist_ok=True)
    settings = settings or StepsSettings()
    networks = load_networks(settings)
    by_name = {}
    for name in names:
        stem = Path(name).stem
        path = cache / f"{stem}.json"
        if not path.exists():
            request = Request(clips / name, id=stem)
            result = understand(request, settings, networks=networks)
            write_record(result.record, path)
        by_name[name] = read_record(path)
    return by_name


def pictures(clip: Path, cache: Path) -> VisualFeatures:
    """Return what is seen of a clip, by the settings of the main job, from the cache where it is
    there."""
    store = cache / f"{clip.stem}.pictures.npz"
    settings = StepsSettings()
    backbone = load_backbone(settings.vision)
    if not store.exists():
        request = Request(clip, id=clip.stem)
        info = probe(clip, settings.media)
        options = VisualOptions(backbone=backbone, key_frames=True)
        write_pictures(extract_features(request, info, settings, options), store)
    rate = settings.vision.rate
    with np.load(store) as arrays:
        cuts = tuple(arrays["cuts"].tolist())
        activity = Activity(arrays["motion"], cuts, rate, arrays["peaks"], arrays["looks"])
        lines = []
        for text, span, height in json.loads(str(arrays["lines"])):
            lines.append(ScreenText(text, Span(*span), height))
        features = FeatureSequence(arrays["features"], rate, backbone.name)
        return VisualFeatures(
            features, activity, backbone, float(arrays["end"]), on_screen=(*lines,)
        )


def write_pictures(visual: VisualFeatures, store: Path) -> None:
    """Write what is seen of a clip, for `pictures` to read."""
    assert visual.features is not None
    assert visual.activity is not None
    lines = []
    for line in visual.on_screen:
        span = [line.span.start, line.span.end]
        lines.append([line.text, span, line.height])
    np.savez(
        store,
        end=np.array(visual.end),
        lines=np.array(json.dumps(lines)),
        motion=visual.activity.motion,
        cuts=visual.activity.cuts,
        peaks=visual.activity.peak_changes,
        looks=visual.activity.thumbnails,
        features=visual.features.values,
    )


def matched(labels: Sequence[Row], steps: Sequence[Step]) -> list[Pair]:
    """Return the pairs of a labelled and a written step that are the same."""
    if not steps or not labels:
        return []
    label_vectors = embed([label["text"] for label in labels])
    step_vectors = embed([step.text for step in steps])
    cosine = label_vectors @ step_vectors.T
    near = np.zeros(cosine.shape, dtype=bool)
    for row, label in enumerate(labels):
        near[row] = [_near(label.get("spoken"), step.said) for step in steps]

    is_same = (cosine >= SAME_COSINE) | ((cosine >= NEARBY_SAME_COSINE) & near)
    scores = np.where(is_same, cosine, -1.0)
    pairs = []
    for row, column in zip(*linear_sum_assignment(-scores), strict=True):
        if scores[row, column] >= 0:
            pairs.append((labels[row], steps[column]))
    return pairs


def _near(spoken: Sequence[float] | None, words: Span | None) -> bool:
    """Say whether a label's words and a step's are near each other, as far as both are known."""
    if spoken is None or words is None:
        return True
    is_before_end = spoken[0] - NEARBY_SECONDS <= words.end
    is_after_start = words.start - NEARBY_SECONDS <= spoken[1]
    return bool(is_before_end and is_after_start)


def without_doubt(step: Step) -> bool:
    """Say whether a step is seen, or placed without a doubt."""
    return step.status in ("seen", "placed") and step.doubt is None


def count_shown(steps: Sequence[Step]) -> int:
    """Return how many steps are seen, or placed without a doubt."""
    return sum(map(without_doubt, steps))


def is_shown(pair: Pair) -> bool:
    """Say whether the labelled step of a pair is shown."""
    return bool(pair[0].get("shown"))


def counts(truth: Row, record: Record) -> Counts:
    """Return what one clip adds to each figure: hits and of how many."""
    labels = truth["steps"]
    if not labels:
        return {FALSE_KEY: count_shown(record.steps)}
    pairs = matched(labels, record.steps)
    tips = sum(label.get("kind") == "tip" for label in labels)
    paired_tips = sum(label.get("kind") == "tip" for label, _ in pairs)
    shown_pairs = [pair for pair in pairs if is_shown(pair)]
    right_verdicts = 0
    for pair in pairs:
        right_verdicts += is_shown(pair) == (pair[1].status in ("seen", "placed"))
    row = {
        "found": len(pairs) - paired_tips,
        "found of": len(labels) - tips,
        "precision": len(pairs),
        "precision of": len(record.steps),
        "verdict": right_verdicts,
        "verdict of": len(pairs),
        "always shown": len(shown_pairs),
        "always shown of": len(pairs),
    }
    for name, second_of in SECOND_OF_METHOD.items():
        hits = 0
        for label, step in shown_pairs:
            hits += is_right_second(second_of(step, record), label["shown"])
        row[f"at, {name}"] = hits
        row[f"at, {name} of"] = len(shown_pairs)
    return row | span_counts(shown_pairs, record)


def is_right_second(second: float | None, spans: Sequence[Sequence[float]]) -> bool:
    """Say whether a second is in a labelled span, SLACK_SECONDS aside."""
    if second is None:
        return False
    return any(start - SLACK_SECONDS <= second <= end + SLACK_SECONDS for start, end in spans)


def span_counts(shown_pairs: Sequence[Pair], record: Record) -> Counts:
    """Return how many spans agree with a labelled one, and how many overlap the one before."""
    right = 0
    for label, step in shown_pairs:
        for start, end in label["shown"]:
            # labelled spans have gaps between them: at most one agrees
            label_span = Span(float(start), float(end))
            if step.spans:
                right += label_span.iou(step.spans[0]) >= 0.5
    first_spans = [step.spans[0] for step in record.steps if step.spans]
    within = 0
    for before, after in itertools.pairwise(first_spans):
        shorter = min(before.duration, after.duration)
        within += after.overlap(before) > 0.5 * shorter
    return {
        "span, IoU .5": right,
        "span, IoU .5 of": len(shown_pairs),
        "span, more than half in the one before": within,
        "span, more than half in the one before of": len(first_spans),
    }


def table(rows: Sequence[Counts]) -> Table:
    """Return figure -> [value, low, high, of how many]."""
    rng = np.random.default_rng(0)
    names = dict.fromkeys(key for row in rows for key in row)
    figures = {}
    for name in names:
        if f"{name} of" not in rows[0]:
            continue
        hits = np.array([row.get(name, 0) for row in rows])
        totals = np.array([row.get(f"{name} of", 0) for row in rows])
        shape = (BOOTSTRAP_DRAWS, len(rows))
        draws = rng.integers(0, len(rows), size=shape)
        drawn_hits = hits[draws].sum(axis=1)
        drawn_totals = np.maximum(1, totals[draws].sum(axis=1))
        low, high = np.nanpercentile(drawn_hits / drawn_totals, [2.5, 97.5])
        total = int(totals.sum())
        value = hits.sum() / max(1, total)
        cell = [round(float(figure), 3) for figure in (value, low, high)]
        figures[name] = [*cell, total]
    return figures


def calibration(truths: Row, by_name: Records) -> float:
    """Return the ECE of P(shown) over the found steps of all clips."""
    labels = []
    scores = []
    for name, truth in truths.items():
        for label, step in matched(truth["steps"], by_name[name].steps):
            labels.append(bool(label.get("shown")))
            scores.append(step.score or 0.0)
    return calibration_error(np.array(labels), np.array(scores))


def placed_anew(record: Record, visual: VisualFeatures, texts: Sequence[str] = ()) -> Record:
    """Return the record with its steps, or those of the texts, grounded in what is seen.

    They are grounded as the main job grounds them.
    """
    settings = StepsSettings()
    transcript = record.transcript or Transcript()
    if texts:
        path = Path(record.video.path or "")
        request = Request(path, record.id, texts=tuple(texts))
        steps = place_user_lines(request.texts, transcript, settings).steps
    else:
        steps = tuple(spoken_step(step) for step in record.steps)
    if not steps:
        return record
    duration = record.video.duration or 0.0
    grounding = ground_steps(steps, duration, transcript, visual, settings, written=not texts)
    return record.model_copy(update={"steps": grounding.steps})


def spoken_step(step: Step) -> Step:
    """Return a step with what the speech says of it alone."""
    return Step(id=step.id, text=step.text, kind=step.kind, said=step.said, sources=step.sources)


def interval(cell: Cell) -> str:
    """Return the value of a figure with its interval, as printed."""
    value, low, high, _ = cell
    return f"{value:.3f} [{low:.3f}, {high:.3f}]"


def print_whole(truths: Row, by_name: Records) -> Row:
    """Print the table of all narrated clips, and one row per maker."""
    rows = {name: counts(truth, by_name[name]) for name, truth in truths.items()}
    step_rows = [row for row in rows.values() if "found" in row]
    figures = table(step_rows)
    false = sum(row.get(FALSE_KEY, 0) for row in rows.values())
    error = round(calibration(truths, by_name), 3)
    print("| | value [95 % interval] | of |\n|---|---|---|")
    for name, cell in figures.items():
        print(f"| {name} | {interval(cell)} | {cell[3]} |")
    print(f"| steps {FALSE_KEY} | {false} | |")
    print(f"| ECE of P(shown) | {error} | |")

    makers: dict[str, list[Counts]] = {}
    for name, row in rows.items():
        if "found" in row:
            maker = name.split("_")[0]
            makers.setdefault(maker, []).append(row)
    print("\n| maker | at, stepline | at, voice | of |\n|---|---|---|---|")
    for maker, maker_rows in makers.items():
        hits = sum(row["at, stepline"] for row in maker_rows)
        voice_hits = sum(row["at, voice"] for row in maker_rows)
        total = sum(row["at, voice of"] for row in maker_rows)
        print(f"| {maker} | {hits} | {voice_hits} | {total} |")
    return {"table": figures, FALSE_KEY: false, "ece": error, "clips": len(step_rows)}


def print_given(truths: Row, by_name: Records, visual: Pictures) -> Row:
    """Print the table of the labelled steps as `--texts`."""
    step_truths = {name: truth for name, truth in truths.items() if truth["steps"]}
    placed = {}
    for name, truth in step_truths.items():
        texts = [step["text"] for step in truth["steps"]]
        placed[name] = placed_anew(by_name[name], visual[name], texts)
    return print_whole(step_truths, placed)


def print_wrong(truths: Row, by_name: Records, visual: Pictures, clips: Path) -> Row:
    """Print how many steps are "shown" in pictures that are not the clip's."""

    def count(name: str, record: Record, kind: str) -> tuple[int, int]:
        other = wrong_pictures(kind, clips / name, record, visual[name])
        placed = placed_anew(record, other)
        return count_shown(placed.steps), len(placed.steps)

    return print_changed(truths, by_name, WRONG_KINDS, count)


def print_changed(
    truths: Row,
    by_name: Records,
    kinds: Sequence[Any],
    count: Callable[[str, Record, Any], tuple[int, int]],
) -> Row:
    """Print one row for each change of the clips: the steps shown, and of how many."""
    result: Row = {}
    print("| pictures | steps shown | of |\n|---|---|---|")
    for kind in kinds:
        shown_steps = 0
        all_steps = 0
        for name, record in by_name.items():
            if truths[name]["steps"] and record.steps:
                clip_shown, clip_steps = count(name, record, kind)
                shown_steps += clip_shown
                all_steps += clip_steps
        result[str(kind)] = [shown_steps, all_steps]
        print(f"| {kind} | {shown_steps} | {all_steps} |", flush=True)
    return result


def narrated_or_empty(labels: Row) -> Row:
    """Return the labels of clips with a spoken step, and of those without any step."""
    truths = {}
    for name, truth in labels.items():
        steps = truth["steps"]
        if not steps or any(step.get("spoken") for step in steps):
            truths[name] = truth
    return truths


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("clips", type=Path)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--table", choices=("whole", "given", "wrong"), default="whole")
    parser.add_argument("--set", action="append", default=[], help="such as asr.beam=1")
    args = parser.parse_args()
    labels = json.loads((args.clips / "labels.json").read_text())
    truths = narrated_or_empty(labels)
    by_name = records(
        args.clips, list(truths), args.cache, load_settings(StepsSettings, None, args.set)
    )
    visual: Pictures = {}
    if args.table != "whole":
        visual = {name: pictures(args.clips / name, args.cache) for name in truths}
    if args.table == "whole":
        result = print_whole(truths, by_name)
    elif args.table == "given":
        result = print_given(truths, by_name, visual)
    else:
        result = print_wrong(truths, by_name, visual, args.clips)
    path = RESULTS_FOLDER / "real_clips.json"
    results = json.loads(path.read_text()) | {args.table: result}
    path.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
