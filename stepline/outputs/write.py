"""Write the outputs of a record, together or not at all."""

import contextlib
import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from stepline.files.atomic_files import FileSet, atomic_files
from stepline.outputs.jsonld import recipe_gaps
from stepline.outputs.ownership import OutputManifest
from stepline.outputs.registry import (
    NO_ADDRESSES,
    OUTPUTS,
    USUAL,
    Content,
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

    A format that cannot hold the record (chapters of a short video) is left out, and an older file
    of its name is removed.

    Args:
        record: to write.
        folder: of the outputs.
        alignment: P(each step is shown in each second), None where nothing was grounded.
        keyframes: a JPEG of each step, by the step's id.
        media: path of the video.
        linked: whether outputs link the video. False for a video that does not stay.
        formats: keys of OUTPUTS, or one of them.
        said_cues: whether subtitles also hold steps that are only said.
        files: a set of other files together with which the outputs appear. None: only the outputs.
        web: addresses of the folder and the video, for the outputs that name addresses.

    Raises SettingsError for an unknown format and for one that needs the video where none is given.
    Raises ModelError where its library is not installed, MediaError where the video cannot be read,
    StoreError where the folder cannot be written.
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
            else:
                _write_content(content, together.partial(path))
                paths.append(path)
    _warn_missing_fields(record, extras, folder)
    return paths


def _warn_missing_fields(record: Record, extras: OutputExtras, folder: Path) -> None:
    """Log which fields a Recipe lacks for search engines, and the address Label Studio lacks."""
    if "recipe" in extras.formats:
        gaps = recipe_gaps(record, record_links(record, extras))
        if gaps:
            path = output_path(record, folder, "recipe")
            log.warning("%s: Google asks for more of a Recipe: %s", path, "; ".join(gaps))
    if "labelstudio" in extras.formats and extras.web == NO_ADDRESSES:
        path = output_path(record, folder, "labelstudio")
        log.warning("%s: Label Studio opens only addresses; give the video's by --media-url", path)


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


def _write_content(content: Content, path: Path) -> None:
    if callable(content):
        content(path)
    elif isinstance(content, str):
        path.write_bytes(content.encode())
    else:
        path.write_bytes(content)
