"""The files that the studio hands out: outputs of a corrected record, and shared pages of videos."""

import contextlib
import shutil
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from importlib.resources import files
from pathlib import Path

from stepline.errors import SettingsError
from stepline.files.atomic_files import atomic_path, files_below, write_atomic
from stepline.library.corrected_library import CorrectedLibrary
from stepline.outputs import OUTPUTS, USUAL, output_path, write_outputs
from stepline.outputs.subtitles import spoken_srt, spoken_vtt
from stepline.outputs.text import clock, safe_stem, step_line, title
from stepline.pages.layout import page_html
from stepline.pipeline.output_files import extract_keyframes
from stepline.processes import trim_memory
from stepline.records import Record

INDEX_FILE = "index.html"
# the sentences as they are said, other than the outputs of the steps
CAPTION_OUTPUTS = {"captions-vtt": spoken_vtt, "captions-srt": spoken_srt}
INDEX_FOOTER = "Made by Stepline. These pages load nothing from the network."


@contextlib.contextmanager
def _temporary_folder() -> Iterator[Path]:
    """Yield a temporary folder. The caller of this module removes it after use.

    It is removed here if an error is raised inside this context.
    """
    folder = Path(tempfile.mkdtemp(prefix="stepline-"))
    try:
        yield folder
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    finally:
        # Each thread that answers would keep what it freed, for as long as the studio runs.
        trim_memory()


def write_output(record: Record, name: str, video: Path | None) -> Path:
    """Write one output of a record into a temporary folder, which the caller removes.

    Args:
        record: a record with its corrections.
        name: key of OUTPUTS or CAPTION_OUTPUTS.
        video: the video file. None if it is missing.

    Returns the path of the file, or of a zip of several files. Raises SettingsError for an unknown
    output, and for an output that this record or a missing video does not allow.
    """
    if name not in OUTPUTS and name not in CAPTION_OUTPUTS:
        names = ", ".join((*OUTPUTS, *CAPTION_OUTPUTS))
        raise SettingsError(f"unknown output format {name!r}; known: {names}")
    with _temporary_folder() as folder:
        if name in CAPTION_OUTPUTS:
            path = folder / f"{safe_stem(record.id)}.{name.replace('-', '.')}"
            write_atomic(path, CAPTION_OUTPUTS[name](record))
            return path
        pictures = {}
        if OUTPUTS[name].keyframes != "none" and video is not None:
            pictures = extract_keyframes(record, video)
        written = write_outputs(
            record, folder, keyframes=pictures, media=video, linked=False, formats=(name,)
        )
        path = output_path(record, folder, name)
        if not path.exists():
            raise SettingsError(f"output format {name!r} cannot hold this record; take another")
        if len(written) == 1:
            return path
        # An output may link pictures, which are packed with it as they are.
        archive_file = folder / f"{safe_stem(record.id)}.{name}.zip"
        with zipfile.ZipFile(archive_file, "w", zipfile.ZIP_STORED) as archive:
            for file in [path, *(file for file in written if file != path)]:
                archive.write(file, file.relative_to(folder))
        return archive_file


def write_share_file(
    library: CorrectedLibrary, ids: Sequence[str], *, with_videos: bool = False
) -> Path:
    """Write corrected videos into one file in a temporary folder, which the caller removes.

    Args:
        library: the library with the videos.
        ids: ids of the videos.
        with_videos: whether the video files are included.

    Returns the page of a single video, or a zip with an index, pages and outputs.
    """
    with _temporary_folder() as folder:
        if len(set(ids)) == 1 and not with_videos:
            return _write_page(library, ids[0], folder)

        # a folder of pages, packed
        pages = folder / "videos-and-steps"
        pages.mkdir()
        _write_share(library, ids, pages, with_videos=with_videos)
        archive_file = folder / "videos-and-steps.zip"
        with zipfile.ZipFile(archive_file, "w", zipfile.ZIP_DEFLATED) as archive:
            for file in files_below(pages):
                # Videos are packed already.
                form = zipfile.ZIP_STORED if file.parent.name == "videos" else None
                archive.write(file, file.relative_to(folder), form)
        shutil.rmtree(pages)
        return archive_file


def _write_page(library: CorrectedLibrary, id: str, folder: Path) -> Path:
    """Write the page of one video, without the video, named by its title."""
    record = library.corrected(id).record
    video = library.media_file(id, record.video)
    pictures = extract_keyframes(record, video) if video is not None else {}
    # The path of this machine is not handed on.
    named = record.video.model_copy(update={"path": None})
    record = record.model_copy(update={"id": safe_stem(title(record)), "video": named})
    write_outputs(record, folder, keyframes=pictures, formats=("html",))
    return output_path(record, folder, "html")


def _write_share(
    library: CorrectedLibrary, ids: Sequence[str], folder: Path, *, with_videos: bool
) -> Path:
    # a page per video
    """Write pages and outputs of videos into a folder, with an index. Return the index."""
    rows = []
    for id in dict.fromkeys(ids):
        record = library.corrected(id).record
        video = library.media_file(id, record.video)
        # Part of the id keeps apart two records of one name.
        name = f"{safe_stem(record.id)}-{id[:4]}"
        copy = None
        if video is not None and with_videos:
            copy = folder / "videos" / f"{name}{video.suffix.lower()}"
            with atomic_path(copy) as partial:
                shutil.copyfile(video, partial)
        pictures = extract_keyframes(record, video) if video is not None else {}
        named = record.video.model_copy(update={"path": copy and copy.name})
        length = clock(named.duration) if named.duration else ""
        heading = title(record)
        record = record.model_copy(update={"id": name, "video": named})
        write_outputs(record, folder, keyframes=pictures, media=copy, formats=USUAL)
        rows.append(
            {
                "page": output_path(record, folder, "html").name,
                "title": heading,
                "length": length,
                "steps": [step_line(step) for step in record.steps],
            }
        )

    # the page that leads to them
    page_file = files("stepline.studio") / "pages" / "shared.html"
    page = page_file.read_text(encoding="utf-8")
    style = (files("stepline.outputs.page") / "style.css").read_text(encoding="utf-8")
    index = page_html(page, style=style, footer=INDEX_FOOTER, rows=rows)
    write_atomic(folder / INDEX_FILE, index)
    trim_memory()
    return folder / INDEX_FILE
