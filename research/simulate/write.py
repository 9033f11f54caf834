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

One sample is in memory at a time. The files of all videos are written last, each whole or not at all, so that a
folder without ht-step/annotations.json is one that was not finished.
"""

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import numpy as np

from research.simulate import video as records
from research.simulate.narration import article
from research.simulate.scene import STYLES, Lines, Style
from research.simulate.settings import EMBEDDER, RECOGNISERS
from research.simulate.simulation import Simulation, recipes
from research.simulate.texts import texts, title
from research.simulate.video import Sample, World
from stepline.errors import StoreError
from stepline.records import Matrix, Step
from stepline.storage import write_atomic

FeatureFile: TypeAlias = Literal["pth.tar", "npy"]
Tree: TypeAlias = Any  # a JSON value

TAXONOMY: Final = (
    "global_step_index", "activity", "step_index", "variation", "variation_index", "headline", "paragraph"
)  # fmt: skip
FLAT: Final = {"train": "yc2_train.json", "val": "yc2_val.json"}


@dataclass
class Tables:
    """The files that hold all videos, while they grow."""

    steps: dict[str, Tree] = field(default_factory=dict)
    splits: dict[str, list[str]] = field(default_factory=dict)
    align: dict[str, Tree] = field(default_factory=dict)
    captions: dict[str, Tree] = field(default_factory=dict)
    described: dict[str, dict[str, Tree]] = field(default_factory=lambda: {split: {} for split in FLAT})


def write_dataset(
    simulation: Simulation, folder: Path, *, backbones: Sequence[str] | None = None, features: FeatureFile = "pth.tar"
) -> None:
    """Write the annotations, texts and features of all videos; `backbones`: the settings' own where none is given."""
    write_samples(simulation.world, simulation.samples, folder, backbones=backbones, features=features)


def write_samples(
    world: World,
    samples: Iterable[Sample],
    folder: Path,
    *,
    backbones: Sequence[str] | None = None,
    features: FeatureFile = "pth.tar",
) -> int:
    """Write the videos that a stream gives, as `write_dataset` does, and return how many there were."""
    names = (world.settings.backbone,) if backbones is None else tuple(backbones)
    encoders = [world.encoder(name).name for name in names]
    tables, count = Tables(), 0
    for sample in samples:
        _annotate(tables, sample)
        _write_said(folder, sample)
        for backbone in encoders:
            _write_features(folder / "features" / backbone, sample, backbone, features)
        _write_vectors(folder / "texts", sample, encoders)
        count += 1
    _write_tables(folder, tables, world)
    return count


def _annotate(tables: Tables, sample: Sample) -> None:
    """Add one video to the files that hold them all."""
    id = sample.id
    shown = [(step.id, span) for step in records.reference(sample, "recipe") for span in step.spans]
    segments = [{"id": int(step), "segment": [span.start, span.end]} for step, span in shown]
    tables.steps[id] = {"subset": sample.subset, "activity": title(sample.task.number), "annotations": segments}
    tables.splits.setdefault(sample.subset, []).append(id)
    tables.captions[id] = _columns(sample, sample.narration)
    if sample.subset != "train":
        tables.align[id] = [_aligned(step) for step in records.reference(sample, "narration")]
    captions = records.described(sample)
    tables.described["train" if sample.subset == "train" else "val"][id] = {
        "duration": sample.duration,
        "timestamps": [[step.spans[0].start, step.spans[0].end] for step in captions],
        "sentences": [step.text for step in captions],
    }


def _aligned(step: Step) -> Tree:
    span = step.spans[0] if step.spans else step.said
    return [int(bool(step.spans)), span.start if span else 0.0, span.end if span else 0.0, step.text]


def _columns(sample: Sample, lines: Lines) -> dict[str, Tree]:
    """Return texts with their times in columns."""
    said = texts(lines, RECOGNISERS[sample.world.settings.recogniser] if lines.style == "narration" else None)
    return {"start": lines.times[:, 0].tolist(), "end": lines.times[:, 1].tolist(), "text": list(said)}


def _write_said(folder: Path, sample: Sample) -> None:
    settings = RECOGNISERS[sample.world.settings.recogniser]
    heard = records.transcript(sample.narration, sample.world.settings.recogniser)
    segments = [
        {"start": each.span.start, "end": each.span.end, "text": each.text,
         "words": records.spoken_words(each.text, each.span, settings)}
        for each in heard.sentences
    ]  # fmt: skip
    _write(folder / "whisperx" / f"{sample.id}.json", _json({"segments": segments, "language": "en"}))
    _write(folder / "howtostep" / f"{sample.id}.json", _json(_columns(sample, sample.steps)))


def _write_tables(folder: Path, tables: Tables, world: World) -> None:
    files = {
        "ht-step/video_splits.json": tables.splits,
        "htm_align.json": tables.align,
        "caption.json": tables.captions,
        **{f"youcook2/{name}": tables.described[split] for split, name in FLAT.items()},
        "recipes.json": recipes(world),
        "ht-step/annotations.json": tables.steps,
    }
    write_atomic(folder / "ht-step" / "taxonomy.csv", _taxonomy(world))
    for name, tree in files.items():
        write_atomic(folder / name, _json(tree))


def _taxonomy(world: World) -> str:
    """Return HT-Step's table of all articles' lines."""
    table = io.StringIO()
    rows = csv.writer(table, lineterminator="\n")
    rows.writerow(TAXONOMY)
    for task in world.domain.tasks:
        first = world.domain.first_line(task.number)
        for place, headline in enumerate(texts(article(task, world.wordings[task.number]))):
            rows.writerow((first + place, title(task.number), place, "none", 0, headline, ""))
    return table.getvalue()


def _write_features(folder: Path, sample: Sample, backbone: str, kind: FeatureFile) -> None:
    """Write half-precision features as NaSVA's authors released theirs, or as HowTo100M's did."""
    values = sample.features(backbone).values.astype(np.float16)
    if kind == "pth.tar":
        import torch

        _write(folder / f"{sample.id}.pth.tar", _torch_bytes(torch.from_numpy(values)))
    else:
        file = io.BytesIO()
        np.save(file, values, allow_pickle=False)
        _write(folder / f"{sample.id}.mp4.npy", file.getvalue())


def _write_vectors(folder: Path, sample: Sample, backbones: Sequence[str]) -> None:
    import torch

    for style in STYLES:
        said = _said(sample, style)
        vectors: Mapping[str, Matrix] = {name: sample.vectors(style, name) for name in backbones}
        for name, values in {**vectors, EMBEDDER: sample.embeddings(style)}.items():
            content = said | {"features": torch.from_numpy(values.astype(np.float16))}
            _write(folder / name / style / f"{sample.id}.pth", _torch_bytes(content))


def _torch_bytes(content: Tree) -> bytes:
    """Return what torch.save writes; into a named file it would write that name too, and no two writes were equal."""
    import torch

    file = io.BytesIO()
    torch.save(content, file)
    return file.getvalue()


def _said(sample: Sample, style: Style) -> dict[str, Tree]:
    columns = _columns(sample, sample.lines(style))
    if style == "recipe":  # nobody says an article's lines
        return {"vid": sample.id, "text": columns["text"]}
    return {"vid": sample.id} | columns


def _write(path: Path, data: bytes) -> None:
    """Write one video's file; not flushed to disk each, which would take longer than the simulation."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    except OSError as error:
        cure = "free some space or give another folder"
        raise StoreError(f"{path}: cannot be written ({error.strerror}); {cure}") from error


def _json(tree: Tree) -> bytes:
    return (json.dumps(tree, ensure_ascii=False, allow_nan=False) + "\n").encode()
