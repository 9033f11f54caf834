"""A simulation on disk, in the formats of the real datasets, so that the readers of those read it.

    ht-step/annotations.json, taxonomy.csv, video_splits.json     recipe lines and where they are shown
    htm_align.json                                                the held-out videos' sentences and where
    whisperx/{id}.json                                            the narration, with words
    caption.json                                                  the narration in HowTo100M's columns
    howtostep/{id}.json                                           the written steps, times of their sentences
    youcook2/yc2_train.json, yc2_val.json                         a person's captions, flat form
    recipes.json                                                  {title: lines}, the text base
    features/{backbone}/{id}.pth.tar or {id}.mp4.npy              the video's features, half, 1 row/s
    texts/{backbone}/{style}/{id}.pth                             {vid, start, end, text, features}
    texts/embedder/{style}/{id}.pth                               the same of the encoder that links texts

One video is in memory at a time. The files of all videos are written last, each whole or not at
all. So a folder without ht-step/annotations.json was not finished.
"""

import csv
import io
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import numpy as np

from lab.simulate.narration import TEXT_STYLES, Lines, Style, article_lines
from lab.simulate.settings import EMBEDDER_NAME, RECOGNISER_SETTINGS
from lab.simulate.simulation import Simulation, recipes
from lab.simulate.texts import texts, title
from lab.simulate.video import (
    SimulatedVideo,
    World,
    make_transcript,
    person_captions,
    shown_texts,
    spoken_words,
)
from stepline.errors import StoreError
from stepline.files.atomic_files import write_atomic
from stepline.records import Matrix, Step

FeatureFile: TypeAlias = Literal["pth.tar", "npy"]
Tree: TypeAlias = Any  # a JSON value

TAXONOMY_COLUMNS: Final = (
    "global_step_index",
    "activity",
    "step_index",
    "variation",
    "variation_index",
    "headline",
    "paragraph",
)
YOUCOOK2_FILES: Final = {"train": "yc2_train.json", "val": "yc2_val.json"}


@dataclass
class SharedFiles:
    """The files that hold all videos, while they grow."""

    steps: dict[str, Tree] = field(default_factory=dict)
    splits: dict[str, list[str]] = field(default_factory=dict)
    align: dict[str, Tree] = field(default_factory=dict)
    captions: dict[str, Tree] = field(default_factory=dict)
    captioned: dict[str, dict[str, Tree]] = field(
        default_factory=lambda: {split: {} for split in YOUCOOK2_FILES}
    )


def write_dataset(
    simulation: Simulation,
    folder: Path,
    *,
    backbones: Sequence[str] | None = None,
    features: FeatureFile = "pth.tar",
) -> None:
    """Write the annotations, texts and features of all videos. `backbones`: the settings' own where
    none is given."""
    write_videos(
        simulation.world, simulation.videos, folder, backbones=backbones, features=features
    )


def write_videos(
    world: World,
    videos: Iterable[SimulatedVideo],
    folder: Path,
    *,
    backbones: Sequence[str] | None = None,
    features: FeatureFile = "pth.tar",
) -> int:
    """Write the videos that a stream gives, as `write_dataset` does, and return how many there
    were."""
    names = (world.settings.backbone,) if backbones is None else tuple(backbones)
    encoders = [world.encoder(name).name for name in names]
    shared = SharedFiles()
    count = 0
    for video in videos:
        _annotate(shared, video)
        _write_transcript_and_steps(folder, video)
        for backbone in encoders:
            _write_features(folder / "features" / backbone, video, backbone, features)
        _write_vectors(folder / "texts", video, encoders)
        count += 1
    _write_shared(folder, shared, world)
    return count


def _annotate(shared: SharedFiles, video: SimulatedVideo) -> None:
    """Add one video to the files that hold them all."""
    # HT-Step
    segments = []
    for step in shown_texts(video, "recipe"):
        for span in step.spans:
            segments.append({"id": int(step.id), "segment": [span.start, span.end]})
    shared.steps[video.id] = {
        "subset": video.subset,
        "activity": title(video.task.number),
        "annotations": segments,
    }
    shared.splits.setdefault(video.subset, []).append(video.id)

    # HowTo100M and HTM-Align
    is_training = video.subset == "train"
    shared.captions[video.id] = _timed_columns(video, video.narration)
    if not is_training:
        shared.align[video.id] = [_htm_align_row(step) for step in shown_texts(video, "narration")]

    # YouCook2
    captions = person_captions(video)
    shared.captioned["train" if is_training else "val"][video.id] = {
        "duration": video.duration,
        "timestamps": [[step.spans[0].start, step.spans[0].end] for step in captions],
        "sentences": [step.text for step in captions],
    }


def _htm_align_row(step: Step) -> Tree:
    is_shown = len(step.spans) > 0
    span = step.spans[0] if is_shown else step.said
    start = span.start if span else 0.0
    end = span.end if span else 0.0
    return [int(is_shown), start, end, step.text]


def _timed_columns(video: SimulatedVideo, lines: Lines) -> dict[str, Tree]:
    """Return texts with their times in columns."""
    recogniser = RECOGNISER_SETTINGS[video.world.settings.recogniser]
    return {
        "start": lines.times[:, 0].tolist(),
        "end": lines.times[:, 1].tolist(),
        "text": list(texts(lines, recogniser)),
    }


def _write_transcript_and_steps(folder: Path, video: SimulatedVideo) -> None:
    recogniser = video.world.settings.recogniser
    segments = []
    for sentence in make_transcript(video.narration, recogniser).sentences:
        segment = {
            "start": sentence.span.start,
            "end": sentence.span.end,
            "text": sentence.text,
            "words": spoken_words(sentence.text, sentence.span, RECOGNISER_SETTINGS[recogniser]),
        }
        segments.append(segment)
    transcript = {"segments": segments, "language": "en"}
    _write(folder / "whisperx" / f"{video.id}.json", _json(transcript))
    _write(folder / "howtostep" / f"{video.id}.json", _json(_timed_columns(video, video.steps)))


def _write_shared(folder: Path, shared: SharedFiles, world: World) -> None:
    write_atomic(folder / "ht-step" / "taxonomy.csv", _taxonomy(world))
    files = {
        "ht-step/video_splits.json": shared.splits,
        "htm_align.json": shared.align,
        "caption.json": shared.captions,
    }
    for split, name in YOUCOOK2_FILES.items():
        files[f"youcook2/{name}"] = shared.captioned[split]
    files["recipes.json"] = recipes(world)
    # last: a folder without it was not finished
    files["ht-step/annotations.json"] = shared.steps
    for name, tree in files.items():
        write_atomic(folder / name, _json(tree))


def _taxonomy(world: World) -> str:
    """Return HT-Step's table of all articles' lines."""
    table = io.StringIO()
    rows = csv.writer(table, lineterminator="\n")
    rows.writerow(TAXONOMY_COLUMNS)
    for task in world.domain.tasks:
        first = world.domain.first_line(task.number)
        lines = article_lines(task, world.wordings[task.number])
        for index, headline in enumerate(texts(lines)):
            rows.writerow((first + index, title(task.number), index, "none", 0, headline, ""))
    return table.getvalue()


def _write_features(folder: Path, video: SimulatedVideo, backbone: str, kind: FeatureFile) -> None:
    """Write half-precision features as NaSVA's authors released theirs, or as HowTo100M's did."""
    values = video.features(backbone).values.astype(np.float16)
    if kind == "pth.tar":
        import torch

        _write(folder / f"{video.id}.pth.tar", _torch_bytes(torch.from_numpy(values)))
    else:
        file = io.BytesIO()
        np.save(file, values, allow_pickle=False)
        _write(folder / f"{video.id}.mp4.npy", file.getvalue())


def _write_vectors(folder: Path, video: SimulatedVideo, backbones: Sequence[str]) -> None:
    import torch

    for style in TEXT_STYLES:
        columns = _text_columns(video, style)
        vectors: dict[str, Matrix] = {name: video.vectors(style, name) for name in backbones}
        vectors[EMBEDDER_NAME] = video.embeddings(style)
        for name, values in vectors.items():
            features = torch.from_numpy(values.astype(np.float16))
            content = columns | {"features": features}
            _write(folder / name / style / f"{video.id}.pth", _torch_bytes(content))


def _torch_bytes(content: Tree) -> bytes:
    """Return what torch.save writes. Into a named file it would write that name too, and no two
    writes were equal."""
    import torch

    file = io.BytesIO()
    torch.save(content, file)
    return file.getvalue()


def _text_columns(video: SimulatedVideo, style: Style) -> dict[str, Tree]:
    columns = _timed_columns(video, video.lines(style))
    if style == "recipe":  # no one says an article's lines
        return {"vid": video.id, "text": columns["text"]}
    return {"vid": video.id} | columns


def _write(path: Path, data: bytes) -> None:
    """Write one video's file. Not flushed to disk each, which would take longer than the
    simulation."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    except OSError as error:
        cure = "free some space or give another folder"
        raise StoreError(f"{path}: cannot be written ({error.strerror}); {cure}") from error


def _json(tree: Tree) -> bytes:
    return (json.dumps(tree, ensure_ascii=False, allow_nan=False) + "\n").encode()
