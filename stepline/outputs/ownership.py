"""Which files in a folder are outputs that Stepline wrote, and which belong to somebody else."""

import contextlib
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from stepline.atomic_files import FileSet, partial_files
from stepline.errors import StoreError
from stepline.limits import parse_json
from stepline.outputs.html import PAGE_MARK
from stepline.outputs.page import record_digest
from stepline.outputs.registry import OUTPUTS, OWN_OUTPUTS, OutputExtras, output_path, output_places
from stepline.outputs.text import safe_stem
from stepline.plugins import plugin_identities
from stepline.records import Record, Video
from stepline.storage import read_record
from stepline.weights import sha256


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
