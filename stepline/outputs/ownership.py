"""Which files in a folder are outputs that Stepline wrote, and which belong to someone else."""

import contextlib
import functools
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from stepline.errors import StoreError
from stepline.files.atomic_files import FileSet, partial_files
from stepline.files.digests import sha256
from stepline.limits import parse_json
from stepline.outputs.page import record_digest
from stepline.outputs.registry import (
    NO_ADDRESSES,
    OUTPUTS,
    OWN_OUTPUTS,
    OutputExtras,
    output_path,
    output_places,
    page_digest,
)
from stepline.outputs.text import safe_stem
from stepline.outputs.web_addresses import PAGE_MARK, WebAddresses
from stepline.plugins import plugin_identities
from stepline.records import Record, Video
from stepline.storage import read_record

# What an output that is made from the record alone may have been written with.
EXTRAS_OF_REMADE = (OutputExtras(), OutputExtras(said_cues=False))


def missing_outputs(
    record: Record, folder: Path, formats: Sequence[str], web: WebAddresses | None = None
) -> list[str]:
    """Return those of the formats that are not in the folder as this record gives them, with these
    addresses."""
    manifest = OutputManifest(record.id, folder, web)
    missing = []
    for name in OUTPUTS:
        if name in formats and not manifest.has(record, name, formats):
            missing.append(name)
    return missing


def foreign_outputs(id: str, folder: Path, formats: Sequence[str]) -> list[Path]:
    """Return the output paths taken by files that no run wrote, or that were changed since."""
    manifest = OutputManifest(id, folder)
    places = []
    for name in OUTPUTS:
        if name not in formats:
            continue
        path = manifest.path_of(name)
        if os.path.lexists(path) and not manifest.owns(name):
            places.append(path)
    return places


class OutputManifest:
    """Outputs of earlier runs for one id in a folder, from its record and a hidden note.

    The note, `.ID.outputs.json`, has a line of digests for each output that cannot be recognised
    without it. The digests are the sha256 of the file, one over all its files, the record and the
    plugin. The last is the sha256 of what was there before. web: the addresses of this run.
    """

    def __init__(self, id: str, folder: Path, web: WebAddresses | None = None) -> None:
        self.folder = folder
        self.web = web or NO_ADDRESSES
        self.note_path = folder / f".{safe_stem(id)}.outputs.json"
        self._named = Record(id=id, video=Video(id=id))  # for the paths, which follow from the id

    def path_of(self, name: str) -> Path:
        """Return the file of an output."""
        return output_path(self._named, self.folder, name)

    @functools.cached_property
    def notes(self) -> list[dict[str, str]]:
        """The note of the last run that ended, and after it those of killed ones."""
        paths = [self.note_path, *partial_files(self.note_path)]
        return [_read_note(path) for path in paths]

    @functools.cached_property
    def records(self) -> dict[Path, Record]:
        """The record of the last run, and those that runs killed between two files left."""
        path = self.path_of("json")
        readable = {}
        for candidate in (path, *partial_files(path)):
            with contextlib.suppress(StoreError):
                readable[candidate] = read_record(candidate)
        return readable

    def owns(self, name: str) -> bool:
        """Whether an earlier run has left this output, and no one has changed it since."""
        # a record, a page, or a file that is noted or follows from the record
        path = self.path_of(name)
        if name == "json":  # a record is one that can be read
            return path in self.records
        if not path.is_file():
            return False
        if name == "html":  # a page has Stepline's mark
            return PAGE_MARK.encode() in path.read_bytes()
        # any other output is noted, or is what the record gives
        return self._is_noted(path) or self._is_remade(name)

    def has(self, record: Record, name: str, formats: Sequence[str]) -> bool:
        """Whether this output is in the folder as the record gives it, together with others."""
        path = self.path_of(name)
        if not self._follows_from_record(name):
            files: list[Path] = []
            for place in output_places(record, self.folder, name):
                files += [place, *place.glob("*")]
            on_disk = {file: file for file in files if file.is_file()}
            mark = self._mark(record, name, path, on_disk)
            # Behind these two the note may have what was there before.
            last_mark = self._marks(path)[0]
            return last_mark.split()[:2] == mark.split()
        try:
            text = path.read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            text = None
        except OSError:  # writing it will say what is wrong with it
            return False
        # A page shows more than the record holds, so it cannot be made again for comparison.
        if name == "html":
            if text is None:
                return False
            # a page that holds a Recipe serves where none is asked for
            digests = [page_digest(record, self.web, ["recipe"])]
            if "recipe" not in formats:
                digests.append(page_digest(record, self.web, []))
            return any(digest in text for digest in digests)
        return text == OUTPUTS[name].write(record, OutputExtras())

    def write(self, record: Record, formats: Sequence[str], files: FileSet) -> None:
        """Note which files are Stepline's own where the new JSON will not show it.

        formats: those written now, whose files are in `files`. All but the JSON are there already.
        """
        marks: dict[str, str] = {}
        # Files of an earlier run, in formats that are not written now, and its JSON.
        others = [name for name in OUTPUTS if name not in (*formats, "html")]
        for name in ("json", *others):
            if not self.owns(name):
                continue
            path = self.path_of(name)
            earlier = [mark for mark in self._marks(path) if mark]
            if not earlier:
                earlier = [sha256(path)]
            marks[path.name] = earlier[0]
        # Files of this run that the record alone does not give.
        for name in formats:
            if self._follows_from_record(name):
                continue
            path = self.path_of(name)
            places = output_places(record, self.folder, name)
            new_files = {}
            for file, partial in files.partials.items():
                if file in places or file.parent in places:
                    new_files[file] = partial
            # what is there until the new ones appear, where a kill may leave it
            before = [mark.partition(" ")[0] for mark in self._marks(path)]
            mark = self._mark(record, name, path, new_files)
            marks[path.name] = " ".join([mark, *before]).strip()
        if marks:
            files.partial(self.note_path).write_text(json.dumps(marks), encoding="utf-8")
        else:
            files.remove(self.note_path)

    def _follows_from_record(self, name: str) -> bool:
        """Tell whether a record is enough to recognise its output, without a note."""
        if name == "html":
            return True
        has_addresses = OUTPUTS[name].addressed and self.web != NO_ADDRESSES
        return OUTPUTS[name].remade and not has_addresses

    def _mark(self, record: Record, name: str, path: Path, files: Mapping[Path, Path]) -> str:
        """Return the sha256 of an output's file ("none" without one), and one over its files, the
        record, the addresses and its plugin.

        files: where the bytes of each are now.
        """
        digests = {file: sha256(place) for file, place in files.items()}
        lines = [record_digest(record)]
        if OUTPUTS[name].addressed and self.web != NO_ADDRESSES:
            lines.append(str(self.web))
        if name not in OWN_OUTPUTS:
            lines += plugin_identities({"outputs": name}).values()
        lines += sorted(f"{file.name} {digest}" for file, digest in digests.items())
        whole = hashlib.sha256("\n".join(lines).encode()).hexdigest()
        return f"{digests.get(path, 'none')} {whole}"

    def _marks(self, path: Path) -> list[str]:
        """Return the entry of each note for a file, "" without one."""
        return [note.get(path.name, "") for note in self.notes]

    def _is_noted(self, path: Path) -> bool:
        digest = sha256(path)
        return any(digest in mark.split() for mark in self._marks(path))

    def _is_remade(self, name: str) -> bool:
        """Whether the file holds what one of the records gives."""
        if not OUTPUTS[name].remade:
            return False

        # what the record would give now
        data = self.path_of(name).read_bytes()
        for record in self.records.values():
            for extras in EXTRAS_OF_REMADE:
                text = OUTPUTS[name].write(record, extras)
                if not isinstance(text, str):
                    continue
                if text.encode() == data:
                    return True
        return False


def _read_note(path: Path) -> dict[str, str]:
    with contextlib.suppress(OSError, ValueError):
        note = parse_json(path.read_bytes())
        if isinstance(note, dict):
            return {str(name): str(mark) for name, mark in note.items()}
    return {}
