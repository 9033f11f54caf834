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
from typing import TYPE_CHECKING

import numpy as np
from pydantic import JsonValue

from stepline.errors import MediaError, SettingsError, ShapeError
from stepline.features import FeatureWriter
from stepline.features.files import read_feature_file, write_feature_file
from stepline.features.store import SHARD_BYTES
from stepline.files.atomic_files import remove_partial_files
from stepline.files.digests import file_digest
from stepline.models.training.run import claim_run_folder, package_versions, write_omitted
from stepline.networks.device import current_device
from stepline.pipeline.pictures import NO_PICTURE, VisualOptions, extract_features
from stepline.pipeline.request import Request, StepsSettings
from stepline.pipeline.sources import find_videos, name_videos
from stepline.plugins import plugin_identities
from stepline.processes import trim_memory
from stepline.progress import Progress
from stepline.records import FeatureSequence, Rejected, count_reasons

if TYPE_CHECKING:
    from stepline.vision import Backbone

ROWS_FOLDER = "rows"  # folder of features whose shard is not written yet
UNREADABLE_REASON = "it cannot be read"
# Settings that change no value of a row. Another value of them may go on in the same folder.
UNUSED_SETTINGS = {"path", "dictionary", "texts", "unit", "batch", "tokens"}
UNUSED_SETTINGS |= {"faces", "screen", "screen_text"}  # seen next to the rows


@dataclass(frozen=True)
class ExtractionReport:
    """Counts of an extraction. added: ids of this run. already: videos stored before it."""

    added: tuple[str, ...]
    rows: int
    already: int
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
    """Add the features of all videos to the store in `folder`. One that cannot be read is listed,
    and the rest go on.

    sources: videos, and folders of them. settings: of `media` and `vision`. report: called with a
    line per video.
    Raises MediaError without any video, SettingsError where the folder holds features of another
    backbone or rate.
    """
    from stepline.vision import PrecomputedBackbone, load_backbone

    # what is extracted, and by which settings: sorted, so that shards have one order
    videos = sorted(name_videos(find_videos(sources), folder).items())
    backbone = load_backbone(settings.vision)
    if isinstance(backbone, PrecomputedBackbone):
        cure = "`stepline features import` stores ready files"
        raise SettingsError(f"vision.backbone=precomputed sees no video; {cure}")
    run: dict[str, JsonValue] = {"features": feature_settings(settings)}
    facts: dict[str, JsonValue] = {
        "versions": {**package_versions()},
        "device": current_device().label,
    }
    # The claim comes before any work, so that two different runs never mix in a folder.
    claim_run_folder(folder, run, facts)
    remove_partial_files(folder / ROWS_FOLDER)

    # a video after the other
    extraction = Extraction(folder, settings, backbone, shard_bytes, progress)
    for number, (id, path) in enumerate(videos, start=1):
        line = extraction.add_video(Request(path, id))
        if line:
            report(f"{number} of {len(videos)}, {id}: {line}")
    extraction.finish()

    # what came of them
    omitted = extraction.omitted
    write_omitted(
        folder, ({"video": row.id, "reason": row.reason, "value": row.value} for row in omitted)
    )
    added = extraction.added
    already = extraction.already
    counts: JsonValue = {"videos": len(added) + already, "omitted": {**count_reasons(omitted)}}
    # The same claim again, now with the counts.
    claim_run_folder(folder, run, facts | {"counts": counts})
    return ExtractionReport(
        added=tuple(added), rows=sum(added.values()), already=already, omitted=tuple(omitted)
    )


class Extraction:
    """A feature store that is being filled. Rows of videos whose shard is not full yet are in
    `rows/`, from which a killed run goes on.

    added: id -> rows, of this run. already: videos that the store held before.
    """

    def __init__(
        self,
        folder: Path,
        settings: StepsSettings,
        backbone: "Backbone",
        shard_bytes: int,
        progress: Progress | None,
    ) -> None:
        # Not as a context, which on an error would write a shard that is not full: later runs
        # would end with other bytes.
        self._writer = FeatureWriter(folder, shard_bytes=shard_bytes)
        self._rows = folder / ROWS_FOLDER
        self._settings = settings
        self._options = VisualOptions(backbone=backbone, motion=False, progress=progress)
        self._dim = backbone.dim
        self._unwritten: list[Path] = []  # files of rows whose shard is not written yet
        self.added: dict[str, int] = {}
        self.omitted: list[Rejected] = []
        self.already = 0

    def add_video(self, request: Request) -> str:
        """Add the feature rows of a video and return a line to report, "" if it is stored already."""
        if request.id in self._writer:
            self.already += 1
            return ""

        # rows that a killed run left, else those of the video
        stored = self._rows / _rows_name(request.id, request.path)
        try:
            features = self._read_or_extract(request, stored)
        except (MediaError, ShapeError) as error:
            features = Rejected("video", UNREADABLE_REASON, id=request.id, value=str(error))
        if isinstance(features, Rejected):
            self.omitted.append(features)
            return f"left out, {features.reason} {features.value}".rstrip()

        # the rows stay until their shard is written
        self._writer.add(
            request.id, features.values, rate=features.rate, backbone=features.backbone
        )
        self.added[request.id] = len(features.values)
        self._unwritten.append(stored)
        # An empty writer has just written a shard, so the files of its rows can go.
        if not self._writer.unwritten_count:
            self._remove_written()
        trim_memory()
        return f"{len(features.values)} rows"

    def finish(self) -> None:
        """Write the last shard, and remove the rows that it holds."""
        self._writer.flush()
        self._remove_written()
        shutil.rmtree(self._rows, ignore_errors=True)

    def _remove_written(self) -> None:
        for file in self._unwritten:
            file.unlink(missing_ok=True)
        self._unwritten.clear()

    def _read_or_extract(self, request: Request, stored: Path) -> FeatureSequence | Rejected:
        """Return the rows that a killed run left in `stored`, else those of the video, kept there.
        Without rows, return why.

        Raises MediaError or ShapeError for a video that cannot be read.
        """
        from stepline.media import probe

        # A bad id names no file. A row of zeros tests it before minutes of decoding.
        no_rows = np.zeros((1, self._dim), np.float32)
        flaw = self._writer.rejection_reason(request.id, no_rows)
        if flaw is None and stored.exists():
            return read_feature_file(stored, unit=False)
        features = None
        if flaw is None:
            media = self._settings.media
            info = probe(request.path, media)
            features = extract_features(request, info, self._settings, self._options).features
            flaw = (NO_PICTURE, "")
            if features is not None:
                flaw = self._writer.rejection_reason(request.id, features.values)
        if flaw is not None or features is None:
            reason, value = flaw or (NO_PICTURE, "")
            return Rejected("video", reason, id=request.id, value=value)
        write_feature_file(features, stored)
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
        **plugin_identities({"backbones": vision.backbone}),
    }


def _rows_name(id: str, path: Path) -> str:
    """Return the name of a video's rows while its shard is not written, or another for a file that
    was replaced in that time.

    It tells ids apart also on disks that take V and v for one, and is short whatever the id.
    """
    # Size and time of change are part of the name, so a replaced file is read again.
    with contextlib.suppress(OSError):  # to read it says what is wrong
        status = path.stat()
        id = f"{id} {status.st_size} {status.st_mtime_ns}"
    return f"{hashlib.sha256(id.encode(errors='replace')).hexdigest()}.safetensors"
