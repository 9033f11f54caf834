"""Dense captions: YouCook2 in its authors' form and in the flat form, Tasty and Sieve & Swap in the
flat form.

    authors'  {"database": {id: {subset, duration, recipe_type, video_url, annotations: [{id, segment, sentence}]}}}
    flat      {id or "v_" + id: {duration, timestamps: [[start, end]], sentences: [text]}}

PDVC and densevid_eval write "v_" before every YouTube id. Sieve & Swap's pre-training files hold
several candidate texts per segment. The first is the step, the others its alternatives. Times are
seconds.
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from stepline.datasets.files import Node, annotation_files, read_node, split_of_name
from stepline.datasets.record_builder import DatasetEntry, RecordBuilder, shared_prefix

HIDDEN_SENTENCE = "None"  # the sentence of the test split, whose captions are kept secret
FILE_NAMES = {
    "youcook2": ("youcookii_annotations_trainval.json", "yc2_train.json", "yc2_val.json"),
    "tasty": ("tasty_train.json", "tasty_val.json"),
    "sieve_swap": (
        "htmrkb_dis_train_48k_6july_yc2format_clean.json",
        "htmrkb_dis_valid_3k_6july_yc2format_clean.json",
    ),
}
JSON_FILES = ("*.json", "*.json.gz")
FOLDER_CURE = "give the annotation file, or its folder (captiondata)"


def read(path: Path, *, from_model: bool = False) -> Iterator[DatasetEntry]:
    """Yield one entry per video.

    Args:
        path: an annotation file, in the authors' form or the flat form, or a folder of .json files.
        from_model: True if a model wrote the steps, or they were taken from other texts (Sieve &
            Swap). They are then no human reference.
    """
    for file in annotation_files(path, JSON_FILES, FOLDER_CURE):
        root = read_node(file)
        if root.get("database") is None:
            yield from _flat_entries(root, split_of_name(file.name), from_model)
        else:
            for id, video in root["database"].entries():
                yield _author_entry(id, video)


read_swapped = partial(read, from_model=True)


def id_prefix(path: Path) -> str:
    """Return the "v_" that flat annotation files at a path have before all ids, else ""."""
    roots = [read_node(file) for file in annotation_files(path, JSON_FILES, FOLDER_CURE)]
    return shared_prefix(
        [id for root in roots if root.get("database") is None for id, _ in root.entries()]
    )


def _author_entry(id: str, video: Node) -> DatasetEntry:
    builder = RecordBuilder(id, duration=video.optional_number("duration"))
    for index, row in enumerate(video.optional_rows("annotations")):
        # The test split has no sentences.
        text = row.optional_text("sentence") or ""
        start, end = row["segment"].pair()
        builder.add_span(str(index), text, start, end)
    recipe_type = video.get("recipe_type")
    task = recipe_type.name() if recipe_type else None
    return builder.build_entry(subset=video.optional_text("subset"), task=task)


def _flat_entries(root: Node, subset: str | None, from_model: bool) -> Iterator[DatasetEntry]:
    entries = dict(root.entries())
    prefix = shared_prefix(entries)
    for key, video in entries.items():
        builder = RecordBuilder(key.removeprefix(prefix), duration=video["duration"].number())
        for index, ((start, end), sentence) in enumerate(video.pairs()):
            texts = sentence.texts() if isinstance(sentence.value, list) else (sentence.text(),)
            text, *alternatives = texts or ("",)
            text = "" if text == HIDDEN_SENTENCE else text
            builder.add_span(str(index), text, start, end, alternatives=alternatives)
        yield builder.build_entry(subset=subset, from_model=from_model)
