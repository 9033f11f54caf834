"""Units of work: a stage of a video, known by a key of all that decides its result.

OUT/cells/STAGE/k[:2]/KEY.json        a result; that it is there says that it is done
OUT/failures/STAGE/KEY.json           why there is none
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import JsonValue

from stepline.curate.items import Item
from stepline.curate.stage import Stage

CELLS, FAILURES = "cells", "failures"
DATASET = "dataset"  # below OUT: what is published


@dataclass(frozen=True)
class Unit:
    """One stage of one video. needs: key of each stage whose result it reads."""

    item: Item
    stage: str
    key: str
    needs: Mapping[str, str]


def key(stage: Stage, item: Item, settings: JsonValue, needs: Mapping[str, str]) -> str:
    """Return the name of a unit's result: a sha256 of the stage, what it reads of the item, settings and needs.

    settings: `stage.settings(recipe)`, asked once a run. needs: stage -> key.
    """
    parts = [stage.name, stage.version, item.id, stage_inputs(stage, item), settings, sorted(needs.items())]
    return hashlib.sha256(json.dumps(parts, sort_keys=True, allow_nan=False).encode()).hexdigest()


def stage_inputs(stage: Stage, item: Item) -> list[JsonValue]:
    """Return what of an item decides a stage's result: the stamps of the files it reads, what is known about it."""
    stamps = {"media": item.stamp, "captions": item.captions_stamp, "features": item.features_stamp}
    about: list[JsonValue] = [item.title, item.task, item.category, item.duration] if "about" in stage.reads else []
    read: list[JsonValue] = [f"{name} {stamps[name]}" for name in sorted(reads(stage, item))]
    addresses: list[JsonValue] = [item.path, item.video, item.captions, item.features]
    where = addresses if "where" in stage.reads else []
    return [*read, about, *([where] if where else [])]


def reads(stage: Stage, item: Item) -> frozenset[str]:
    """Return which files of an item a stage reads: "media", "captions", "features"."""
    found = set()
    for kind in stage.reads:
        if kind == "speech" and item.captions is not None:
            found.add("captions")
        elif kind == "picture" and item.features is not None:
            found.add("features")
        elif kind not in ("about", "where") and item.video is not None:
            found.add("media")
    return frozenset(found)


def cell_name(stage: Stage, key: str) -> str:
    """Return where a result lies below OUT."""
    return f"{CELLS}/{stage.name}/{key[:2]}/{key}{stage.suffix}"


def failure_name(stage: Stage, key: str) -> str:
    """Return where a failure lies below OUT."""
    return f"{FAILURES}/{stage.name}/{key}.json"
