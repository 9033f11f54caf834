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
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grounding
import numpy as np
from correspondence import auc, maker
from evidence_signals import PATCH_STEP_SECONDS, Array, Clip, observed, pooled
from real_clips import SLACK_SECONDS, counts, matched, pictures, placed_anew, records
from sklearn.linear_model import LogisticRegression

from stepline.grounding import shots as shot_places
from stepline.grounding.evidence import shot_slices
from stepline.grounding.said_to_shown import load_prior
from stepline.grounding.settings import GroundSettings
from stepline.grounding.shots import odds_by_appearance, talking_heads
from stepline.media import read_frames
from stepline.networks.weights import find_weights
from stepline.pipeline.pictures import VisualFeatures
from stepline.records import Record
from stepline.text import embed

Labels = dict[str, Any]  # of all clips
Rows = dict[str, dict[str, Array]]  # by clip and kind of evidence, (T,)
Instances = tuple[Array, Array]  # columns (N, C) and their class (N,)

# Of AudioSet's classes, from engines to crunching: things, materials, kitchen, tools.
FIRST_THING_CLASS = "Engine"
END_THING_CLASS = "Silence"
EVIDENCE_WEIGHTS = (0.0, 0.5, 1.0, 2.0)  # nats per standard deviation
# Mean cosine distances up to which looks are one
LOOK_LEVELS = (0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5)
MIN_SOUND_PROBABILITY = 0.3  # from which a sound is counted as heard
# Seconds around the words, a second late, in which a step is sought
AROUND_SECONDS = 2.0
FARTHEST_SECONDS = 6


def spoken(record: Record, seconds: int) -> Array:
    """Return (2, T): how long, within each second, something is said that steps rest on, and
    something else."""
    speech = np.zeros((2, seconds))
    second = np.arange(seconds)[:, None]
    used = {n for step in record.steps for n in step.sources}
    for n, sentence in enumerate(record.sentences):
        span = [sentence.span.start, sentence.span.end]
        edges = np.clip(span, second, second + 1)
        row = 0 if n in used else 1
        speech[row] += edges[:, 1] - edges[:, 0]
    return speech


def patches_of_seconds(seconds: int) -> list[slice]:
    """Return the patches of sound that touch each second."""
    patches = []
    for t in range(seconds):
        first = max(0, int((t - 0.5) / PATCH_STEP_SECONDS))
        last = int((t + 0.6) / PATCH_STEP_SECONDS)
        patches.append(slice(first, last + 1))
    return patches


def by_second(clip: Clip, record: Record | None, classes: slice) -> dict[str, Array]:
    """Return, (T,) each: the face, the company of words, and each kind of evidence that might tell
    doing from talk."""
    seconds = len(clip["presenter"])
    step_speech, other_speech = np.zeros((2, seconds))
    if record:
        step_speech, other_speech = spoken(record, seconds)
    at = np.arange(seconds)
    distances = np.abs(np.subtract.outer(at, at))
    near = np.exp(-distances / 4)
    words = (near @ step_speech + 1) / (near @ other_speech + 1)
    # The mean of three seconds
    presenter = np.pad(np.nan_to_num(clip["presenter"]), 1, mode="edge")
    face = np.convolve(presenter, np.ones(3) / 3, "valid")
    things = []
    for patches in patches_of_seconds(seconds):
        loudest = clip["sounds"][patches][:, classes].max(initial=0.0)
        things.append(np.log(loudest + 0.01))
    moves = np.resize(clip["moves"], (seconds, 2))
    return {
        "face": face,
        "words": np.log(words),
        "sounds of things": np.array(things),
        "motion that repeats": moves[:, 0],
        "motion up and down": moves[:, 1],
    }


def doing(rows: Rows, labels: Labels, columns: Sequence[str]) -> float:
    """Return the AUC of the seconds marked doing against talk, by weights of other makers'
    clips."""
    scores = []
    truths = []
    kinds = {}
    for name, row in rows.items():
        kinds[name] = _kinds(labels[name]["shots"], len(row["face"]))
    for left_out in sorted({maker(name) for name in rows}):
        train: list[Instances] = []
        test: list[Instances] = []
        for name, row in rows.items():
            own_kinds = kinds[name]
            has_label = own_kinds >= 0
            stacked = np.stack([row[column] for column in columns], axis=1)
            part = test if maker(name) == left_out else train
            part.append((stacked[has_label], own_kinds[has_label]))
        train_columns = np.concatenate([stacked for stacked, _ in train])
        train_kinds = np.concatenate([kind for _, kind in train])
        test_columns = np.concatenate([stacked for stacked, _ in test])
        model = LogisticRegression(C=1.0)
        model.fit(train_columns, train_kinds, sample_weight=_second_weights(train))
        score = np.zeros(0)
        if len(test_columns):
            score = model.decision_function(test_columns)
        scores.append(score)
        truths.append(np.concatenate([kind for _, kind in test]))
    score = np.concatenate(scores)
    truth = np.concatenate(truths)
    return auc(score[truth > 0], score[truth == 0])


def _second_weights(train: Sequence[Instances]) -> Array:
    """Return the weight of each second, (N,).

    Long clips count for less than their seconds, and both classes the same.
    """
    parts = []
    for _, kind in train:
        classes = kind.astype(int)
        counts_of_classes = np.bincount(classes, minlength=2)
        parts.append(1 / (20 + counts_of_classes[classes]))
    weights = np.concatenate(parts)
    kinds = np.concatenate([kind for _, kind in train])
    for kind in (0, 1):
        is_kind = kinds == kind
        weights[is_kind] *= 100 / weights[is_kind].sum()
    return weights


def _kinds(shots: Sequence[tuple[float, float, str]], seconds: int) -> Array:
    """Return (T,): 1 doing, 0 talk, -1 another kind or none."""
    classes = {"doing": 1, "talk": 0}
    kinds = []
    for t in range(seconds):
        names = (kind for start, end, kind in shots if start <= t + 0.5 < end)
        name = next(names, "")
        kinds.append(classes.get(name, -1))
    return np.array(kinds)


@dataclass(frozen=True)
class ShownStep:
    """A labelled step that was found and is shown: where, the second after its words, and evidence
    (T,) of a kind."""

    maker: str
    spans: Sequence[tuple[float, float]]
    at: float
    evidence: dict[str, Array]

    def hit(self, kind: str, weight: float) -> tuple[bool, bool]:
        """Return whether the best second is right with the evidence, and whether it lies over 1 s
        elsewhere."""
        row = self.evidence[kind]
        first = max(0, int(self.at) - FARTHEST_SECONDS)
        end = min(len(row), int(self.at) + FARTHEST_SECONDS + 1)
        seconds = np.arange(first, end) + 0.5
        part = row[seconds.astype(int)]
        near_words = -0.5 * ((seconds - self.at) / AROUND_SECONDS) ** 2
        spread = max(row.std(), 1e-6)
        likely = near_words + weight * (part - part.mean()) / spread
        best = self.at
        if weight:
            best = float(seconds[likely.argmax()])
        is_right = any(
            start - SLACK_SECONDS <= best <= end + SLACK_SECONDS for start, end in self.spans
        )
        return is_right, abs(best - self.at) > 1


def places(steps: Sequence[ShownStep], kind: str) -> dict[str, int]:
    """Return how many best seconds are right and moved, each maker at the weight that is best on
    the others."""
    right = 0
    moved = 0
    for own in sorted({step.maker for step in steps}):
        others = [step for step in steps if step.maker != own]
        right_of_others = {}
        for weight in EVIDENCE_WEIGHTS:
            hits = [step.hit(kind, weight) for step in others]
            right_of_others[weight] = sum(hit for hit, _ in hits)
        # Of equals the smallest weight
        best = max(EVIDENCE_WEIGHTS, key=lambda weight: (right_of_others[weight], -weight))
        own_steps = [step for step in steps if step.maker == own]
        hits = [step.hit(kind, best) for step in own_steps]
        right += sum(hit for hit, _ in hits)
        moved += sum(move for _, move in hits)
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
    patches = clip["sounds"][:, classes]
    # A patch is quiet where at most a tenth of its frames has a voice.
    voice = clip["voice"]
    first_frames = np.arange(len(patches))[:, None] * PATCH_STEP_SECONDS * 31.25
    frames = (first_frames + np.arange(30)).astype(int)
    frames = np.minimum(frames, len(voice) - 1)
    has_voice = voice[frames] >= 0.5
    quiet = has_voice.mean(axis=1) <= 0.1
    contrast = step_vectors - step_vectors.mean(axis=0)
    quiet_patches = patches * quiet[:, None]
    like = contrast @ class_vectors.T @ quiet_patches.T  # (K, N)
    columns = []
    for part in patches_of_seconds(len(clip["presenter"])):
        columns.append(like[:, part].sum(axis=1))
    return np.stack(columns, axis=1), quiet


@contextmanager
def looks_of(rows: Array, level: float | None) -> Iterator[None]:
    """Let shots be grouped by their mean rows (T, 1280), by cosine. `level` None leaves the
    thumbnails."""

    def group(shots: Sequence[slice], _: Array) -> Array:
        means = np.array([_mean_look(rows, shot) for shot in shots])
        means /= np.linalg.norm(means, axis=1, keepdims=True)
        return shot_places.average_linkage(1 - means @ means.T, level or 0.0)

    thumbnails = shot_places._group_by_look
    shot_places._group_by_look = thumbnails if level is None else group
    try:
        yield
    finally:
        shot_places._group_by_look = thumbnails


def _mean_look(rows: Array, shot: slice) -> Array:
    """Return the mean row of a shot, (1280,), without its first and last second if it is long."""
    if shot.stop - shot.start > 2:
        shot = slice(shot.start + 1, shot.stop - 1)
    if not len(rows[shot]):
        return rows[-1]
    return rows[shot].mean(axis=0)


def looks_row(
    level: float | None,
    labels: Labels,
    step_records: dict[str, Record],
    visuals: dict[str, VisualFeatures],
    rows: dict[str, Clip],
) -> list[int]:
    """Return best seconds right, seconds of talk that a look finds, and seconds of doing that it
    calls talk."""
    right = 0
    talk = 0
    wrong = 0
    for name, record in step_records.items():
        visual = visuals[name]
        seconds = math.ceil(record.video.duration or 0)
        with looks_of(rows[name]["pooled"], level):
            right += counts(labels[name], placed_anew(record, visual))["at, stepline"]
            shots = shot_slices(visual.activity.cuts, seconds)
            priors = []
            for step in record.steps:
                spans = [step.said] if step.said else []
                priors.append(load_prior().distribution(spans, seconds, lag=1.0))
            other_speech = spoken(record, seconds)[1]
            company = odds_by_appearance(visual.activity, shots, np.array(priors), other_speech)
        head = talking_heads(company, shots) < -GroundSettings().talk
        kinds = _kinds(labels[name]["shots"], seconds)
        talk += int((head & (kinds == 0)).sum())
        wrong += int((head & (kinds == 1)).sum())
    return [right, talk, wrong]


def drawn_row(level: float | None, cache: Path) -> float:
    """Return R@1 of the drawn videos 200 to 229."""
    rows: list[grounding.Item] = []
    for seed in range(200, 230):
        video, script = grounding.rendered(seed, cache)
        store = video.with_suffix(".pooled.npy")
        if not store.exists():
            images = [frame.image for frame in read_frames(video, 1.0, 224)]
            np.save(store, pooled(images))
        with looks_of(np.load(store), level):
            visual = grounding.seen(video, [step.text for step in script.steps])
            rows += grounding.items(seed, script, visual, GroundSettings())
    return grounding.summary(rows)["R@1"][1]


def print_cpu(clips: dict[str, Clip]) -> None:
    """Print what each look at the clips costs."""
    cpu_seconds = sum(clip["cpu"][:3] for clip in clips.values())
    video_seconds = sum(clip["cpu"][3] for clip in clips.values())
    sound, motion, look = 60 * cpu_seconds / video_seconds
    print(
        f"CPU s per minute: sounds {sound:.2f}, motion at 8 pictures per second {motion:.2f},"
        f" Lite0 (as it is) {look:.2f}"
    )


MOTION_KINDS = ("motion that repeats", "motion up and down")


def print_doing(rows: Rows, labels: Labels) -> None:
    """Print the AUC of each kind of evidence, alone and next to the face and the words."""
    kinds = ("sounds of things", *MOTION_KINDS)
    column_sets: list[tuple[str, ...]] = [("face", "words")]
    column_sets += [(kind,) for kind in kinds]
    column_sets += [("face", "words", kind) for kind in kinds]
    for columns in column_sets:
        print(f"AUC {doing(rows, labels, columns):.3f}", ", ".join(columns))


def print_places(
    labels: Labels,
    step_records: dict[str, Record],
    clips: dict[str, Clip],
    rows: Rows,
    class_names: list[str],
) -> None:
    """Print how many best seconds are right with each kind of evidence."""
    classes = thing_classes(class_names)
    class_vectors = embed(class_names[classes])
    steps = []
    pause_seconds = 0.0
    audible = 0
    for name, record in step_records.items():
        step_vectors = embed([step.text for step in record.steps])
        like, quiet = heard_in_pauses(clips[name], step_vectors, class_vectors, classes)
        pause_seconds += PATCH_STEP_SECONDS * float(quiet.sum())
        loudest = clips[name]["sounds"][:, classes].max(axis=1)
        audible += int(((loudest >= MIN_SOUND_PROBABILITY) & quiet).sum())
        step_ids = [step.id for step in record.steps]
        for label, step in matched(labels[name]["steps"], record.steps):
            if label.get("shown") and step.said is not None:
                evidence = {kind: rows[name][kind] for kind in MOTION_KINDS}
                evidence["sounds in pauses"] = like[step_ids.index(step.id)]
                late_middle = (step.said.start + step.said.end) / 2 + 1
                steps.append(ShownStep(maker(name), label["shown"], late_middle, evidence))
    print(
        f"pauses: {pause_seconds:.0f} s, {audible} patches of 0.96 s with a thing at"
        f" P >= {MIN_SOUND_PROBABILITY}"
    )
    for kind in ("sounds in pauses", *MOTION_KINDS):
        print(kind, places(steps, kind))


def thing_classes(class_names: list[str]) -> slice:
    """Return the classes of AudioSet that are sounds of things."""
    first = class_names.index(FIRST_THING_CLASS)
    return slice(first, class_names.index(END_THING_CLASS))


def read_options() -> argparse.Namespace:
    """Return what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("clips", type=Path)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument(
        "--drawn", type=Path, help="cache of grounding.py, for the looks on drawn videos"
    )
    return parser.parse_args()


def is_spoken(truth: dict[str, Any]) -> bool:
    """Say whether a step of a clip is spoken, or the clip has no steps."""
    return not truth["steps"] or any(step.get("spoken") for step in truth["steps"])


def main() -> None:
    options = read_options()
    labels = json.loads((options.clips / "labels.json").read_text())
    # The clips: records, pictures and evidence
    spoken_names = [name for name, truth in labels.items() if is_spoken(truth)]
    spoken_records = records(options.clips, spoken_names, options.cache)
    step_records = {}
    for name, record in spoken_records.items():
        if record.steps and labels[name]["steps"]:
            step_records[name] = record
    visuals = {name: pictures(options.clips / name, options.cache) for name in labels}
    clips = {}
    for name, visual in visuals.items():
        clips[name] = observed(options.clips / name, visual, options.cache)
    with (find_weights("yamnet") / "yamnet_class_map.csv").open() as file:
        class_names = [row["display_name"] for row in csv.DictReader(file)]
    print_cpu(clips)

    # The tables
    rows = {}
    for name, clip in clips.items():
        rows[name] = by_second(clip, spoken_records.get(name), thing_classes(class_names))
    print_doing(rows, labels)
    print_places(labels, step_records, clips, rows, class_names)
    for level in (None, *LOOK_LEVELS):
        drawn = ""
        if options.drawn:
            drawn = f", drawn R@1 {drawn_row(level, options.drawn):.3f}"
        look = "thumbnails" if level is None else f"Lite0 at {level}"
        print("looks by", look, end=": right, talk, doing as talk ")
        print(looks_row(level, labels, step_records, visuals, clips), drawn)


if __name__ == "__main__":
    main()
