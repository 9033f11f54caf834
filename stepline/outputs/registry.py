"""The outputs of a record as one table, all of them written beside each other, together or not at all."""

import contextlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from stepline.errors import SettingsError, StoreError
from stepline.limits import parse_json
from stepline.outputs.chapters import chapters
from stepline.outputs.html import PAGE_MARK
from stepline.outputs.jsonld import jsonld
from stepline.outputs.page import page, record_digest
from stepline.outputs.subtitles import srt, webvtt
from stepline.outputs.text import safe_stem
from stepline.records import Alignment, Record, Video
from stepline.storage import FileSet, atomic_files, partial_files, read_record, to_json
from stepline.weights import sha256


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
    files: FileSet | None = None,
) -> list[Path]:
    """Write `<id>` with each format's suffix into the folder and return the paths, in the order of OUTPUTS.

    media: the video's path, linked from the page relative to the folder. A format that cannot hold the record
    (chapters of a short video) is left out, and an older file of its name removed. files: a set of other files with
    which these appear; without it they are a set of their own.
    Raises SettingsError for an unknown format, StoreError where the folder cannot be written.
    """
    unknown = [name for name in formats if name not in OUTPUTS]
    if unknown:
        raise SettingsError(f"unknown output format {unknown[0]!r}; known: {', '.join(OUTPUTS)}")
    link = os.path.relpath(media, folder) if media is not None else None
    extras = OutputExtras(alignment, link, keyframes or {}, said_cues)
    paths = []
    with atomic_files() if files is None else contextlib.nullcontext(files) as together:
        for name in (name for name in OUTPUTS if name in formats):
            path, text = output_path(record, folder, name), OUTPUTS[name][1](record, extras)
            if text is None:
                together.remove(path)
            else:
                together.partial(path).write_bytes(text.encode())
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


def foreign_outputs(id: str, folder: Path, formats: Sequence[str]) -> list[Path]:
    """Return what stands where the outputs of an id would, and is no file of an earlier run, or was changed since."""
    own = _own_outputs(id, folder, formats)
    places = (output_path(Record(id=id, video=Video(id=id)), folder, name) for name in OUTPUTS if name in formats)
    return [path for path in places if os.path.lexists(path) and path not in own]


def keep_ownership(record: Record, folder: Path, formats: Sequence[str], files: FileSet) -> None:
    """Note the files of an earlier run in other formats than those written now: the new JSON will not tell of them."""
    note, others = _note(record, folder), [name for name in OUTPUTS if name not in (*formats, "html")]
    kept = {path.name: sha256(path) for path in _own_outputs(record.id, folder, others)}
    if kept:
        files.partial(note).write_text(json.dumps(kept), encoding="utf-8")
    else:
        files.remove(note)


def _own_outputs(id: str, folder: Path, formats: Sequence[str]) -> list[Path]:
    """Return the outputs that an earlier run has left in these formats.

    They are a record, a page with Stepline's mark, and in the other formats what that record gives, or what was noted
    of them. Where a kill came between files that should appear together, the record left beside them counts too.
    """
    video = Record(id=id, video=Video(id=id))
    places = {name: output_path(video, folder, name) for name in OUTPUTS}
    earlier: dict[Path, Record] = {}
    for path in (places["json"], *partial_files(places["json"])):
        with contextlib.suppress(StoreError):
            earlier[path] = read_record(path)
    noted = None
    with contextlib.suppress(OSError, ValueError):
        noted = parse_json(_note(video, folder).read_bytes())
    digests = noted if isinstance(noted, dict) else {}
    either = (OutputExtras(), OutputExtras(said_cues=False))
    found = [places["json"]] if places["json"] in earlier else []
    for name in (name for name in formats if name != "json" and places[name].is_file()):
        data = places[name].read_bytes()
        own = PAGE_MARK.encode() in data if name == "html" else digests.get(places[name].name) == sha256(places[name])
        texts = (OUTPUTS[name][1](record, extras) for record in earlier.values() for extras in either if name != "html")
        if own or any(text is not None and text.encode() == data for text in texts):
            found.append(places[name])
    return found


def _note(record: Record, folder: Path) -> Path:
    return folder / f".{safe_stem(record.id)}.outputs.json"


def output_path(record: Record, folder: Path, name: str) -> Path:
    """Return where `write_outputs` puts one format of the record."""
    return folder / (safe_stem(record.id) + OUTPUTS[name][0])
