"""Dense captions: YouCook2 in its authors' form and in the flat form; Tasty and Sieve & Swap in the
flat form.

    authors'  {"database": {id: {subset, duration, recipe_type, video_url, annotations: [{id, segment, sentence}]}}}
    flat      {id or "v_" + id: {duration, timestamps: [[start, end]], sentences: [text]}}

PDVC and densevid_eval write "v_" before every YouTube id. Sieve & Swap's pre-training files hold
several candidate texts a segment; the first is the step, the others its alternatives. Times are
seconds.
"""

from collections.abc import Collection, Iterator
from functools import partial
from pathlib import Path

from stepline.datasets.files import Node, read_json, stem
from stepline.datasets.record_builder import DatasetEntry, RecordBuilder
from stepline.errors import DatasetError

PREFIX = "v_"
YOUTUBE = 11  # characters of a YouTube id, which may itself begin with "v_"
HIDDEN = "None"  # the sentence of the test split, whose captions are kept secret
NAMES = {
    "youcook2": ("youcookii_annotations_trainval.json", "yc2_train.json", "yc2_val.json"),
    "tasty": ("tasty_train.json", "tasty_val.json"),
    "sieve_swap": (
        "htmrkb_dis_train_48k_6july_yc2format_clean.json",
        "htmrkb_dis_valid_3k_6july_yc2format_clean.json",
    ),
}
SPLITS = ("train", "val", "test")


def have_prefix(ids: Collection[str]) -> bool:
    """Tell whether all ids carry the prefix: some are a YouTube id with it, and none is a bare
    YouTube id."""
    lengths = {len(id) for id in ids}
    known = YOUTUBE + len(PREFIX) in lengths and YOUTUBE not in lengths
    return known and all(id.startswith(PREFIX) for id in ids)


def read(path: Path, *, machine: bool = False) -> Iterator[DatasetEntry]:
    """Yield the entries of an annotation file, or of every .json file in a folder, in either form.

    machine: the steps were written by a model or taken from other texts (Sieve & Swap).
    """
    for file in _files(path):
        root = Node(read_json(file), str(file))
        database = root.get("database")
        if database is not None:
            yield from (_author_entry(id, video) for id, video in database.entries())
        else:
            yield from _flat_entries(root, _split(file), machine)


read_swapped = partial(read, machine=True)


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    files = sorted(file for file in path.iterdir() if file.name.endswith((".json", ".json.gz")))
    if not files:
        raise DatasetError(
            f"{path}: holds no .json file; give the annotation file, or its folder (captiondata)"
        )
    return files


def _split(file: Path) -> str | None:
    """Return the split that a flat file's name states, as in yc2_train.json and
    htmrkb_dis_valid_3k_...json."""
    words = stem(file.name).lower().replace("-", "_").split("_")
    named = {"valid": "val", "validation": "val", "training": "train", "testing": "test"}
    return next((named.get(word, word) for word in words if named.get(word, word) in SPLITS), None)


def _author_entry(id: str, video: Node) -> DatasetEntry:
    task, duration, annotations = (
        video.get("recipe_type"),
        video.get("duration"),
        video.get("annotations"),
    )
    builder = RecordBuilder(id, duration=duration.number() if duration else None)
    for index, row in enumerate(annotations.rows() if annotations else ()):
        times = row["segment"].pair()
        # the test split has no sentences
        builder.add_span(str(index), row.optional_text("sentence") or "", *times)
    return builder.entry(subset=video.optional_text("subset"), task=task.name() if task else None)


def _flat_entries(root: Node, subset: str | None, machine: bool) -> Iterator[DatasetEntry]:
    entries = list(root.entries())
    cut = len(PREFIX) if have_prefix([key for key, _ in entries]) else 0
    for key, video in entries:
        builder = RecordBuilder(key[cut:], duration=video["duration"].number())
        times, texts = list(video["timestamps"].rows()), list(video["sentences"].rows())
        if len(times) != len(texts):
            raise DatasetError(
                f"{video.location}: {len(times)} timestamps but {len(texts)} sentences; they go in pairs"
            )
        for index, (time, text) in enumerate(zip(times, texts, strict=True)):
            candidates = (
                [row.text() for row in text.rows()]
                if isinstance(text.value, list)
                else [text.text()]
            )
            first, *others = candidates or [""]
            builder.add_span(
                str(index), "" if first == HIDDEN else first, *time.pair(), alternatives=others
            )
        yield builder.entry(subset=subset, machine=machine)
