"""Videos to a feature store: the features of each by the function of the main job, one video after
another.

run.json                        what decides the features (another run does not go on in this folder), counts, versions
omitted.jsonl                   videos without features, each with its reason
shard-*.safetensors, .parquet   the store, videos in the order of their ids
rows/                           features of videos whose shard is not full yet. A killed run goes on from them

A run that was killed, between videos or within one, ends with the same bytes as one that was not.
"""

import contextlib
import hashlib
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from pydantic import JsonValue

from stepline.errors import MediaError, SettingsError, ShapeError
from stepline.features import FeatureWriter
from stepline.features.files import read_feature_file, write_feature_file
from stepline.features.store import SHARD_BYTES
from stepline.files.atomic_files import remove_partial_files
from stepline.files.digests import file_digest
from stepline.media import probe
from stepline.models.training.run import claim_run_folder, package_versions, write_omitted
from stepline.networks.device import current_device
from stepline.pipeline.pictures import NO_PICTURE, VisualOptions, extract_features
from stepline.pipeline.request import Request, StepsSettings
from stepline.pipeline.sources import find_videos, name_videos
from stepline.plugins import plugin_identities
from stepline.processes import trim_memory
from stepline.progress import Progress
from stepline.records import FeatureSequence, Rejected, count_reasons
from stepline.vision import PrecomputedBackbone, load_backbone

ROWS_FOLDER = "rows"  # folder of features whose shard is not written yet
UNREADABLE_REASON = "it cannot be read"
# Settings that change no value of a row. Another value of them may go on in the same folder.
UNUSED_SETTINGS = {"path", "dictionary", "texts", "unit", "batch", "tokens"}
UNUSED_SETTINGS |= {"screen", "screen_text"}  # seen next to the rows


@dataclass(frozen=True)
class ExtractionReport:
    """Counts of an extraction.

    Attributes:
        added_ids: ids of the videos that this run stored.
        rows: feature rows of these videos.
        already_stored: number of videos that the store had before.
        omitted: videos without features, each with its reason.
    """

    added_ids: tuple[str, ...]
    rows: int
    already_stored: int
    omitted: tuple[Rejected, ...]


def extract_to_store(
    sources: Iterable[Path],
    folder: Path,
    settings: StepsSettings,
    *,
    shard_bytes: int = SHARD_BYTES,
    progress: Progress | None = None,
    report: Callable[[str], None] = lambda line: None,  # noqa: ARG005
) -> ExtractionReport:
    """Extract the features of videos into the feature store in `folder`. Return the counts.

    Args:
        sources: video files, and folders with videos.
        folder: the folder of the store.
        settings: settings of all stages. Only `media` and `vision` are used.
        shard_bytes: size of one file of the store, in bytes.
        progress: called with the stage's name, the second reached and the duration in s.
        report: called with a line of text per video.

    A video that cannot be read is listed in the report, and the others are still extracted. Raises
    MediaError if there is no video. Raises SettingsError if the store has features of another
    backbone or rate.
    """
    # what is extracted, and by which settings: sorted, so that shards have one order
    videos = sorted(name_videos(find_videos(sources), folder).items())
    backbone = load_backbone(settings.vision)
    if isinstance(backbone, PrecomputedBackbone):
        raise SettingsError(
            "vision.backbone=precomputed sees no video; `stepline features import` stores ready "
            "files"
        )
    run: dict[str, JsonValue] = {"features": feature_settings(settings)}
    facts: dict[str, JsonValue] = {
        "versions": {**package_versions()},
        "device": current_device().label,
    }
    # The claim comes before any work, so that two different runs never mix in a folder.
    claim_run_folder(folder, run, facts)
    remove_partial_files(folder / ROWS_FOLDER)

    # A full shard is written at once. What is not full on an error is not written: `rows/` keeps it,
    # and a run that goes on ends with the same bytes.
    writer = FeatureWriter(folder, shard_bytes=shard_bytes)
    options = VisualOptions(backbone=backbone, measures_motion=False, progress=progress)
    added: dict[str, int] = {}  # id -> rows, of this run
    omitted: list[Rejected] = []
    unwritten: list[Path] = []  # files of rows whose shard is not written yet
    already = 0
    for number, (id, path) in enumerate(videos, start=1):
        if id in writer:
            already += 1
            continue
        rows_file = folder / ROWS_FOLDER / _rows_file_name(id, path)
        try:
            features = _read_or_extract(Request(path, id), rows_file, writer, settings, options)
        except (MediaError, ShapeError) as error:
            features = Rejected("video", UNREADABLE_REASON, id=id, value=str(error))
        if isinstance(features, Rejected):
            omitted.append(features)
            line = f"left out, {features.reason} {features.value}".rstrip()
        else:
            rows = features.values
            writer.add(id, rows, rate=features.rate, backbone=features.backbone)
            added[id] = len(rows)
            unwritten.append(rows_file)
            # An empty writer has just written a shard, so the files of its rows can go.
            if not writer.unwritten_count:
                _remove_files(unwritten)
            trim_memory()
            line = f"{len(rows)} rows"
        report(f"{number} of {len(videos)}, {id}: {line}")
    writer.flush()
    shutil.rmtree(folder / ROWS_FOLDER, ignore_errors=True)

    # The same claim again, now with the counts.
    write_omitted(
        folder, ({"video": row.id, "reason": row.reason, "value": row.value} for row in omitted)
    )
    counts: JsonValue = {"videos": len(added) + already, "omitted": {**count_reasons(omitted)}}
    claim_run_folder(folder, run, facts | {"counts": counts})
    return ExtractionReport(tuple(added), sum(added.values()), already, tuple(omitted))


def _remove_files(files: list[Path]) -> None:
    for file in files:
        file.unlink(missing_ok=True)
    files.clear()


def _read_or_extract(
    request: Request,
    rows_file: Path,
    writer: FeatureWriter,
    settings: StepsSettings,
    options: VisualOptions,
) -> FeatureSequence | Rejected:
    """Return the feature rows of a video, or the reason why the store cannot take them.

    Rows that a killed run left in `rows_file` are read. Otherwise the rows are extracted and written
    there. Raises MediaError or ShapeError for a video
    that cannot be read.
    """
    # A bad id names no file. A row of zeros tests it before minutes of decoding.
    dim = options.backbone.dim if options.backbone is not None else 1
    flaw = writer.rejection_reason(request.id, np.zeros((1, dim), np.float32))
    if flaw is None and rows_file.exists():
        return read_feature_file(rows_file, unit=False)
    features = None
    if flaw is None:
        info = probe(request.path, settings.media)
        features = extract_features(request, info, settings, options).features
        if features is not None:
            flaw = writer.rejection_reason(request.id, features.values)
    if flaw is not None or features is None:
        reason, value = flaw or (NO_PICTURE, "")
        return Rejected("video", reason, id=request.id, value=value)
    write_feature_file(features, rows_file)
    return features


def feature_settings(settings: StepsSettings) -> JsonValue:
    """Return the settings that decide a video's rows, with the sha256 of the backbone's weights."""
    vision = settings.vision
    return {
        "vision": vision.model_dump(mode="json", exclude=UNUSED_SETTINGS),
        # `unit` changes the rows of this backbone alone.
        **({"unit": vision.unit} if vision.backbone == "internvideo" else {}),
        "media": settings.media.model_dump(mode="json"),
        "weights": file_digest(vision.path),
        **vision.crop,
        **plugin_identities({"backbones": vision.backbone}),
    }


def _rows_file_name(id: str, path: Path) -> str:
    """Return a file name for the rows of a video whose shard is not written yet.

    It is a hash: it is short, and differs for ids that differ only in upper and lower case. Another
    file at the same path has another name.
    """
    # Size and time of change are part of the name, so a replaced file is read again.
    with contextlib.suppress(OSError):  # to read it says what is wrong
        status = path.stat()
        id = f"{id} {status.st_size} {status.st_mtime_ns}"
    return f"{hashlib.sha256(id.encode(errors='replace')).hexdigest()}.safetensors"
