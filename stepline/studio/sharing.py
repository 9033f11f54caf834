"""The outputs of a corrected record for a browser or a program, and a folder of them that needs no
server."""

import shutil
import tempfile
import zipfile
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from stepline.atomic_files import check_writable, files_below, write_atomic
from stepline.errors import SettingsError, StoreError
from stepline.outputs import OUTPUTS, USUAL, output_path, output_places, write_outputs
from stepline.outputs.html import template
from stepline.outputs.text import clock, safe_stem
from stepline.pipeline.batch import keyframes
from stepline.records import Record
from stepline.studio.store import Studio

INDEX = "index.html"


def write_output(record: Record, name: str, video: Path | None) -> Path:
    """Write one output of a record into a temporary folder of its own, which the caller removes;
    several files as zip.

    Raises SettingsError for an output that is unknown, or that this record or a missing video does
    not allow.
    """
    if name not in OUTPUTS:
        raise SettingsError(f"unknown output format {name!r}; known: {', '.join(OUTPUTS)}")
    folder = Path(tempfile.mkdtemp(prefix="stepline-"))
    try:
        pictured = OUTPUTS[name].keyframes != "none" and video is not None
        pictures = keyframes(record, video) if pictured and video is not None else {}
        write_outputs(
            record, folder, keyframes=pictures, media=video, linked=False, formats=(name,)
        )
        path = output_path(record, folder, name)
        if not path.exists():
            raise SettingsError(f"output format {name!r} cannot hold this record; take another")
        made = [file for place in output_places(record, folder, name) for file in _files(place)]
        if len(made) == 1 and path.is_file():
            return path
        packed = folder / f"{safe_stem(record.id)}.{name}.zip"
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_STORED) as archive:
            for file in made:
                archive.write(file, file.relative_to(folder))
        return packed
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _files(place: Path) -> list[Path]:
    return files_below(place) if place.is_dir() else [place] * place.is_file()


def share(studio: Studio, ids: Sequence[str], out: Path) -> Path:
    """Write the pages and usual outputs of videos, as corrected, into a folder, their videos beside
    them and an index.

    Return the index. Raises StoreError for a folder that holds something else, or lies outside of
    what is allowed.
    """
    folder = studio.inside(out)
    if folder.is_dir() and any(folder.iterdir()) and not (folder / INDEX).is_file():
        raise StoreError(f"{folder}: holds other files; give another folder")
    check_writable(folder)
    rows = []
    for id in dict.fromkeys(ids):
        record, video = studio.corrected(id).record, studio.media(id, studio.record(id))
        record = record.model_copy(update={"id": f"{safe_stem(record.id)}-{id[:4]}"})
        beside = None
        if video is not None:
            beside = folder / "videos" / f"{record.id}{video.suffix.lower()}"
            beside.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(video, beside)
        record = record.model_copy(
            update={"video": record.video.model_copy(update={"path": beside and beside.name})}
        )
        pictures = keyframes(record, beside) if beside is not None else {}
        write_outputs(record, folder, keyframes=pictures, media=beside, formats=USUAL)
        rows.append(
            {
                "page": output_path(record, folder, "html").name,
                "title": record.video.title or record.id,
                "length": clock(record.video.duration) if record.video.duration else "",
                "steps": [step.text for step in record.steps],
            }
        )
    page = template(
        (files("stepline.studio") / "pages" / "shared.html").read_text(encoding="utf-8")
    )
    write_atomic(folder / INDEX, page.render(rows=rows))
    return folder / INDEX
