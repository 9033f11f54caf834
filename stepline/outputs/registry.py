"""The outputs of a record as one table, and all of them written beside each other, each whole or not at all."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from stepline.errors import SettingsError
from stepline.outputs.chapters import chapters
from stepline.outputs.jsonld import jsonld
from stepline.outputs.page import page, record_digest
from stepline.outputs.subtitles import srt, webvtt
from stepline.outputs.text import safe_stem
from stepline.records import Alignment, Record
from stepline.storage import remove_file, to_json, write_atomic


@dataclass(frozen=True)
class OutputExtras:
    """What an output may show beside the record; media is the video's path as seen from the output's folder."""

    alignment: Alignment | None = None
    media: str | None = None
    keyframes: Mapping[str, bytes] = field(default_factory=dict)
    said_cues: bool = True


Writer = Callable[[Record, OutputExtras], str | None]

# name -> (suffix, writer); a writer returns None where the format cannot hold the record. The JSON comes last: where
# it stands, the outputs before it are complete.
OUTPUTS: dict[str, tuple[str, Writer]] = {
    "vtt": (".vtt", lambda record, extras: webvtt(record, said=extras.said_cues)),
    "srt": (".srt", lambda record, extras: srt(record, said=extras.said_cues)),
    "chapters": (".chapters.txt", lambda record, _: chapters(record)),
    "jsonld": (".howto.jsonld", lambda record, _: jsonld(record)),
    "html": (".html", lambda record, more: page(record, more.alignment, media=more.media, keyframes=more.keyframes)),
    "json": (".json", lambda record, _: to_json(record)),
}


def write_outputs(
    record: Record,
    folder: Path,
    *,
    alignment: Alignment | None = None,
    keyframes: Mapping[str, bytes] | None = None,
    media: Path | None = None,
    formats: Sequence[str] = tuple(OUTPUTS),
    said_cues: bool = True,
) -> list[Path]:
    """Write `<id>` with each format's suffix into the folder and return the paths, in the order of OUTPUTS.

    media: the video's path, linked from the page relative to the folder. A format that cannot hold the record
    (chapters of a short video) is left out, and an older file of its name removed.
    Raises SettingsError for an unknown format, StoreError where the folder cannot be written.
    """
    unknown = [name for name in formats if name not in OUTPUTS]
    if unknown:
        raise SettingsError(f"unknown output format {unknown[0]!r}; known: {', '.join(OUTPUTS)}")
    link = os.path.relpath(media, folder) if media is not None else None
    extras = OutputExtras(alignment, link, keyframes or {}, said_cues)
    paths = []
    for name in (name for name in OUTPUTS if name in formats):
        path, text = output_path(record, folder, name), OUTPUTS[name][1](record, extras)
        if text is None:
            remove_file(path)
        else:
            write_atomic(path, text)
            paths.append(path)
    return paths


def missing_outputs(record: Record, folder: Path, formats: Sequence[str]) -> list[str]:
    """Return those of the formats that do not stand in the folder as this record gives them."""
    return [name for name in OUTPUTS if name in formats and not _stands(record, folder, name)]


def _stands(record: Record, folder: Path, name: str) -> bool:
    path = output_path(record, folder, name)
    try:
        present = path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        present = None
    except OSError:  # writing it will say what is wrong with it
        return False
    if name == "html":  # it shows more than the record holds, so it cannot be made again for comparison
        return present is not None and record_digest(record) in present
    return present == OUTPUTS[name][1](record, OutputExtras())


def output_path(record: Record, folder: Path, name: str) -> Path:
    """Return where `write_outputs` puts one format of the record."""
    return folder / (safe_stem(record.id) + OUTPUTS[name][0])
