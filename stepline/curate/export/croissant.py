"""A dataset as ML Commons' Croissant 1.0 describes it: files with their sha256, and records with
typed fields."""

import json
from collections.abc import Mapping, Sequence

from pydantic import JsonValue

from stepline.curate.export.shards import (
    INTEGER_KIND,
    LEFT_OUT_SPLIT,
    NUMBER_KIND,
    NUMBERS_KIND,
    RECORD_COLUMNS,
    TEXTS_KIND,
    TRAIN_SPLIT,
    ExportedFile,
)
from stepline.curate.settings import ExportSettings

CROISSANT_VERSION = "http://mlcommons.org/croissant/1.0"
FORMATS_BY_SUFFIX = {
    ".md": "text/markdown",
    ".parquet": "application/x-parquet",
    ".safetensors": "application/octet-stream",
    ".tar": "application/x-tar",
}
SPLIT_MEANINGS = {
    TRAIN_SPLIT: "one record per video",
    LEFT_OUT_SPLIT: "the videos that are left out, with the reasons",
}
DATA_TYPES = {NUMBER_KIND: "sc:Float", NUMBERS_KIND: "sc:Float", INTEGER_KIND: "sc:Integer"}
CONTEXT_TERMS = {  # of Croissant 1.0's context, those that are used here
    "citeAs": "cr:citeAs",
    "column": "cr:column",
    "conformsTo": "dct:conformsTo",
    "cr": "http://mlcommons.org/croissant/",
    "dct": "http://purl.org/dc/terms/",
    "extract": "cr:extract",
    "field": "cr:field",
    "fileObject": "cr:fileObject",
    "fileSet": "cr:fileSet",
    "includes": "cr:includes",
    "recordSet": "cr:recordSet",
    "repeated": "cr:repeated",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "sc": "https://schema.org/",
    "source": "cr:source",
}


def croissant(
    dataset: Mapping[str, JsonValue], exported: Sequence[ExportedFile], settings: ExportSettings
) -> str:
    """Return a dataset's metadata as JSON-LD. It has no date: the same content would have another
    file tomorrow."""
    # What the description says of this dataset.
    biases = dataset["biases"]
    paths = [file.path for file in exported]
    splits = []
    for split in SPLIT_MEANINGS:
        if any(path.startswith(f"data/{split}-") for path in paths):
            splits.append(split)
    description = (
        f"Time-aligned steps of {dataset['videos']} narrated how-to videos: "
        f"{dataset['steps']} steps, {dataset['sentences']} spoken sentences, "
        f"{dataset['left_out']} videos left out with their reasons."
    )
    citation = (
        "Name the dataset, the sha256 of its dataset.json, and Stepline; "
        "the papers are in its README."
    )
    collection = (
        "Steps are written from speech and placed in the picture by programs; see README.md."
    )
    if not isinstance(biases, list):
        biases = []
    # The terms are Croissant's own. Readers resolve them by the context.
    tree: dict[str, object] = {
        "@context": {
            "@language": "en",
            "@vocab": "https://schema.org/",
            **CONTEXT_TERMS,
            "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
        },
        "@type": "sc:Dataset",
        "conformsTo": CROISSANT_VERSION,
        "name": settings.name,
        "description": description,
        "license": settings.licence,
        "version": "1.0.0",
        "isAccessibleForFree": True,
        "citeAs": citation,
        "rai:dataBiases": list(biases),
        "rai:dataCollection": collection,
        "distribution": [*map(_file, exported), *map(_set, splits)],
        "recordSet": [_records(split) for split in splits],
    }
    return json.dumps(tree, indent=1, ensure_ascii=False) + "\n"


def _file(file: ExportedFile) -> dict[str, object]:
    ending = file.path[file.path.rfind(".") :]
    return {
        "@type": "cr:FileObject",
        "@id": file.path,
        "name": file.path,
        "contentUrl": file.path,
        "contentSize": f"{file.bytes} B",
        "encodingFormat": FORMATS_BY_SUFFIX[ending],
        "sha256": file.sha256,
    }


def _set(split: str) -> dict[str, object]:
    return {
        "@type": "cr:FileSet",
        "@id": f"{split}-shards",
        "name": f"{split}-shards",
        "encodingFormat": FORMATS_BY_SUFFIX[".parquet"],
        "includes": f"data/{split}-*.parquet",
    }


def _records(split: str) -> dict[str, object]:
    fields = [
        {
            "@type": "cr:Field",
            "@id": f"{split}/{column.name}",
            "name": f"{split}/{column.name}",
            "description": column.meaning,
            "dataType": DATA_TYPES.get(column.kind, "sc:Text"),
            # A list of values is a field that repeats.
            **({"repeated": True} if column.kind in (TEXTS_KIND, NUMBERS_KIND) else {}),
            "source": {"fileSet": {"@id": f"{split}-shards"}, "extract": {"column": column.name}},
        }
        for column in RECORD_COLUMNS
    ]
    return {
        "@type": "cr:RecordSet",
        "@id": split,
        "name": split,
        "description": SPLIT_MEANINGS[split],
        "key": {"@id": f"{split}/id"},
        "field": fields,
    }
