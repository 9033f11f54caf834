"""Which files in a folder are outputs that Stepline wrote, and which belong to someone else.

A run overwrites only files that an earlier run wrote and nobody has changed since. Most outputs are
recognised because the record gives the same text again. A hidden note holds digests of the others.
"""

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
    BUILT_IN_OUTPUTS,
    NO_ADDRESSES,
    OUTPUTS,
    OutputExtras,
    output_path,
    output_paths,
    page_digest,
)
from stepline.outputs.text import safe_stem
from stepline.outputs.web_addresses import PAGE_MARK, WebAddresses
from stepline.plugins import plugin_identities
from stepline.records import Record, Video
from stepline.storage import read_record


def missing_outputs(
    record: Record, folder: Path, formats: Sequence[str], web: WebAddresses | None = None
) -> list[str]:
    """Return the formats whose files in the folder are missing or differ from this record.

    Args:
        record: the record of the video.
        folder: the folder of the outputs.
        formats: keys of OUTPUTS to check.
        web: web addresses that the outputs should contain. None: no addresses.
    """
    manifest = OutputManifest(record.id, folder, web)
    return [
        name
        for name in OUTPUTS
        if name in formats and not manifest.is_up_to_date(record, name, formats)
    ]


def foreign_outputs(id: str, folder: Path, formats: Sequence[str]) -> list[Path]:
    """Return the output paths whose file no run of Stepline wrote, or was changed after the run.

    Args:
        id: the id of the video's record.
        folder: the folder of the outputs.
        formats: keys of OUTPUTS to check.
    """
    manifest = OutputManifest(id, folder)
    paths = []
    for name in OUTPUTS:
        path = manifest.path_of(name)
        if name in formats and os.path.lexists(path) and not manifest.owns(name):
            paths.append(path)
    return paths


class OutputManifest:
    """What earlier runs noted about the outputs of one record in a folder.

    The sources are the record and a hidden note, `.ID.outputs.json`. The note maps the name of each
    output that cannot be made again from the record to an entry. An entry holds hex digests,
    separated by spaces: of the file, of the file's inputs (its files, record, addresses and
    plugin), and of the files that were there before.
    """

    def __init__(self, id: str, folder: Path, web: WebAddresses | None = None) -> None:
        """Read what earlier runs noted about the outputs of one record.

        Args:
            id: the id of the record.
            folder: the folder of the outputs.
            web: the web addresses that this run writes into outputs. None: no addresses.
        """
        self.folder = folder
        self.web = web or NO_ADDRESSES
        self.note_path = folder / f".{safe_stem(id)}.outputs.json"
        self._named = Record(id=id, video=Video(id=id))  # for the paths, which follow from the id

    def path_of(self, name: str) -> Path:
        """Return the path of an output. name: key of OUTPUTS."""
        return output_path(self._named, self.folder, name)

    @functools.cached_property
    def ownership_notes(self) -> list[dict[str, str]]:
        """Notes about the outputs of earlier runs: output name -> digests, as the class describes
        them.

        First the note of the last run that ended, then the notes that killed runs left.
        """
        paths = [self.note_path, *partial_files(self.note_path)]
        return [_read_note(path) for path in paths]

    @functools.cached_property
    def records(self) -> dict[Path, Record]:
        """The record of the last run, and records of runs that were killed while writing."""
        path = self.path_of("json")
        readable = {}
        for candidate in (path, *partial_files(path)):
            with contextlib.suppress(StoreError):
                readable[candidate] = read_record(candidate)
        return readable

    def owns(self, name: str) -> bool:
        """Whether an earlier run wrote this output, and nobody has changed the file since."""
        path = self.path_of(name)
        if name == "json":
            return path in self.records
        if not path.is_file():
            return False
        if name == "html":
            return PAGE_MARK.encode() in path.read_bytes()
        digest = sha256(path)
        if any(digest in entry.split() for entry in self._entries(path)):
            return True
        # Otherwise one of the records gives the same text again.
        if not OUTPUTS[name].remade:
            return False
        data = path.read_bytes()
        for record in self.records.values():
            for said_cues in (True, False):
                text = OUTPUTS[name].write(record, OutputExtras(said_cues=said_cues))
                if isinstance(text, str) and text.encode() == data:
                    return True
        return False

    def is_up_to_date(self, record: Record, name: str, formats: Sequence[str]) -> bool:
        """Return whether the file of an output equals what the record would give now.

        Args:
            record: the record of the video.
            name: key of OUTPUTS.
            formats: all formats that the user asked for. If a Recipe is among them, the page
                contains it.
        """
        path = self.path_of(name)
        if not self._follows_from_record(name):
            files: list[Path] = []
            for output in output_paths(record, self.folder, name):
                files += [output, *output.glob("*")]
            entry = self._entry(record, name, {file: file for file in files if file.is_file()})
            # After these two digests the note may have those of earlier files.
            return self._entries(path)[0].split()[:2] == entry.split()
        text = None
        with contextlib.suppress(OSError):
            text = path.read_text(encoding="utf-8", errors="replace")
        if name != "html":
            return text == OUTPUTS[name].write(record, OutputExtras())
        # A page shows more than the record, so only its digest is compared. One that holds a Recipe
        # also serves where none is asked for.
        digests = [page_digest(record, self.web, ["recipe"])]
        if "recipe" not in formats:
            digests.append(page_digest(record, self.web, []))
        return text is not None and any(digest in text for digest in digests)

    def write(self, record: Record, formats: Sequence[str], files: FileSet) -> None:
        """Write the note by which a later run recognises the outputs of this run.

        Args:
            record: the record that this run writes.
            formats: keys of OUTPUTS that this run writes.
            files: these outputs except the JSON, written under temporary names.
        """
        note: dict[str, str] = {}
        for name in OUTPUTS:
            if name in ("json", "html"):
                continue
            path = self.path_of(name)
            earlier = self._entries(path)
            if name not in formats:
                # Files of an earlier run, whose record is replaced now.
                if self.owns(name):
                    note[path.name] = next(filter(None, earlier), "") or sha256(path)
            elif not self._follows_from_record(name):
                paths = output_paths(record, self.folder, name)
                new_files = {
                    file: partial
                    for file, partial in files.partials.items()
                    if file in paths or file.parent in paths
                }
                # A kill may leave the file that is there until the new one appears.
                before = [entry.partition(" ")[0] for entry in earlier]
                entry = self._entry(record, name, new_files)
                note[path.name] = " ".join([entry, *before]).strip()
        if note:
            files.partial(self.note_path).write_text(json.dumps(note), encoding="utf-8")
        else:
            files.remove(self.note_path)

    def _follows_from_record(self, name: str) -> bool:
        """Whether the record is enough to recognise an output."""
        has_addresses = OUTPUTS[name].addressed and self.web != NO_ADDRESSES
        return name == "html" or (OUTPUTS[name].remade and not has_addresses)

    def _entry(self, record: Record, name: str, files: Mapping[Path, Path]) -> str:
        """Return two hex digests of an output: of its file ("none" without one), and of its inputs.

        Args:
            record: the record of the video.
            name: key of OUTPUTS.
            files: path of each file of the output -> path at which its bytes are now.
        """
        digests = {file: sha256(place) for file, place in files.items()}
        lines = [record_digest(record)]
        if OUTPUTS[name].addressed and self.web != NO_ADDRESSES:
            lines.append(str(self.web))
        if name not in BUILT_IN_OUTPUTS:
            lines += plugin_identities({"outputs": name}).values()
        lines += sorted(f"{file.name} {digest}" for file, digest in digests.items())
        input_digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()
        return f"{digests.get(self.path_of(name), 'none')} {input_digest}"

    def _entries(self, path: Path) -> list[str]:
        """Return the entry for a file in each note. An entry is "" if the note has none."""
        return [note.get(path.name, "") for note in self.ownership_notes]


def _read_note(path: Path) -> dict[str, str]:
    with contextlib.suppress(OSError, ValueError):
        note = parse_json(path.read_bytes())
        if isinstance(note, dict):
            return {str(name): str(entry) for name, entry in note.items()}
    return {}
