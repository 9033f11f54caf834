"""A dataset on disk from records, features and reasons, then copied to where it is published.

The dataset card is a README that people read, whose head says how dataset hubs load it. Its numbers
are those of `dataset.json`, which `describe_dataset` makes when the last record is written.
"""

import contextlib
import json
import math
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.resources import files
from itertools import chain
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from stepline.curate.export.shards import (
    LEFT_OUT_SPLIT,
    RECORD_COLUMNS,
    TRAIN_SPLIT,
    DatasetRow,
    ExportedFile,
    copy_features,
    write_shards,
)
from stepline.curate.report.counts import (
    DatasetCounts,
    StageLosses,
    count_stage_losses,
    describe_biases,
)
from stepline.curate.settings import ExportSettings
from stepline.curate.stage import StageFailure, VideoItem
from stepline.curate.store.results import list_files
from stepline.features import FeatureStore
from stepline.files.atomic_files import remove_file, write_atomic
from stepline.files.remote import RemotePath
from stepline.files.remote.settings import BYTES_PER_MIB
from stepline.networks.weights import known_weights
from stepline.records import RECORD_VERSION, Record, Rejected, Video
from stepline.sieve_swap.statistics import sort_counts
from stepline.version import __version__

# The hubs' words for numbers of videos.
SIZE_NAMES = (
    (1_000, "n<1K"),
    (10_000, "1K<n<10K"),
    (100_000, "10K<n<100K"),
    (1_000_000, "100K<n<1M"),
    (math.inf, "1M<n<10M"),
)
LANGUAGE_PATTERN = re.compile(r"[a-z]{2,3}")  # codes of ISO 639, the only ones that hubs take
MAX_CELL_CHARS = 300  # of a table's cell
WYS2_PAPER = (
    "Ashutosh et al., What You Say Is What You Show: Visual Narration Detection in "
    "Instructional Videos"
)
PAPERS_BY_STAGE = {  # stage -> whose method it is
    "coarse": (
        "Li et al., Multi-Sentence Grounding for Long-term Instructional Video "
        "(NaSVA, HowToStep), ECCV 2024"
    ),
    "sieve-swap": (
        "Batra et al., Efficient Pre-training for Localized Instruction Generation of Procedural "
        "Videos (Sieve & Swap, ProcX), ECCV 2024"
    ),
    "judge": WYS2_PAPER,
    "visible": WYS2_PAPER,
}


def dataset_card(
    dataset: Mapping[str, Any], settings: ExportSettings, stages: Sequence[str]
) -> str:
    """Return the dataset card: a README in Markdown with YAML metadata.

    Args:
        dataset: contents of `dataset.json`, as `describe_dataset` returns them.
        settings: name and licence of the dataset.
        stages: names of the stages of the recipe.
    """
    from jinja2 import Environment, StrictUndefined

    papers = dict.fromkeys(
        paper
        for stage, paper in PAPERS_BY_STAGE.items()
        if stage in stages and (stage != "judge" or dataset["makers"]["judge"])
    )
    template = (files(__package__) / "card.txt").read_text(encoding="utf-8")
    environment = Environment(
        undefined=StrictUndefined, keep_trailing_newline=True, autoescape=False
    )
    environment.filters["pairs"] = format_counts
    # ISO 639 codes of language tags, such as "en" for "en-GB"
    codes = {language.partition("-")[0] for language in dataset["languages"]}
    return environment.from_string(template).render(
        name=_escape_markdown(settings.name),
        licence=settings.licence,
        codes=sorted(filter(LANGUAGE_PATTERN.fullmatch, codes)),
        size=next(name for limit, name in SIZE_NAMES if dataset["videos"] < limit),
        dataset=dataset,
        columns=RECORD_COLUMNS,
        settings=_format_settings(dataset["settings"] or {}, stages),
        papers=papers or list(PAPERS_BY_STAGE.values())[:1],
    )


def _format_settings(settings: Mapping[str, JsonValue], stages: Sequence[str]) -> dict[str, str]:
    """Return the settings of each stage as one line of JSON, in the order of the recipe.

    Args:
        settings: stage -> settings that decide its result. Stages without any are omitted.
        stages: names of the stages of the recipe.
    """
    # The recipe's order, and after it what no stage of it owns.
    names = [name for name in stages if name in settings]
    names += sorted(settings.keys() - set(stages))
    lines = {}
    for name in names:
        line = json.dumps(settings[name], ensure_ascii=False, sort_keys=True)
        if line != "null":
            lines[name] = line.replace("`", "'")
    return lines


def format_counts(counted: Mapping[str, int], max_names: int = 6) -> str:
    """Return counts as text for a table cell, such as "en 12, de 3, 4 others".

    Args:
        counted: name -> count, the largest count first.
        max_names: number of names that are listed. The counts of all others are added up.
    """
    texts = [f"{_escape_markdown(name)} {count:,}" for name, count in counted.items()]
    # The rare ones are added up, so that the cell stays short.
    others = sum([*counted.values()][max_names:])
    if others:
        texts[max_names:] = [f"{others:,} others"]
    return ", ".join(texts) or "none"


def _escape_markdown(text: Any) -> str:
    """Return untrusted text as one line, with its Markdown characters escaped."""
    # Names and reasons may hold what Markdown reads as markup.
    return re.sub(r"([|`<>\[\]*_\\])", r"\\\1", " ".join(str(text).split()))[:MAX_CELL_CHARS]


MAKER_KINDS = ("asr", "writer", "vision", "judge")  # of a record's `models`, what the card names
MAX_MAKERS = 50  # distinct ones of a kind that are counted; more would be no names
WEIGHTS_BEHIND = {"conse": ("efficientnet-lite0", "minilm")}  # names of weights by maker
# With or without a word before it, as in clip:/weights/clip.
PATH_PATTERN = re.compile(r"(\w+:)?[^\s:]*/[^\s:/]+")


@dataclass
class DatasetFacts:
    """Counts of the records of a dataset, for its card.

    Attributes:
        counts: numbers of videos, steps, sentences and reasons.
        videos_by_model: number of videos by the model that made a part of the record. Kinds of parts: "asr",
            "writer", "vision", "judge".
        videos_with_features: number of videos with features.
    """

    counts: DatasetCounts = field(default_factory=DatasetCounts)
    videos_by_model: dict[str, Counter[str]] = field(
        default_factory=lambda: {kind: Counter() for kind in MAKER_KINDS}
    )
    videos_with_features: int = 0

    def add(self, record: Record) -> None:
        """Count a record of the dataset."""
        self.counts.add(record)
        # Only names count, and a bounded number of them, since a record may hold anything.
        for kind, counter in self.videos_by_model.items():
            maker = record.models.get(kind)
            if isinstance(maker, str) and (maker in counter or len(counter) < MAX_MAKERS):
                counter[maker] += 1

    def weights(self) -> list[str]:
        """Return the names of the model weights that made the dataset, sorted."""
        weights: set[str] = set()
        for maker in chain.from_iterable(self.videos_by_model.values()):
            # A maker's name often contains that of its weights.
            weights.update(name for name in known_weights() if name in maker)
            weights.update(WEIGHTS_BEHIND.get(maker, ()))
        return sorted(weights)


def describe_dataset(
    facts: DatasetFacts,
    losses: Sequence[StageLosses],
    files: Sequence[ExportedFile],
    settings: ExportSettings,
    stage_settings: JsonValue,
) -> dict[str, JsonValue]:
    """Return the contents of `dataset.json`: all counts, settings and files.

    Args:
        facts: counts of the records.
        losses: videos that each stage left out.
        files: files of the dataset with their sha256.
        settings: name and licence of the dataset.
        stage_settings: stage -> settings that decide its result.
    """
    counts = facts.counts
    # What each stage left out.
    stages: list[JsonValue] = [
        {
            "stage": loss.stage,
            "entered": loss.entered,
            "kept": loss.passed,
            "dropped": dict(loss.dropped),
        }
        for loss in losses
    ]
    return {
        "name": settings.name,
        "licence": settings.licence,
        "stepline": __version__,
        "record_version": RECORD_VERSION,
        "videos": counts.kept_videos,
        "left_out": losses[0].entered - counts.kept_videos,
        "hours": round(counts.hours, 4),
        "steps": counts.steps,
        "steps_placed": counts.steps_with_span,
        "sentences": counts.sentences,
        "with_features": facts.videos_with_features,
        "tasks": len(counts.tasks),
        "languages": _counts_as_json(counts.languages),
        "step_statuses": _counts_as_json(counts.statuses),
        "step_licences": _counts_as_json(counts.licences),
        "dropped_steps": _counts_as_json(counts.dropped_steps),
        "dropped_sentences": _counts_as_json(counts.dropped_sentences),
        "stages": stages,
        "makers": {
            name: _counts_as_json(counter) for name, counter in facts.videos_by_model.items()
        },
        "weights": {name: known_weights()[name].licence for name in facts.weights()},
        "settings": stage_settings,
        "biases": list(describe_biases(counts)),
        "files": [asdict(file) for file in files],
    }


def remove_folders_from_paths(value: JsonValue) -> JsonValue:
    """Return settings in which each path is reduced to its last name.

    So no folder of a machine is published. "clip:/weights/clip" becomes "clip:clip".
    """
    if isinstance(value, dict):
        return {key: remove_folders_from_paths(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [remove_folders_from_paths(inner) for inner in value]
    # Only texts that are a path as a whole change.
    if isinstance(value, str) and PATH_PATTERN.fullmatch(value):
        folder, _, name = value.rpartition("/")
        kind, colon, _ = folder.partition(":")
        return f"{kind}:{name}" if colon else name
    return value


def _counts_as_json(counter: Counter[str]) -> dict[str, JsonValue]:
    return {**sort_counts(counter)}


CARD_NAME = "README.md"
INDEX_NAME = "dataset.json"  # written last: it lists every other file with its sha256


@dataclass(frozen=True)
class DatasetContents:
    """The contents of a dataset.

    Attributes:
        records: returns an iterator over the records, sorted by id.
        left_out: the failure of each video that is left out, by id.
        items: videos of the source by id.
        stages: names of the stages of the recipe, in its order.
        settings: stage -> settings that decide its result.
        features: store of the visual features, None without one.
    """

    records: Callable[[], Iterable[Record]]
    left_out: Mapping[str, StageFailure]
    items: Mapping[str, VideoItem] = field(default_factory=dict)
    stages: tuple[str, ...] = ()
    settings: JsonValue = None
    features: "FeatureStore | None" = None


def export_dataset(
    contents: DatasetContents, folder: Path, settings: ExportSettings
) -> dict[str, JsonValue]:
    """Write a dataset with its card, and return its `dataset.json`, which lists every file.

    Equal contents and settings give equal bytes.

    Args:
        contents: records, left-out videos and features.
        folder: an empty folder.
        settings: name, licence and file sizes of the dataset.

    Raises StoreError if the folder cannot be written.
    """
    # Records, which are counted as they are written.
    facts = DatasetFacts()
    rows = _make_rows(contents, facts)
    files = write_shards(rows, TRAIN_SPLIT, folder, settings.rows)
    if contents.left_out:
        rows = _make_left_out_rows(contents)
        files += write_shards(rows, LEFT_OUT_SPLIT, folder, settings.rows)

    store = contents.features
    if store is not None and settings.features:
        ids = [record.id for record in contents.records() if record.id in store]
        facts.videos_with_features = len(ids)
        if ids:
            files += copy_features(ids, store, folder, settings.shard * BYTES_PER_MIB)

    # Two texts about all of these, the list of files last.
    losses = count_stage_losses(
        contents.left_out.values(), facts.counts.kept_videos, contents.stages
    )
    tree = describe_dataset(
        facts, losses, files, settings, remove_folders_from_paths(contents.settings)
    )
    write_atomic(folder / CARD_NAME, dataset_card(tree, settings, contents.stages))
    write_atomic(folder / INDEX_NAME, json.dumps(tree, indent=1, ensure_ascii=False) + "\n")
    return tree


def _make_rows(contents: DatasetContents, facts: DatasetFacts) -> Iterator[DatasetRow]:
    for record in contents.records():
        facts.add(record)
        # What is published of a video's address is its path in the source.
        item = contents.items.get(record.id, VideoItem(record.id))
        video = record.video.model_copy(update={"path": item.path})
        yield DatasetRow(record.model_copy(update={"video": video}))


def _make_left_out_rows(contents: DatasetContents) -> Iterator[DatasetRow]:
    # A video that is left out has no record of its own, so it gets one with its reason.
    for id, failure in sorted(contents.left_out.items()):
        item = contents.items.get(id, VideoItem(id))
        video = Video(
            id=id or "none",
            path=item.path,
            duration=item.duration or None,
            title=item.title,
            task=item.task,
        )
        dropped = Rejected("video", f"{failure.stage}: {failure.reason}", text=failure.stage)
        yield DatasetRow(Record(id=id, video=video, dropped=(dropped,)), failure)


LARGE_SUFFIXES = (".parquet", ".safetensors")  # may share their bytes with the stage's folder
# What names of a dataset's own files begin with, apart from its two texts. Earlier releases wrote
# tars and croissant.json.
OWN_PREFIXES = (
    "data/train-",
    "data/left_out-",
    "features/shard-",
    "webdataset/train-",
    "webdataset/README.md",
    "croissant.json",
)


def publish_folder(folder: Path, target: RemotePath) -> None:
    """Copy a dataset to a target folder, and delete the files of an earlier dataset there.

    Other files stay. An interrupted copy can be repeated: `dataset.json`, which lists every file,
    is copied last.

    Args:
        folder: local folder of the dataset.
        target: folder that is published, local or remote.
    """
    files = (path for path in folder.rglob("*") if path.is_file())
    names = {path.relative_to(folder).as_posix() for path in files} - {INDEX_NAME}
    sizes = {entry.name: entry.size for entry in list_files(target)}
    # The index lists every file with its sha256, so an equal index means equal files.
    index = (folder / INDEX_NAME).read_bytes()
    same = INDEX_NAME in sizes and (target / INDEX_NAME).read() == index
    for name in [*sorted(names), INDEX_NAME]:
        if not same or sizes.get(name) != (folder / name).stat().st_size:
            _copy_file(folder / name, target / name)
    # What an earlier dataset had, and this one has not. Files of the user stay.
    for name in sorted(sizes.keys() - names):
        if name.startswith(OWN_PREFIXES):
            (target / name).remove()


def publish_features(folder: Path, target: RemotePath) -> None:
    """Copy a feature store to a target folder, and delete the shards of an earlier store there.

    Args:
        folder: local folder of the store.
        target: folder that is published, local or remote.
    """
    # Shards of two stores must not be read together, so the old ones go first.
    names = sorted(file.name for file in folder.glob("shard-*"))
    for entry in list_files(target):
        if entry.name.startswith("shard-") and entry.name not in names:
            (target / entry.name).remove()
    # The rows of a shard come before the index that names them.
    for name in sorted(names, key=lambda name: name.endswith(".parquet")):
        _copy_file(folder / name, target / name)


def _copy_file(source: Path, target: RemotePath) -> None:
    """Copy a file. On the same disk, a large file becomes a hard link."""
    path = target.local
    if path is not None and source.name.endswith(LARGE_SUFFIXES):
        path.parent.mkdir(parents=True, exist_ok=True)
        # Another disk, or one without links, is copied to below.
        with contextlib.suppress(OSError):
            remove_file(path)
            os.link(source, path)
            return
    target.put(source)
