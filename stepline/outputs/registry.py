"""The outputs of a record as one table, all of them written beside each other, together or not at
all."""

import contextlib
import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

from stepline.errors import SettingsError, StoreError
from stepline.limits import parse_json
from stepline.outputs import documents, editing
from stepline.outputs.chapters import chapters
from stepline.outputs.clips import ANIMATIONS, animations, step_file_name
from stepline.outputs.html import PAGE_MARK
from stepline.outputs.jsonld import jsonld, recipe_jsonld
from stepline.outputs.page import page, record_digest
from stepline.outputs.subtitles import srt, webvtt
from stepline.outputs.text import safe_stem
from stepline.plugins import load_plugin, plugin_identities, plugin_names
from stepline.records import Alignment, Record, Video
from stepline.storage import FileSet, atomic_files, partial_files, read_record, to_json
from stepline.weights import sha256

PICTURES = ".pictures"  # of the folder of key frames that some outputs link


@dataclass(frozen=True)
class OutputExtras:
    """What an output may show beside the record; media is the video's path as seen from the
    output's folder.

    video: the same file as seen from here, for outputs that are made from it.
    """

    alignment: Alignment | None = None
    media: str | None = None
    keyframes: Mapping[str, bytes] = field(default_factory=dict)
    said_cues: bool = True
    video: Path | None = None


# What a file holds, or what writes it to a path; of a folder, by the files' names.
Content: TypeAlias = str | bytes | Callable[[Path], None]
Writer: TypeAlias = Callable[[Record, OutputExtras], Content | Mapping[str, Content] | None]


class Output(NamedTuple):
    """A row: the suffix of the file or folder, and its writer, which returns None where a record
    does not fit.

    usual: written where no format is named. folder: of several files, named by the steps' numbers.
    keyframes: of the steps; "inside" it, or "beside" it in a folder, linked. remade: the record
    alone gives its text.
    """

    suffix: str
    write: Writer
    usual: bool = False
    folder: bool = False
    keyframes: Literal["none", "inside", "beside"] = "none"
    remade: bool = False


def _markdown(record: Record, extras: OutputExtras) -> str:
    return documents.markdown(record, _picture_links(record, extras), extras.media)


def _recipe(record: Record, extras: OutputExtras) -> str:
    return recipe_jsonld(record, _picture_links(record, extras), extras.media)


def _picture_links(record: Record, extras: OutputExtras) -> dict[str, str]:
    """Return the path of each step's picture as seen from the outputs' folder, by the step's id."""
    names = {
        step.id: step_file_name(number, step, ".jpg")
        for number, step in enumerate(record.steps, start=1)
    }
    return {
        id: f"{safe_stem(record.id)}{PICTURES}/{name}"
        for id, name in names.items()
        if id in extras.keyframes
    }


def _chaptered(form: str) -> Writer:
    def write(record: Record, extras: OutputExtras) -> Content | None:
        from stepline.media import copy_with_chapters

        video, found = _video(extras, form), editing.file_chapters(record)
        return (lambda path: copy_with_chapters(video, found, path)) if found else None

    return write


def _animated(form: str) -> Writer:
    return lambda record, extras: dict(animations(record, _video(extras, form), f".{form}")) or None


def _video(extras: OutputExtras, form: str) -> Path:
    if extras.video is None:
        raise SettingsError(
            f"--format {form}: it is made from the video, and none is given; leave {form} out"
        )
    return extras.video


# The JSON comes last: where it stands, the outputs before it are complete.
OUTPUTS: dict[str, Output] = {
    "vtt": Output(
        ".vtt", lambda r, extras: webvtt(r, said=extras.said_cues), usual=True, remade=True
    ),
    "srt": Output(".srt", lambda r, extras: srt(r, said=extras.said_cues), usual=True, remade=True),
    "chapters": Output(".chapters.txt", lambda r, _: chapters(r), usual=True, remade=True),
    "jsonld": Output(".howto.jsonld", lambda r, _: jsonld(r), usual=True, remade=True),
    "markdown": Output(".md", _markdown, keyframes="beside"),
    "recipe": Output(".recipe.jsonld", _recipe, keyframes="beside"),
    "docx": Output(
        ".docx", lambda r, extras: documents.docx(r, extras.keyframes), keyframes="inside"
    ),
    "pdf": Output(".pdf", lambda r, extras: documents.pdf(r, extras.keyframes), keyframes="inside"),
    "ffmetadata": Output(".ffmetadata.txt", lambda r, _: editing.ffmetadata(r), remade=True),
    "mp4": Output(".chapters.mp4", _chaptered("mp4")),
    "mkv": Output(".chapters.mkv", _chaptered("mkv")),
    "otio": Output(".otio", lambda r, extras: editing.opentimelineio(r, extras.media)),
    "edl": Output(".edl", lambda r, _: editing.edl(r), remade=True),
    "labelstudio": Output(
        ".labelstudio.json", lambda r, extras: editing.label_studio(r, extras.media)
    ),
    "webp": Output(f".webp{ANIMATIONS}", _animated("webp"), folder=True),
    "gif": Output(f".gif{ANIMATIONS}", _animated("gif"), folder=True),
    "html": Output(
        ".html",
        lambda r, more: page(r, more.alignment, media=more.media, keyframes=more.keyframes),
        usual=True,
        keyframes="inside",
    ),
    "json": Output(".json", lambda r, _: to_json(r), usual=True, remade=True),
}
OWN_OUTPUTS = frozenset(OUTPUTS)  # plugins join them when they are named
USUAL = tuple(name for name, row in OUTPUTS.items() if row.usual)


def find_outputs(names: Sequence[str]) -> None:
    """Take the plugins among these formats into OUTPUTS, before the JSON.

    Raises SettingsError for a name that is neither in it nor a plugin's, and for a plugin that is
    no Output.
    """
    for name in (name for name in names if name not in OUTPUTS):
        if name not in plugin_names("outputs"):
            known = ", ".join((*OUTPUTS, *plugin_names("outputs")))
            raise SettingsError(f"unknown output format {name!r}; known: {known}")
        output = load_plugin("outputs", name)
        if not isinstance(output, Output):
            raise SettingsError(
                f"{name!r}: the plugin is a {type(output).__name__}, no Output; mend or uninstall it"
            )
        OUTPUTS[name] = output
        OUTPUTS["json"] = OUTPUTS.pop("json")


def render(record: Record, name: str) -> str:
    """Return an output of a record as text. Raises SettingsError for an unknown one and one that is
    no text."""
    find_outputs([name])
    text = OUTPUTS[name].write(record, OutputExtras())
    if not isinstance(text, str):
        reason = "cannot hold this record" if text is None else "is no text"
        raise SettingsError(
            f"output format {name!r} {reason}; write it with stepline.write_outputs, or take another"
        )
    return text


def write_outputs(
    record: Record,
    folder: Path,
    *,
    alignment: Alignment | None = None,
    keyframes: Mapping[str, bytes] | None = None,
    media: Path | None = None,
    linked: bool = True,
    formats: Sequence[str] = USUAL,
    said_cues: bool = True,
    files: FileSet | None = None,
) -> list[Path]:
    """Write `<id>` with each format's suffix into the folder and return the paths, in the order of
    OUTPUTS.

    media: the video's path, linked from the page relative to the folder, unless it does not stay:
    linked=False. A format that cannot hold the record (chapters of a short video) is left out, and
    an older file of its name removed.
    files: a set of other files with which these appear; without it they are a set of their own.
    Raises SettingsError for an unknown format and for one that needs the video where none is given,
    ModelError where its library is not installed, MediaError where the video cannot be read,
    StoreError where the folder cannot be written.
    """
    find_outputs(formats)
    link = os.path.relpath(media, folder) if media is not None and linked else None
    extras = OutputExtras(alignment, link, keyframes or {}, said_cues, media)
    paths: list[Path] = []
    with atomic_files() if files is None else contextlib.nullcontext(files) as together:
        if any(OUTPUTS[name].keyframes == "beside" for name in formats):
            links = _picture_links(record, extras)
            pictures: dict[str, Content] = {
                Path(links[id]).name: extras.keyframes[id] for id in links
            }
            paths += _write_folder(_pictures_folder(record, folder), pictures, together)
        for name in (name for name in OUTPUTS if name in formats):
            path, content = output_path(record, folder, name), OUTPUTS[name].write(record, extras)
            if name == "json":  # from then on the earlier one tells nothing
                _keep_ownership(record, folder, formats, together)
            if OUTPUTS[name].folder:
                paths += _write_folder(
                    path, content if isinstance(content, Mapping) else {}, together
                )
            elif content is None or isinstance(content, Mapping):
                together.remove(path)
            else:
                _write(content, together.partial(path))
                paths.append(path)
    return paths


def _write_folder(folder: Path, contents: Mapping[str, Content], files: FileSet) -> list[Path]:
    """Write the files of a folder, and have those of an earlier run that none replaces removed."""
    for name, content in contents.items():
        _write(content, files.partial(folder / name))
    for stale in folder.glob("[0-9][0-9]*-*"):
        files.remove(stale)
    return [folder / name for name in contents]


def _write(content: Content, path: Path) -> None:
    if callable(content):
        content(path)
    else:
        path.write_bytes(content.encode() if isinstance(content, str) else content)


def missing_outputs(record: Record, folder: Path, formats: Sequence[str]) -> list[str]:
    """Return those of the formats that do not stand in the folder as this record gives them."""
    return [name for name in OUTPUTS if name in formats and not _stands(record, folder, name)]


def _stands(record: Record, folder: Path, name: str) -> bool:
    path = output_path(record, folder, name)
    if not (OUTPUTS[name].remade or name == "html"):
        inside = [
            file
            for place in output_places(record, folder, name)
            for file in (place, *place.glob("*"))
        ]
        on_disk = {file: file for file in inside if file.is_file()}
        return (
            _notes(record, folder)[0].get(path.name, "").split()[:2]
            == _mark(record, name, path, on_disk).split()
        )
    try:
        present = path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        present = None
    except OSError:  # writing it will say what is wrong with it
        return False
    # it shows more than the record holds, so it cannot be made again for comparison
    if name == "html":
        return present is not None and record_digest(record) in present
    return present == OUTPUTS[name].write(record, OutputExtras())


def foreign_outputs(id: str, folder: Path, formats: Sequence[str]) -> list[Path]:
    """Return what stands where the outputs of an id would, and is no file of an earlier run, or was
    changed since."""
    own, record = _own_outputs(id, folder, formats), Record(id=id, video=Video(id=id))
    places = (
        output_path(record, folder, name)
        for name in OUTPUTS
        if name in formats and not OUTPUTS[name].folder
    )
    return [path for path in places if os.path.lexists(path) and path not in own]


def _keep_ownership(record: Record, folder: Path, formats: Sequence[str], files: FileSet) -> None:
    """Note which files are Stepline's own where the new JSON will not tell.

    They are those of an earlier run in other formats than those written now, and of those written,
    which stand in `files`, the ones that the record alone does not give.
    """
    note, earlier = _note(record, folder), _notes(record, folder)
    others = [name for name in OUTPUTS if name not in (*formats, "html")]
    own = _own_outputs(record.id, folder, others)
    kept = {
        path.name: next((noted[path.name] for noted in earlier if path.name in noted), sha256(path))
        for path in own
    }
    for name in (name for name in formats if not (OUTPUTS[name].remade or name == "html")):
        path, places = output_path(record, folder, name), output_places(record, folder, name)
        new = {
            file: partial
            for file, partial in files.partials.items()
            if {file, file.parent} & set(places)
        }
        # what stands there until then
        before = [noted.get(path.name, "").partition(" ")[0] for noted in earlier]
        kept[path.name] = " ".join([_mark(record, name, path, new), *before]).strip()
    if kept:
        files.partial(note).write_text(json.dumps(kept), encoding="utf-8")
    else:
        files.remove(note)


def output_places(record: Record, folder: Path, name: str) -> list[Path]:
    """Return the file or folder of an output, and the folder of the pictures that it links."""
    path = output_path(record, folder, name)
    return (
        [path, _pictures_folder(record, folder)] if OUTPUTS[name].keyframes == "beside" else [path]
    )


def _mark(record: Record, name: str, path: Path, files: Mapping[Path, Path]) -> str:
    """Return the sha256 of an output's file ("none" without one), and one over its files, the
    record and its plugin.

    files: where the bytes of each are now.
    """
    digests = {file: sha256(place) for file, place in files.items()}
    plugin = plugin_identities({"outputs": name}) if name not in OWN_OUTPUTS else {}
    lines = [
        record_digest(record),
        *plugin.values(),
        *sorted(f"{file.name} {digests[file]}" for file in digests),
    ]
    return f"{digests.get(path, 'none')} {hashlib.sha256(chr(10).join(lines).encode()).hexdigest()}"


def _notes(record: Record, folder: Path) -> list[dict[str, str]]:
    """Return what the last run that ended has noted of its files, and after it what killed ones
    have."""
    note = _note(record, folder)
    return [_read_note(path) for path in (note, *partial_files(note))]


def _read_note(path: Path) -> dict[str, str]:
    with contextlib.suppress(OSError, ValueError):
        noted = parse_json(path.read_bytes())
        return (
            {str(name): str(mark) for name, mark in noted.items()}
            if isinstance(noted, dict)
            else {}
        )
    return {}


def _own_outputs(id: str, folder: Path, formats: Sequence[str]) -> list[Path]:
    """Return the outputs that an earlier run has left in these formats.

    They are a record, a page with Stepline's mark, and in the other formats what that record gives,
    or what was noted of them. Where a kill came between files that should appear together, the
    record left beside them counts too.
    """
    video = Record(id=id, video=Video(id=id))
    places = {name: output_path(video, folder, name) for name in OUTPUTS}
    earlier: dict[Path, Record] = {}
    for path in (places["json"], *partial_files(places["json"])):
        with contextlib.suppress(StoreError):
            earlier[path] = read_record(path)
    notes = _notes(video, folder)
    either = (OutputExtras(), OutputExtras(said_cues=False))
    found = [places["json"]] if places["json"] in earlier else []
    for name in (name for name in formats if name != "json" and places[name].is_file()):
        path, write = places[name], OUTPUTS[name].write
        if name == "html":
            own = PAGE_MARK.encode() in path.read_bytes()
        else:
            own = any(sha256(path) in noted.get(path.name, "").split() for noted in notes)
        if not own and OUTPUTS[name].remade:
            texts = (write(record, extras) for record in earlier.values() for extras in either)
            data = path.read_bytes()
            own = any(isinstance(text, str) and text.encode() == data for text in texts)
        if own:
            found.append(path)
    return found


def _note(record: Record, folder: Path) -> Path:
    return folder / f".{safe_stem(record.id)}.outputs.json"


def _pictures_folder(record: Record, folder: Path) -> Path:
    return folder / f"{safe_stem(record.id)}{PICTURES}"


def output_path(record: Record, folder: Path, name: str) -> Path:
    """Return where `write_outputs` puts one format of the record."""
    return folder / (safe_stem(record.id) + OUTPUTS[name].suffix)
