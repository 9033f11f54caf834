"""Write the outputs of a record, together or not at all."""

import contextlib
import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from stepline.errors import MediaError
from stepline.files.atomic_files import FileSet, atomic_files
from stepline.outputs.jsonld import missing_recipe_fields
from stepline.outputs.ownership import OutputManifest
from stepline.outputs.registry import (
    NO_ADDRESSES,
    OUTPUTS,
    USUAL,
    OutputExtras,
    find_outputs,
    output_path,
    picture_links,
    pictures_folder,
    record_links,
)
from stepline.outputs.web_addresses import WebAddresses
from stepline.records import Alignment, Record

log = logging.getLogger(__name__)


def write_outputs(
    record: Record,
    folder: Path | str,
    *,
    alignment: Alignment | None = None,
    keyframes: Mapping[str, bytes] | None = None,
    media: Path | str | None = None,
    linked: bool = True,
    formats: Sequence[str] | str = USUAL,
    said_cues: bool = True,
    files: FileSet | None = None,
    web: WebAddresses | None = None,
) -> list[Path]:
    """Write `<id>` with each format's suffix into the folder. Return the paths in OUTPUTS' order.

    If a format cannot hold the record (chapters of a short video), it is left out. An older file of
    the same name is then removed. So is a format that the video cannot be copied into, whose error
    is raised once the others are written.

    Args:
        record: the record to write.
        folder: the folder of the outputs.
        alignment: P(each step is shown in each second). None if no step was grounded.
        keyframes: step id -> JPEG of the step. None: no pictures.
        media: path of the video. None: outputs do not link a video.
        linked: whether outputs link the video. False for a video that will be deleted.
        formats: keys of OUTPUTS, or one key.
        said_cues: whether subtitles also contain steps that are said but not shown.
        files: other files that are written together with the outputs, all or none. None: only the
            outputs.
        web: web addresses of the folder and the videos, for outputs that contain addresses. None:
            relative links.

    Raises SettingsError for an unknown format, and for a format that needs the video if `media` is
    missing. Raises ModelError if a format's library is not installed, MediaError if the video
    cannot be read, StoreError if the folder cannot be written.
    """
    folder = Path(folder)
    if isinstance(formats, str):
        formats = (formats,)
    find_outputs(formats)
    web = web or NO_ADDRESSES
    # What the outputs may show next to the record.
    video = None
    link = None
    if media is not None:
        video = Path(media)
        link = os.path.relpath(video, folder) if linked else None
    extras = OutputExtras(
        alignment, link, keyframes or {}, said_cues, video, web=web, formats=tuple(formats)
    )
    # All files appear together, in the order of OUTPUTS.
    paths: list[Path] = []
    with atomic_files() if files is None else contextlib.nullcontext(files) as together:
        paths += _write_pictures(record, folder, extras, together)
        for name in OUTPUTS:
            if name not in formats:
                continue
            path = output_path(record, folder, name)
            content = OUTPUTS[name].write(record, extras)
            if name == "json":  # from then on the earlier one shows nothing
                OutputManifest(record.id, folder, web).write(record, formats, together)
            if content is None:
                together.remove(path)
                continue
            partial = together.partial(path)
            try:
                if callable(content):
                    content(partial)
                else:
                    partial.write_bytes(content.encode() if isinstance(content, str) else content)
                paths.append(path)
            except MediaError as error:  # the outputs that are not cut from the video are kept
                together.partials.pop(path)
                together.remove(path)
                together.error = error
    _warn_missing_fields(record, extras, folder)
    return paths


def _warn_missing_fields(record: Record, extras: OutputExtras, folder: Path) -> None:
    """Log which fields a Recipe lacks for search engines, and the address Label Studio lacks."""
    if "recipe" in extras.formats:
        gaps = missing_recipe_fields(record, record_links(record, extras))
        if gaps:
            log.warning(
                "%s: Google asks for more of a Recipe: %s",
                output_path(record, folder, "recipe"),
                "; ".join(gaps),
            )
    if "labelstudio" in extras.formats and extras.web == NO_ADDRESSES:
        log.warning(
            "%s: Label Studio opens only addresses; give the video's by --media-url",
            output_path(record, folder, "labelstudio"),
        )


def _write_pictures(
    record: Record, folder: Path, extras: OutputExtras, files: FileSet
) -> list[Path]:
    """Write the pictures that Markdown and Recipe link, and return their paths."""
    if not any(OUTPUTS[name].keyframes == "beside" for name in extras.formats):
        return []
    picture_folder = pictures_folder(record, folder)
    paths = []
    for id, link in picture_links(record, extras).items():
        path = picture_folder / Path(link).name
        files.partial(path).write_bytes(extras.keyframes[id])
        paths.append(path)
    # Pictures of an earlier run go, unless the set knows that they are written now.
    for old_picture in picture_folder.glob("[0-9][0-9]*-*"):
        files.remove(old_picture)
    return paths
