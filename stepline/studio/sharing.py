"""The outputs of a corrected record for a browser or a program, and a folder of them that needs no
server."""

import shutil
import tempfile
import zipfile
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from stepline.atomic_files import atomic_path, files_below, write_atomic
from stepline.errors import SettingsError
from stepline.library.corrected_library import CorrectedLibrary
from stepline.outputs import OUTPUTS, USUAL, output_path, output_places, write_outputs
from stepline.outputs.html import template
from stepline.outputs.shared_folder import claim_shared_folder
from stepline.outputs.text import clock, safe_stem
from stepline.pipeline.batch import keyframes
from stepline.progress import trim_memory
from stepline.records import Record

INDEX_FILE = "index.html"


def write_output(record: Record, name: str, video: Path | None) -> Path:
    """Write one output of a record into a temporary folder, which the caller removes; return its
    file, a zip of several files.

    Raises SettingsError for an unknown output, or one that this record or a missing video does not
    allow.
    """
    if name not in OUTPUTS:
        raise SettingsError(f"unknown output format {name!r}; known: {', '.join(OUTPUTS)}")
    folder = Path(tempfile.mkdtemp(prefix="stepline-"))
    try:
        pictures = {}
        if OUTPUTS[name].keyframes != "none" and video is not None:
            pictures = keyframes(record, video)
        write_outputs(
            record, folder, keyframes=pictures, media=video, linked=False, formats=(name,)
        )
        path = output_path(record, folder, name)
        if not path.exists():
            raise SettingsError(f"output format {name!r} cannot hold this record; take another")
        written: list[Path] = []
        for place in output_places(record, folder, name):
            if place.is_dir():
                written += files_below(place)
            elif place.is_file():
                written.append(place)
        if len(written) == 1 and path.is_file():
            return path
        packed = folder / f"{safe_stem(record.id)}.{name}.zip"
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_STORED) as archive:
            for file in written:
                archive.write(file, file.relative_to(folder))
        return packed
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    finally:
        # Each thread that answers would keep what it freed, for as long as the studio runs.
        trim_memory()


def share(library: CorrectedLibrary, ids: Sequence[str], out: Path) -> Path:
    """Write the pages and usual outputs of corrected videos into a folder, with their videos and an
    index; return the index.

    Raises StoreError for a folder that `share` did not make, or that is not allowed.
    """
    folder = library.resolve_allowed(out)
    claim_shared_folder(folder)
    rows = []
    for id in dict.fromkeys(ids):
        record = library.corrected(id).record
        video = library.media_file(id, record.video)
        name = f"{safe_stem(record.id)}-{id[:4]}"
        copy = None
        pictures = {}
        if video is not None:
            copy = folder / "videos" / f"{name}{video.suffix.lower()}"
            with atomic_path(copy) as partial:
                shutil.copyfile(video, partial)
        named = record.video.model_copy(update={"path": copy and copy.name})
        record = record.model_copy(update={"id": name, "video": named})
        if copy is not None:
            pictures = keyframes(record, copy)
        write_outputs(record, folder, keyframes=pictures, media=copy, formats=USUAL)
        rows.append(
            {
                "page": output_path(record, folder, "html").name,
                "title": named.title or record.id,
                "length": clock(named.duration) if named.duration else "",
                "steps": [step.text for step in record.steps],
            }
        )
    page = files("stepline.studio") / "pages" / "shared.html"
    write_atomic(folder / INDEX_FILE, template(page.read_text(encoding="utf-8")).render(rows=rows))
    trim_memory()
    return folder / INDEX_FILE
