"""The files that the studio hands out: outputs of a corrected record, and shared pages of videos."""

import contextlib
import shutil
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from importlib import resources
from pathlib import Path

from stepline.errors import SettingsError, StoreError
from stepline.files.atomic_files import atomic_path, files_below, write_atomic
from stepline.library.corrected_library import CorrectedLibrary
from stepline.outputs import OUTPUTS, USUAL, output_path, plan_chapters, write_clips, write_outputs
from stepline.outputs.subtitles import spoken_srt, spoken_vtt
from stepline.outputs.text import clock, safe_stem, step_line, title
from stepline.pages.layout import page_html
from stepline.pipeline.output_files import extract_keyframes
from stepline.processes import trim_memory
from stepline.records import Record

INDEX_FILE = "index.html"
# the sentences as they are said, other than the outputs of the steps
CAPTION_OUTPUTS = {"captions-vtt": spoken_vtt, "captions-srt": spoken_srt}
CLIPS = "clips"  # `--clips` of the corrected steps
# Scores of seconds are no part of a record.
OUTPUT_NAMES = (*(name for name in OUTPUTS if name != "alignment"), *CAPTION_OUTPUTS, CLIPS)
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
        name: one of OUTPUT_NAMES.
        video: the video file. None if it is missing.

    Returns the path of the file, or of a zip of several files. Raises SettingsError for an unknown
    output, StoreError for an output that this record or a missing video does not allow.
    """
    if name not in OUTPUT_NAMES:
        raise SettingsError(f"unknown output format {name!r}; known: {', '.join(OUTPUT_NAMES)}")
    with _temporary_folder() as folder:
        if name in CAPTION_OUTPUTS:
            path = folder / f"{safe_stem(record.id)}.{name.replace('-', '.')}"
            write_atomic(path, CAPTION_OUTPUTS[name](record))
            return path
        if name == CLIPS:
            clips = [] if video is None else write_clips(record, video, folder)
            if not clips:
                raise StoreError("no clips: they need the video and a step that is seen or placed")
            return _pack(clips, folder / f"{safe_stem(record.id)}.clips.zip")
        pictures = {}
        if OUTPUTS[name].keyframes != "none" and video is not None:
            pictures = extract_keyframes(record, video)
        written = write_outputs(
            record, folder, keyframes=pictures, media=video, linked=False, formats=(name,)
        )
        path = output_path(record, folder, name)
        if not path.exists():
            if name == "chapters":
                raise StoreError(f"no chapters: {plan_chapters(record).reason}")
            raise StoreError(f"output format {name!r} cannot hold this record; take another")
        if len(written) == 1:
            return path
        # An output may link pictures, which are packed with it.
        return _pack(written, folder / f"{safe_stem(record.id)}.{name}.zip")


def _pack(files: Iterable[Path], archive_file: Path) -> Path:
    """Write files into a zip in the folder that holds them, and return its path."""
    with zipfile.ZipFile(archive_file, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in files:
            # Videos and pictures are packed already.
            form = None if file.suffix in (".html", ".json") else zipfile.ZIP_STORED
            archive.write(file, file.relative_to(archive_file.parent), form)
    return archive_file


def write_share_file(library: CorrectedLibrary, ids: Sequence[str], *, with_videos: bool) -> Path:
    """Write corrected videos into one file in a temporary folder, which the caller removes.

    Args:
        library: the library with the videos.
        ids: ids of the videos.
        with_videos: whether the video files are included.

    Returns the page of a single video, or a zip with an index, pages and outputs.
    """
    with _temporary_folder() as folder:
        if len(set(ids)) == 1 and not with_videos:
            return _write_video(library, ids[0], folder, is_single=True)[1]

        # a folder of pages, packed
        pages = folder / "videos-and-steps"
        pages.mkdir()
        _write_share(library, ids, pages, with_videos=with_videos)
        archive_file = _pack(files_below(pages), folder / "videos-and-steps.zip")
        shutil.rmtree(pages)
        return archive_file


def _write_video(
    library: CorrectedLibrary, id: str, folder: Path, *, is_single: bool, with_video: bool = False
) -> tuple[Record, Path]:
    """Write the page of one video into a folder, and where others are there its usual outputs.

    Args:
        library: the library with the video.
        id: id of the video.
        folder: the folder of the page.
        is_single: whether no other video is there. Its page is then named by its title.
        with_video: whether the video file is copied.

    Returns the record and the page.
    """
    record = library.corrected(id).record
    video = library.media_file(id, record.video)
    # Part of the id keeps apart two records of one name.
    name = safe_stem(title(record)) if is_single else f"{safe_stem(record.id)}-{id[:4]}"
    copy = None
    if video is not None and with_video:
        copy = folder / "videos" / f"{name}{video.suffix.lower()}"
        with atomic_path(copy) as partial:
            shutil.copyfile(video, partial)
    pictures = extract_keyframes(record, video) if video is not None else {}
    # The path of this machine is not handed on.
    named = record.video.model_copy(update={"path": copy and copy.name})
    record = record.model_copy(update={"id": name, "video": named})
    formats = ("html",) if is_single else USUAL
    write_outputs(record, folder, keyframes=pictures, media=copy, formats=formats)
    return record, output_path(record, folder, "html")


def _write_share(
    library: CorrectedLibrary, ids: Sequence[str], folder: Path, *, with_videos: bool
) -> None:
    """Write pages and outputs of videos into a folder, with an index."""
    rows = []
    for id in dict.fromkeys(ids):
        record, page_file = _write_video(
            library, id, folder, is_single=False, with_video=with_videos
        )
        duration = record.video.duration
        rows.append(
            {
                "page": page_file.name,
                "title": title(record),
                "length": clock(duration) if duration else "",
                "steps": [step_line(step) for step in record.steps],
            }
        )

    # the page that leads to them
    page = (resources.files("stepline.studio") / "pages" / "shared.html").read_text(
        encoding="utf-8"
    )
    style = (resources.files("stepline.outputs.page") / "style.css").read_text(encoding="utf-8")
    index = page_html(page, style=style, footer=INDEX_FOOTER, rows=rows)
    write_atomic(folder / INDEX_FILE, index)
