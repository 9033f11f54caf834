"""The main job on real clips: python benchmarks/real_clips.py CLIPS --cache DIR [--table
given|evidence|repeated|wrong]

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
    evidence   the written steps placed anew with each kind of evidence off, and each alone
    repeated   each clip 3 and 26 times: how many of its "shown" steps stay so
    wrong      black, noise, a still of the clip, and cards that bear its own steps instead of its pictures
"""

import argparse
import itertools
import json
import math
import textwrap
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw
from scipy.optimize import linear_sum_assignment

from stepline.evaluate.calibration import calibration_error
from stepline.media import Frame, probe, read_frames
from stepline.pipeline.networks import load_networks
from stepline.pipeline.pictures import LookOptions, VisualFeatures, extract_features
from stepline.pipeline.placing import ground_steps
from stepline.pipeline.request import Request, StepsSettings
from stepline.pipeline.understand import understand
from stepline.pipeline.user_lines import place_user_lines
from stepline.records import FeatureSequence, Record, Span, Step, Transcript
from stepline.storage import read_record, write_record
from stepline.text import embed
from stepline.vision import Activity, ActivityMeter, PictureCues, VisionSettings, load_backbone
from stepline.vision.on_screen_text import ScreenText

RESULTS = Path(__file__).resolve().parent / "results"
ALIKE, NEARLY, NEAR, SLACK = 0.65, 0.45, 8.0, 1.0  # cosines; seconds
DRAWS = 2000  # bootstrap samples
PLACES: dict[str, Callable[[Step, Record], float | None]] = {
    "stepline": lambda step, _: step.at,
    "voice": lambda step, _: step.said and step.said.center,
    "voice + 1 s": lambda step, _: step.said and step.said.center + 1,
    "first word + 1 s": lambda step, _: step.said and step.said.start + 1,
    "uniform": lambda step, record: (
        (record.steps.index(step) + 0.5) / len(record.steps) * (record.video.duration or 0.0)
    ),
}
REPEATED = (3, 26)  # times
WRONG = ("black", "noise", "still", "cards")
CARD = 5.0  # seconds that a card is shown
SIDE = 224  # pixels of a picture that no clip has


def records(clips: Path, names: Sequence[str], cache: Path) -> dict[str, Record]:
    """Return the record of each clip, by the whole main job. Those in the cache are read."""
    cache.mkdir(parents=True, exist_ok=True)
    settings = StepsSettings()
    networks = load_networks(settings)
    found = {}
    for name in names:
        path = cache / f"{Path(name).stem}.json"
        if not path.exists():
            request = Request(clips / name, id=Path(name).stem)
            write_record(understand(request, settings, networks=networks).record, path)
        found[name] = read_record(path)
    return found


def pictures(clip: Path, cache: Path) -> VisualFeatures:
    """Return what is seen of a clip, by the settings of the main job, from the cache where it is
    there."""
    store, settings = cache / f"{clip.stem}.pictures.npz", StepsSettings()
    backbone = load_backbone(settings.vision)
    if not store.exists():
        seen = extract_features(
            Request(clip, id=clip.stem),
            probe(clip, settings.media),
            settings,
            LookOptions(backbone=backbone),
        )
        assert seen.features is not None
        assert seen.activity is not None
        assert seen.cues is not None
        lines = json.dumps(
            [[line.text, [line.span.start, line.span.end], line.height] for line in seen.cues.lines]
        )
        arrays = {
            name: getattr(seen.activity, name) for name in ("motion", "cuts", "peaks", "looks")
        }
        arrays |= {"features": seen.features.values, "presenter": seen.cues.presenter}
        np.savez(store, end=np.array(seen.end), lines=np.array(lines), **arrays)
    with np.load(store) as saved:
        cuts = tuple(saved["cuts"].tolist())
        activity = Activity(
            saved["motion"], cuts, settings.vision.rate, saved["peaks"], saved["looks"]
        )
        lines = tuple(
            ScreenText(text, Span(*span), height)
            for text, span, height in json.loads(str(saved["lines"]))
        )
        cues = PictureCues(settings.vision.rate, saved["presenter"], lines=lines)
        features = FeatureSequence(saved["features"], settings.vision.rate, backbone.name)
        return VisualFeatures(features, activity, backbone, float(saved["end"]), cues=cues)


def matched(
    labels: Sequence[dict[str, Any]], steps: Sequence[Step]
) -> list[tuple[dict[str, Any], Step]]:
    """Return the pairs of a labelled and a written step that are the same."""
    if not steps or not labels:
        return []
    cosine = embed([label["text"] for label in labels]) @ embed([step.text for step in steps]).T
    near = np.array([[_near(label.get("spoken"), step.said) for step in steps] for label in labels])
    same = np.where((cosine >= ALIKE) | ((cosine >= NEARLY) & near), cosine, -1.0)
    pairs = zip(*linear_sum_assignment(-same), strict=True)
    return [(labels[i], steps[j]) for i, j in pairs if same[i, j] >= 0]


def _near(spoken: Sequence[float] | None, said: Span | None) -> bool:
    if spoken is None or said is None:
        return True
    return bool(spoken[0] - NEAR <= said.end and said.start - NEAR <= spoken[1])


def counts(truth: dict[str, Any], record: Record) -> dict[str, int]:
    """Return what one clip adds to each figure: hits and of how many."""
    labels = truth["steps"]
    if not labels:
        return {
            "shown in clips that show nothing": sum(step.status == "shown" for step in record.steps)
        }
    pairs = matched(labels, record.steps)
    tips = sum(label.get("kind") == "tip" for label in labels)
    row = {
        "found": sum(label.get("kind") != "tip" for label, _ in pairs),
        "found of": len(labels) - tips,
        "precision": len(pairs),
        "precision of": len(record.steps),
        "verdict": sum(
            bool(label.get("shown")) == (step.status == "shown") for label, step in pairs
        ),
        "verdict of": len(pairs),
        "always shown": sum(bool(label.get("shown")) for label, _ in pairs),
        "always shown of": len(pairs),
    }
    shown = [(label["shown"], step) for label, step in pairs if label.get("shown")]
    for name, place in PLACES.items():
        seconds = [(spans, place(step, record)) for spans, step in shown]
        row[f"at, {name}"] = sum(
            at is not None and any(a - SLACK <= at <= b + SLACK for a, b in spans)
            for spans, at in seconds
        )
        row[f"at, {name} of"] = len(shown)
    best = [
        (Span(*map(float, pair)), step.spans[0])
        for spans, step in shown
        if step.spans
        for pair in spans
    ]
    # labelled spans lie apart: one at most
    row["span, IoU .5"] = sum(label.iou(span) >= 0.5 for label, span in best)
    row["span, IoU .5 of"] = len(shown)
    spans = [step.spans[0] for step in record.steps if step.spans]
    within = sum(
        b.overlap(a) > 0.5 * min(a.duration, b.duration) for a, b in itertools.pairwise(spans)
    )
    row |= {
        "span, more than half in the one before": within,
        "span, more than half in the one before of": len(spans),
    }
    return row


def table(rows: Sequence[dict[str, int]]) -> dict[str, list[float]]:
    """Return figure -> [value, low, high, of how many]."""
    rng = np.random.default_rng(0)
    figures = [
        name
        for name in dict.fromkeys(key for row in rows for key in row)
        if f"{name} of" in rows[0]
    ]
    found = {}
    for name in figures:
        hits, of = (np.array([row.get(key, 0) for row in rows]) for key in (name, f"{name} of"))
        draws = rng.integers(0, len(rows), size=(DRAWS, len(rows)))
        low, high = np.nanpercentile(
            hits[draws].sum(axis=1) / np.maximum(1, of[draws].sum(axis=1)), [2.5, 97.5]
        )
        found[name] = [round(float(x), 3) for x in (hits.sum() / max(1, of.sum()), low, high)] + [
            int(of.sum())
        ]
    return found


def calibration(truths: dict[str, Any], found: dict[str, Record]) -> float:
    """Return the ECE of P(shown) over the found steps of all clips."""
    pairs = [
        pair
        for name, truth in truths.items()
        for pair in matched(truth["steps"], found[name].steps)
    ]
    shown = np.array([bool(label.get("shown")) for label, _ in pairs])
    return calibration_error(shown, np.array([step.score or 0.0 for _, step in pairs]))


def placed_anew(record: Record, seen: VisualFeatures, texts: Sequence[str] = ()) -> Record:
    """Return the record with its steps, or those of the texts, grounded in what is seen, as the
    main job does."""
    settings = StepsSettings()
    transcript = record.transcript or Transcript()
    steps = tuple(
        Step(id=s.id, text=s.text, kind=s.kind, said=s.said, sources=s.sources)
        for s in record.steps
    )
    tellings = None
    if texts:
        request = Request(Path(record.video.path or ""), record.id, texts=tuple(texts))
        lines = place_user_lines(request.texts, transcript, settings)
        steps = lines.steps
        tellings = lines.tellings
    if not steps:
        return record
    duration = record.video.duration or 0.0
    grounding = ground_steps(
        steps, duration, transcript, seen, settings, written=not texts, tellings=tellings
    )
    return record.model_copy(update={"steps": grounding.steps})


def without(seen: VisualFeatures, kinds: Collection[str]) -> VisualFeatures:
    """Return what is seen less some kinds of evidence: likeness (and topic), looks, cuts, text."""
    activity, features, cues = seen.activity, seen.features, seen.cues
    assert activity is not None
    if "looks" in kinds:
        activity = replace(activity, looks=activity.looks[:0], peaks=activity.peaks[:0])
    if "cuts" in kinds:
        activity = replace(activity, cuts=())
    return replace(
        seen,
        activity=activity,
        features=None if "likeness" in kinds else features,
        cues=None if "text" in kinds else cues,
    )


KINDS = ("likeness", "looks", "cuts", "text")
EVIDENCE = {"all": (), "none": KINDS} | {f"without {kind}": (kind,) for kind in KINDS}
EVIDENCE |= {f"{kind} alone": tuple(other for other in KINDS if other != kind) for kind in KINDS}


def repeated(record: Record, seen: VisualFeatures, times: int) -> tuple[Record, VisualFeatures]:
    """Return the record and the pictures of a clip that comes that many times on end, cut to whole
    seconds."""
    activity, features, cues = seen.activity, seen.features, seen.cues
    assert activity is not None
    assert features is not None
    assert cues is not None
    length = min(len(activity.looks), len(features.values))
    starts = [length * n for n in range(times)]

    def later(span: Span, by: float) -> Span:
        return Span(span.start + by, span.end + by)

    sentences = [s for s in record.sentences if s.span.end <= length]
    kept = [step for step in record.steps if step.said and step.said.end <= length]
    spoken = [
        s.model_copy(update={"span": later(s.span, by), "words": ()})
        for by in starts
        for s in sentences
    ]
    steps = [
        step.model_copy(
            update={
                "id": f"{step.id} {n}",
                "said": step.said and later(step.said, by),
                "sources": tuple(
                    i + n * len(sentences) for i in step.sources if i < len(sentences)
                ),
            }
        )
        for n, by in enumerate(starts)
        for step in kept
    ]
    cuts = tuple(
        cut + by for by in starts for cut in (0.0, *activity.cuts) if cut + by > 0 and cut < length
    )
    looked = Activity(
        np.tile(activity.motion[:length], times),
        cuts,
        activity.rate,
        np.tile(activity.peaks[:length], times),
        np.tile(activity.looks[:length], (times, 1)),
    )
    rows = FeatureSequence(
        np.tile(features.values[:length], (times, 1)), features.rate, features.backbone
    )
    lines = tuple(replace(line, span=later(line.span, by)) for by in starts for line in cues.lines)
    video = record.video.model_copy(update={"duration": float(length * times)})
    transcript = Transcript(
        language=record.transcript and record.transcript.language, sentences=tuple(spoken)
    )
    longer = record.model_copy(
        update={"video": video, "transcript": transcript, "steps": tuple(steps)}
    )
    return longer, replace(seen, activity=looked, features=rows, cues=replace(cues, lines=lines))


def wrong_pictures(kind: str, clip: Path, record: Record, seen: VisualFeatures) -> VisualFeatures:
    """Return what would be seen if the clip were black, noise, one still of itself, or cards of its
    steps, all read."""
    assert seen.backbone is not None
    settings, rng, seconds = VisionSettings(), np.random.default_rng(0), math.ceil(seen.end)
    stills = {
        "black": lambda: [np.zeros((SIDE, SIDE, 3), np.uint8)],
        "still": lambda: [next(iter(read_frames(clip, 1.0, SIDE))).image],
        "noise": lambda: [
            rng.integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8) for _ in range(3 * seconds)
        ],
        "cards": lambda: [_card(step.text) for step in record.steps],
    }[kind]()
    stands = {"noise": 1 / 3, "cards": CARD}.get(kind, math.inf)
    meter = ActivityMeter(rate=1.0, cut_ratio=settings.cut_ratio, cut_floor=settings.cut_floor)
    for n in range(3 * seconds):
        meter.add(Frame(n / 3, stills[int((n / 3 + 1e-6) / stands) % len(stills)]))
    looks = seen.backbone.encode_images(np.stack(stills[:: 3 if kind == "noise" else 1]))
    rows = looks[[int((t + 1e-6) / max(1.0, stands)) % len(looks) for t in range(seconds)]]
    starts = np.arange(0, seconds, CARD).tolist() if kind == "cards" else []
    lines = [
        ScreenText(record.steps[n % len(stills)].text, Span(t, t + CARD), 0.1)
        for n, t in enumerate(starts)
    ]
    return replace(
        seen,
        features=FeatureSequence(rows, 1.0, seen.backbone.name),
        activity=meter.finish(),
        cues=PictureCues(1.0, lines=tuple(lines)),
    )


def _card(text: str) -> npt.NDArray[np.uint8]:
    """Return a title card: the text in white on blue."""
    image = Image.new("RGB", (SIDE, SIDE), (20, 40, 90))
    ImageDraw.Draw(image).multiline_text(
        (12, 60), "\n".join(textwrap.wrap(text, 16)), fill="white", font_size=22
    )
    return np.asarray(image)


def print_whole(truths: dict[str, Any], known: dict[str, Record]) -> dict[str, Any]:
    """Print the table of all narrated clips, and one row a maker."""
    rows = {name: counts(truth, known[name]) for name, truth in truths.items()}
    steps = [row for row in rows.values() if "found" in row]
    whole = table(steps)
    false = sum(row.get("shown in clips that show nothing", 0) for row in rows.values())
    error = round(calibration(truths, known), 3)
    print("| | value [95 % interval] | of |\n|---|---|---|")
    for name, (value, low, high, of) in whole.items():
        print(f"| {name} | {value:.3f} [{low:.3f}, {high:.3f}] | {of} |")
    print(
        f"| steps shown in clips that show nothing | {false} | |\n| ECE of P(shown) | {error} | |"
    )
    makers: dict[str, list[dict[str, int]]] = {}
    for name, row in rows.items():
        if "found" in row:
            makers.setdefault(name.split("_")[0], []).append(row)
    print("\n| maker | at, stepline | at, voice | of |\n|---|---|---|---|")
    for maker, of_maker in makers.items():
        hits = [
            sum(row[key] for row in of_maker)
            for key in ("at, stepline", "at, voice", "at, voice of")
        ]
        print(f"| {maker} | {hits[0]} | {hits[1]} | {hits[2]} |")
    return {
        "table": whole,
        "shown in clips that show nothing": false,
        "ece": error,
        "clips": len(steps),
    }


def print_evidence(
    truths: dict[str, Any], known: dict[str, Record], seen: dict[str, VisualFeatures]
) -> dict[str, Any]:
    """Print one row for each choice of evidence."""
    result: dict[str, Any] = {}
    print(
        "| evidence | best second right | shown or only said | shown in clips that show nothing |\n|---|---|---|---|"
    )
    for row_name, kinds in EVIDENCE.items():
        placed = {
            name: placed_anew(record, without(seen[name], kinds)) for name, record in known.items()
        }
        rows = [counts(truth, placed[name]) for name, truth in truths.items()]
        figures = table([row for row in rows if "found" in row])
        false = sum(row.get("shown in clips that show nothing", 0) for row in rows)
        result[row_name] = {
            "at": figures["at, stepline"],
            "verdict": figures["verdict"],
            "false": false,
        }
        cells = (
            f"{v:.3f} [{a:.3f}, {b:.3f}]"
            for v, a, b, _ in (figures["at, stepline"], figures["verdict"])
        )
        print(f"| {row_name} | " + " | ".join(cells) + f" | {false} |", flush=True)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("clips", type=Path)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument(
        "--table", choices=("whole", "given", "evidence", "repeated", "wrong"), default="whole"
    )
    args = parser.parse_args()
    labels = json.loads((args.clips / "labels.json").read_text())
    truths = {
        name: truth
        for name, truth in labels.items()
        if not truth["steps"] or any(step.get("spoken") for step in truth["steps"])
    }
    known = records(args.clips, list(truths), args.cache)
    seen = (
        {}
        if args.table == "whole"
        else {name: pictures(args.clips / name, args.cache) for name in truths}
    )
    result: dict[str, Any] = {}
    if args.table == "whole":
        result = print_whole(truths, known)
    elif args.table == "given":
        texts = {
            name: [step["text"] for step in truth["steps"]]
            for name, truth in truths.items()
            if truth["steps"]
        }
        placed = {
            name: placed_anew(known[name], seen[name], lines) for name, lines in texts.items()
        }
        result = print_whole({name: truths[name] for name in texts}, placed)
    elif args.table == "evidence":
        result = print_evidence(truths, known, seen)
    else:
        kinds: tuple[Any, ...] = REPEATED if args.table == "repeated" else WRONG
        print("| pictures | steps shown | of |\n|---|---|---|")
        for kind in kinds:
            shown = of = 0
            for name, record in known.items():
                if not truths[name]["steps"] or not record.steps:
                    continue
                if args.table == "repeated":
                    once = repeated(record, seen[name], 1)
                    of += kind * sum(step.status == "shown" for step in placed_anew(*once).steps)
                    other = placed_anew(*repeated(record, seen[name], kind))
                else:
                    other = placed_anew(
                        record, wrong_pictures(kind, args.clips / name, record, seen[name])
                    )
                    of += len(other.steps)
                shown += sum(step.status == "shown" for step in other.steps)
            result[str(kind)] = [shown, of]
            print(f"| {kind} | {shown} | {of} |", flush=True)
    path = RESULTS / "real_clips.json"
    path.write_text(
        json.dumps(json.loads(path.read_text()) | {args.table: result}, indent=2) + "\n"
    )


if __name__ == "__main__":
    main()
