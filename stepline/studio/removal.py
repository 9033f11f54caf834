"""The removal of a video from a library: its record, its outputs, and what people said about it."""

from pathlib import Path

from stepline.files.atomic_files import check_own_file, remove_file
from stepline.library.corrected_library import CorrectedLibrary
from stepline.outputs import OUTPUTS
from stepline.outputs.ownership import OutputManifest

# The tables with rows of one video.
VIDEO_TABLES = ("correction", "machine", "waveform")


def removed_files(library: CorrectedLibrary, id: str) -> list[Path]:
    """Return the files that the removal of a video takes, its record last.

    Raises LookupError for an unknown id, StoreError for a record that is a link.
    """
    path = library.folder / library.video(id).name
    # A record that is a link could be a file of someone else.
    check_own_file(path)
    manifest = OutputManifest(path.stem, path.parent)
    paths = []
    for name in OUTPUTS:
        if name != "json" and manifest.owns(name):
            paths.append(manifest.path_of(name))
    # The record comes last: what a kill leaves before it can be removed again.
    paths += [manifest.note_path, path]
    present = []
    for file in paths:
        if file.is_file() and not file.is_symlink():
            present.append(file)
    return present


def remove_video(library: CorrectedLibrary, id: str) -> list[str]:
    """Remove a video's record, those outputs that Stepline wrote, and its corrections. Return the
    names of the files, below the library's folder.

    The video's own file stays, and so does an output that someone has changed. Raises LookupError
    for an unknown id, StoreError for a record that is a link.
    """
    files = removed_files(library, id)
    # The database first: a record without corrections can be removed again, the reverse cannot.
    with library.database.change() as connection:
        for table in VIDEO_TABLES:
            connection.execute(f"DELETE FROM {table} WHERE video = ?", (id,))
    removed = []
    for file in files:
        remove_file(file)
        removed.append(file.relative_to(library.folder).as_posix())
    return removed
