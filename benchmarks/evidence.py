"""Kinds of evidence that were measured and left out: python benchmarks/evidence.py CLIPS --cache
DIR [--drawn DIR]

Sounds (YAMNet, from `stepline weights get yamnet`), motion that repeats itself or goes up and down
(pictures at 8 per second). Also looks grouped by EfficientNet-Lite0's 1,280 pooled features instead
of thumbnails. They are the rows of docs/results/real_clips.md. CLIPS, DIR: as in real_clips.py,
--drawn: the cache of grounding.py. AUC: of the seconds marked "doing" against "talk", by a logistic
regression fitted on other makers' clips. Places: best seconds right of the found steps that are
shown, if the evidence moved them around their words. Its weight is best on other makers' clips.
"""

import argparse
import csv
import json
import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grounding
import numpy as np
import numpy.typing as npt
from correspondence import auc, maker
from real_clips import SLACK, counts, matched, pictures, placed_anew, records
from sklearn.linear_model import LogisticRegression

from stepline.asr.vad import voice_probability
from stepline.grounding import shots as shot_places
from stepline.grounding.evidence import shot_slices
from stepline.grounding.said_to_shown import load_prior
from stepline.grounding.settings import GroundSettings
from stepline.grounding.shots import odds_by_appearance, talking_heads
from stepline.media import Frame, MediaReader, probe, read_frames, read_sound
from stepline.pipeline.pictures import VisualFeatures
from stepline.records import Record
from stepline.text import embed
from stepline.vision import efficientnet
from stepline.weights import find_weights

Array = npt.NDArray[Any]
Labels = dict[str, Any]  # of all clips
Clip = dict[str, Array]  # what is known of a clip, arrays by name

# YAMNet: samples a second. S between patches of 96 frames, 64 bands
RATE, HOP, PATCH, MELS = 16_000, 0.48, 96, 64
# scale and zero point of its 8-bit input and output
AUDIO, SCORES = (0.047938, 144), (0.756542, 190)
# of AudioSet's classes, from engines to crunching: things, materials, kitchen, tools
HEARD = ("Engine", "Silence")
PICTURES, CELL = 8, 8  # pictures per second in which motion repeats itself; px of a cell
LOW, HIGH, WINDOW = 0.5, 3.0, 4.0  # Hz; seconds
WEIGHTS = (0.0, 0.5, 1.0, 2.0)  # nats a standard deviation
LEVELS = (0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5)  # mean cosine distance up to which looks are one
CLEAR = 0.3  # P(sound) from which it is counted as heard
AROUND, FARTHEST = 2.0, 6  # seconds around the words, a second late, in which a step is sought


def sounds(samples: npt.NDArray[np.float32]) -> Array:
    """Return (N, 521): P(sound) of AudioSet's classes every 0.48 s, by YAMNet's log mel
    spectrum."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(find_weights("yamnet") / "model.onnx", options)
    mel = 1127 * np.log1p(np.fft.rfftfreq(512, 1 / RATE) / 700)[:, None]
    edges = np.linspace(1127 * math.log1p(125 / 700), 1127 * math.log1p(7500 / 700), MELS + 2)
    low, mid, high = edges[:-2], edges[1:-1], edges[2:]
    # (257, 64)
    bands = np.maximum(0, np.minimum((mel - low) / (mid - low), (high - mel) / (high - mid)))
    frames = np.lib.stride_tricks.sliding_window_view(samples, 400)[::160]  # 25 ms every 10 ms
    spectrum = np.abs(
        np.fft.rfft(frames * (0.5 - 0.5 * np.cos(2 * np.pi * np.arange(400) / 400)), 512)
    )
    steps = np.log(spectrum @ bands + 0.001) / AUDIO[0] + AUDIO[1]
    patches = np.clip(np.round(steps), 0, 255).astype(np.uint8)
    found = [
        session.run(None, {"audio": patches[None, None, at : at + PATCH]})[0][0].astype(float)
        for at in range(0, len(patches) - PATCH + 1, PATCH // 2)
    ]
    return 1 / (1 + np.exp(-SCORES[0] * (np.array(found).reshape(-1, 521) - SCORES[1])))


def repeated_motion(clip: Path, cuts: Array, seconds: int) -> Array:
    """Return (T, 2): how much of the vertical motion, where most moves, has one frequency of 0.5 to
    3 Hz. How much of all motion goes down or up."""
    reader = MediaReader(clip, frame_rate=PICTURES, frame_size=96, sound=False)
    seen = [
        (frame.time, frame.image.mean(axis=2) / 255) for frame in reader if isinstance(frame, Frame)
    ]
    times, grey = np.array([at for at, _ in seen]), np.array([image for _, image in seen])
    middle, change = (grey[1:] + grey[:-1]) / 2, np.diff(grey, axis=0)
    down, right = np.gradient(middle, axis=(1, 2))
    xx, xy, yy = _cells(right * right) + 1e-4, _cells(right * down), _cells(down * down) + 1e-4
    # optical flow of each cell (Lucas and Kanade 1981)
    x, y = -_cells(right * change), -_cells(down * change)
    flow = np.stack([yy * x - xy * y, xx * y - xy * x]) / (xx * yy - xy * xy)  # (2, N, cells)
    out = np.zeros((seconds, 2))
    for t in range(seconds):
        first = max([t + 0.5 - WINDOW / 2, *cuts[cuts <= t + 0.5]])
        last = min([t + 0.5 + WINDOW / 2, *cuts[cuts > t + 0.5]])
        part = flow[:, (times[1:] >= first + 0.1) & (times[1:] < last - 0.1)]
        if part.shape[1] >= PICTURES:
            out[t] = _periodicity(part[1]), np.abs(part[1]).sum() / (np.abs(part).sum() + 1e-6)
    return out


def _cells(planes: Array) -> Array:
    """Return (N, cells): the mean of each cell of planes (N, H, W)."""
    height, width = (side // CELL for side in planes.shape[1:])
    whole = planes[:, : height * CELL, : width * CELL].reshape(-1, height, CELL, width, CELL)
    return whole.mean(axis=(2, 4)).reshape(len(planes), -1)


def _periodicity(rows: Array) -> float:
    """Return the greatest share of the power of rows (N, cells) within 0.25 Hz of one frequency. 5
    % of the cells."""
    at = np.arange(len(rows)) - (len(rows) - 1) / 2
    level = rows - rows.mean(axis=0)
    level = level - np.outer(at, at @ level / (at @ at))
    # bins of 1/8 Hz
    power = np.abs(np.fft.rfft(level * np.hanning(len(rows))[:, None], 64, axis=0)) ** 2
    frequency = np.fft.rfftfreq(64, 1 / PICTURES)
    power[frequency < LOW / 2] = 0
    most = np.argsort(-power.sum(axis=0))[: max(1, power.shape[1] // 20)]
    line = power[:, most].sum(axis=1)
    band = np.flatnonzero((frequency >= LOW) & (frequency <= HIGH))
    return float(max(line[k - 2 : k + 3].sum() for k in band) / max(line.sum(), 1e-12))


def pooled(images: Sequence[npt.NDArray[np.uint8]]) -> Array:
    """Return (T, 1280) unit rows: EfficientNet-Lite0 before its classifier, of pictures (H, W,
    3)."""
    raw = efficientnet._load_state_dict(find_weights("efficientnet-lite0"))
    parts = [
        [efficientnet._fold(conv, raw) for conv in part] for part in efficientnet.architecture()
    ]
    network = efficientnet._compile(
        parts, (np.eye(1280, dtype=np.float32), np.zeros(1280, np.float32))
    )
    rows = np.concatenate([network(image[None]) for image in images])
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), dtype=np.float64)


def observed(clip: Path, seen: VisualFeatures, cache: Path) -> Clip:
    """Return what else is seen and heard of a clip, and the CPU seconds of each kind. From the
    cache where it is."""
    store = cache / f"{clip.stem}.evidence.npz"
    if not store.exists():
        sound = [block.samples for block in read_sound(clip)] if probe(clip).has_sound else []
        samples = np.concatenate([*sound, np.zeros(2 * RATE, np.float32)])
        images = [frame.image for frame in read_frames(clip, 1.0, 224)]
        began = time.process_time()
        scores = sounds(samples)
        heard = time.process_time()
        motion = repeated_motion(clip, np.array(seen.activity.cuts), len(seen.cues.presenter))
        moved = time.process_time()
        rows = pooled(images)
        cpu = np.array([heard - began, moved - heard, time.process_time() - moved, seen.end])
        np.savez(
            store,
            sounds=scores,
            voice=voice_probability(samples),
            moves=motion,
            pooled=rows,
            cpu=cpu,
        )
    with np.load(store) as saved:
        return {"presenter": seen.cues.presenter, **{name: saved[name] for name in saved.files}}


def spoken(record: Record, seconds: int) -> Array:
    """Return (2, T): how long, within each second, something is said that steps rest on, and
    something else."""
    out, second = np.zeros((2, seconds)), np.arange(seconds)[:, None]
    used = {n for step in record.steps for n in step.sources}
    for n, sentence in enumerate(record.sentences):
        edges = np.clip([sentence.span.start, sentence.span.end], second, second + 1)
        out[int(n not in used)] += edges[:, 1] - edges[:, 0]
    return out


def by_second(clip: Clip, record: Record | None, classes: slice) -> dict[str, Array]:
    """Return, (T,) each: the face, the company of words, and each kind of evidence that might tell
    doing from talk."""
    seconds = len(clip["presenter"])
    told, chat = spoken(record, seconds) if record else np.zeros((2, seconds))
    near = np.exp(-np.abs(np.subtract.outer(np.arange(seconds), np.arange(seconds))) / 4)
    face = np.convolve(
        np.pad(np.nan_to_num(clip["presenter"]), 1, mode="edge"), np.ones(3) / 3, "valid"
    )
    patches = [
        slice(max(0, int((t - 0.5) / HOP)), int((t + 0.6) / HOP) + 1) for t in range(seconds)
    ]
    thing = [np.log(clip["sounds"][part][:, classes].max(initial=0.0) + 0.01) for part in patches]
    moves = np.resize(clip["moves"], (seconds, 2))
    return {
        "face": face,
        "words": np.log((near @ told + 1) / (near @ chat + 1)),
        "sounds of things": np.array(thing),
        "motion that repeats": moves[:, 0],
        "motion up and down": moves[:, 1],
    }


def doing(rows: dict[str, dict[str, Array]], labels: Labels, columns: Sequence[str]) -> float:
    """Return the AUC of the seconds marked doing against talk, by weights of other makers'
    clips."""
    scores, truths = [], []
    kinds = {name: _kinds(labels[name]["shots"], len(row["face"])) for name, row in rows.items()}
    for left_out in sorted({maker(name) for name in rows}):
        parts: dict[bool, list[tuple[Array, Array]]] = {True: [], False: []}
        for name, row in rows.items():
            kept = kinds[name] >= 0
            stacked = np.stack([row[column] for column in columns], axis=1)[kept]
            parts[maker(name) == left_out].append((stacked, kinds[name][kept]))
        given, own = (
            tuple(map(np.concatenate, zip(*parts[test], strict=True))) for test in (False, True)
        )
        # Long clips count for less than their seconds, and both classes the same.
        weights = np.concatenate(
            [
                1 / (20 + np.bincount(y.astype(int), minlength=2)[y.astype(int)])
                for _, y in parts[False]
            ]
        )
        for kind in (0, 1):
            weights[given[1] == kind] *= 100 / weights[given[1] == kind].sum()
        model = LogisticRegression(C=1.0).fit(*given, sample_weight=weights)
        scores.append(model.decision_function(own[0]) if len(own[0]) else np.zeros(0))
        truths.append(own[1])
    score, truth = np.concatenate(scores), np.concatenate(truths)
    return auc(score[truth > 0], score[truth == 0])


def _kinds(shots: Sequence[tuple[float, float, str]], seconds: int) -> Array:
    """Return (T,): 1 doing, 0 talk, -1 another kind or none."""
    names = [next((kind for a, b, kind in shots if a <= t + 0.5 < b), "") for t in range(seconds)]
    return np.array([{"doing": 1, "talk": 0}.get(name, -1) for name in names])


@dataclass(frozen=True)
class Found:
    """A labelled step that was found and is shown: where, the second after its words, and evidence
    (T,) of a kind."""

    maker: str
    shown: Sequence[tuple[float, float]]
    at: float
    evidence: dict[str, Array]

    def hit(self, kind: str, weight: float) -> tuple[bool, bool]:
        """Return whether the best second is right with the evidence, and whether it lies over 1 s
        elsewhere."""
        row = self.evidence[kind]
        seconds = (
            np.arange(max(0, int(self.at) - FARTHEST), min(len(row), int(self.at) + FARTHEST + 1))
            + 0.5
        )
        part = row[seconds.astype(int)]
        likely = -0.5 * ((seconds - self.at) / AROUND) ** 2 + weight * (part - part.mean()) / max(
            row.std(), 1e-6
        )
        best = float(seconds[likely.argmax()]) if weight else self.at
        return any(a - SLACK <= best <= b + SLACK for a, b in self.shown), abs(best - self.at) > 1


def places(steps: Sequence[Found], kind: str) -> dict[str, int]:
    """Return how many best seconds are right and moved, each maker at the weight that is best on
    the others."""
    right = moved = 0
    for own in sorted({step.maker for step in steps}):
        others = [step for step in steps if step.maker != own]
        weight = max(WEIGHTS, key=lambda w: (sum(step.hit(kind, w)[0] for step in others), -w))
        hits = [step.hit(kind, weight) for step in steps if step.maker == own]
        right, moved = right + sum(hit for hit, _ in hits), moved + sum(move for _, move in hits)
    forced = [step.hit(kind, 1.0) for step in steps]
    return {
        "right": right,
        "moved": moved,
        "right at weight 1": sum(hit for hit, _ in forced),
        "moved at weight 1": sum(move for _, move in forced),
        "of": len(steps),
    }


def heard_in_pauses(
    clip: Clip, step_vectors: Array, class_vectors: Array, classes: slice
) -> tuple[Array, Array]:
    """Return (K, T) how like its step what is heard in the pauses is, and (N,) the patches without
    a voice."""
    patches, seconds = clip["sounds"][:, classes], len(clip["presenter"])
    frames = (np.arange(len(patches))[:, None] * HOP * 31.25 + np.arange(30)).astype(int)
    quiet = (clip["voice"][np.minimum(frames, len(clip["voice"]) - 1)] >= 0.5).mean(axis=1) <= 0.1
    # (K, N)
    like = (
        (step_vectors - step_vectors.mean(axis=0)) @ class_vectors.T @ (patches * quiet[:, None]).T
    )
    parts = [slice(max(0, int((t - 0.5) / HOP)), int((t + 0.6) / HOP) + 1) for t in range(seconds)]
    return np.stack([like[:, part].sum(axis=1) for part in parts], axis=1), quiet


@contextmanager
def looks_of(rows: Array, level: float | None) -> Iterator[None]:
    """Let shots be grouped by their mean rows (T, 1280), by cosine. `level` None leaves the
    thumbnails."""

    def group(shots: Sequence[slice], _: Array) -> Array:
        inner = [slice(s.start + 1, s.stop - 1) if s.stop - s.start > 2 else s for s in shots]
        means = np.array([rows[s].mean(axis=0) if len(rows[s]) else rows[-1] for s in inner])
        means /= np.linalg.norm(means, axis=1, keepdims=True)
        return shot_places.average_linkage(1 - means @ means.T, level or 0.0)

    thumbnails = shot_places._group_by_look
    shot_places._group_by_look = thumbnails if level is None else group
    try:
        yield
    finally:
        shot_places._group_by_look = thumbnails


def looks_row(
    level: float | None,
    labels: Labels,
    known: dict[str, Record],
    seen: dict[str, VisualFeatures],
    rows: dict[str, Clip],
) -> list[int]:
    """Return best seconds right, seconds of talk that a look finds, and seconds of doing that it
    calls talk."""
    right = talk = wrong = 0
    for name, record in known.items():
        seconds = math.ceil(record.video.duration or 0)
        with looks_of(rows[name]["pooled"], level):
            right += counts(labels[name], placed_anew(record, seen[name]))["at, stepline"]
            shots = shot_slices(seen[name].activity.cuts, seconds)
            said = [[step.said] if step.said else [] for step in record.steps]
            prior = np.array([load_prior().distribution(spans, seconds, lag=1.0) for spans in said])
            company = odds_by_appearance(
                seen[name].activity, shots, prior, spoken(record, seconds)[1]
            )
        head = talking_heads(company, shots) < -GroundSettings().talk
        kinds = _kinds(labels[name]["shots"], seconds)
        talk, wrong = (
            talk + int((head & (kinds == 0)).sum()),
            wrong + int((head & (kinds == 1)).sum()),
        )
    return [right, talk, wrong]


def drawn_row(level: float | None, cache: Path) -> float:
    """Return R@1 of the drawn videos 200 to 229."""
    rows: list[grounding.Item] = []
    for seed in range(200, 230):
        video, script = grounding.rendered(seed, cache)
        store = video.with_suffix(".pooled.npy")
        if not store.exists():
            np.save(store, pooled([frame.image for frame in read_frames(video, 1.0, 224)]))
        with looks_of(np.load(store), level):
            rows += grounding.items(
                seed,
                script,
                grounding.seen(video, [s.text for s in script.steps]),
                GroundSettings(),
            )
    return grounding.summary(rows)["R@1"][1]


def print_cpu(clips: dict[str, Any]) -> None:
    """Print what each look at the clips costs."""
    cpu = (
        60
        * sum(clip["cpu"][:3] for clip in clips.values())
        / sum(clip["cpu"][3] for clip in clips.values())
    )
    print(
        "CPU s a minute: sounds {:.2f}, motion at 8 pictures a second {:.2f}, Lite0 (as it is) {:.2f}".format(
            *cpu
        )
    )


def read_options() -> argparse.Namespace:
    """Return what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("clips", type=Path)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument(
        "--drawn", type=Path, help="cache of grounding.py, for the looks on drawn videos"
    )
    return parser.parse_args()


def main() -> None:
    args = read_options()
    labels = json.loads((args.clips / "labels.json").read_text())
    told = [
        name
        for name, t in labels.items()
        if not t["steps"] or any(step.get("spoken") for step in t["steps"])
    ]
    spoken_of = records(args.clips, told, args.cache)
    known = {
        name: record for name, record in spoken_of.items() if record.steps and labels[name]["steps"]
    }
    seen = {name: pictures(args.clips / name, args.cache) for name in labels}
    clips = {name: observed(args.clips / name, visual, args.cache) for name, visual in seen.items()}
    with (find_weights("yamnet") / "yamnet_class_map.csv").open() as file:
        names = [row["display_name"] for row in csv.DictReader(file)]
    classes = slice(names.index(HEARD[0]), names.index(HEARD[1]))
    print_cpu(clips)

    rows = {name: by_second(clip, spoken_of.get(name), classes) for name, clip in clips.items()}
    kinds = ("sounds of things", "motion that repeats", "motion up and down")
    for columns in [
        ("face", "words"),
        *((kind,) for kind in kinds),
        *(("face", "words", kind) for kind in kinds),
    ]:
        print(f"AUC {doing(rows, labels, columns):.3f}", ", ".join(columns))

    steps, pauses, audible = [], 0.0, 0
    vectors = embed(names[classes])
    for name, record in known.items():
        like, quiet = heard_in_pauses(
            clips[name], embed([step.text for step in record.steps]), vectors, classes
        )
        pauses += HOP * float(quiet.sum())
        audible += int(((clips[name]["sounds"][:, classes].max(axis=1) >= CLEAR) & quiet).sum())
        for label, step in matched(labels[name]["steps"], record.steps):
            if label.get("shown") and step.said is not None:
                row = like[[each.id for each in record.steps].index(step.id)]
                evidence = {kind: rows[name][kind] for kind in kinds[1:]} | {
                    "sounds in pauses": row
                }
                middle = (step.said.start + step.said.end) / 2 + 1
                steps.append(Found(maker(name), label["shown"], middle, evidence))
    print(f"pauses: {pauses:.0f} s, {audible} patches of 0.96 s with a thing at P >= {CLEAR}")
    for kind in ("sounds in pauses", *kinds[1:]):
        print(kind, places(steps, kind))
    for level in (None, *LEVELS):
        drawn = f", drawn R@1 {drawn_row(level, args.drawn):.3f}" if args.drawn else ""
        print(
            "looks by",
            "thumbnails" if level is None else f"Lite0 at {level}",
            end=": right, talk, doing as talk ",
        )
        print(looks_row(level, labels, known, seen, clips), drawn)


if __name__ == "__main__":
    main()
