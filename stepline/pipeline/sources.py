"""What a command is given, as videos: files, folders of them, and links, each fetched when its turn
comes.

    for source in find_sources(["films", "https://example.org/whisk.mp4"], out, settings):
        with open_source(source, out, settings) as request:
            run_video(request, settings, options)

What links bring lies in OUT/downloads.
"""

import hashlib
import os
import re
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from stepline.atomic_files import files_below
from stepline.errors import MediaError, StoreError
from stepline.pipeline.request import Request, StepsSettings
from stepline.records import Span
from stepline.storage import read_record

if TYPE_CHECKING:
    from stepline.media.links import Link, Report

Source: TypeAlias = "Path | Link"
Given: TypeAlias = Path | str  # a path, or an address of http(s)

# What a folder is searched for; a file that is named is tried whatever it is called.
SUFFIXES = frozenset(
    {
        ".mp4",
        ".m4v",
        ".mov",
        ".mkv",
        ".webm",
        ".avi",
        ".mpg",
        ".mpeg",
        ".ts",
        ".flv",
        ".wmv",
        ".3gp",
    }
)

LINK = re.compile(r"https?://\S+", re.IGNORECASE)
DOWNLOADS = "downloads"  # folder in an OUT for what links brought
SITE = Path("site")  # in place of a file, where none has that name: what the page of a link has


def is_link(name: str) -> bool:
    """Tell whether an argument is an address, not a path."""
    return LINK.fullmatch(name) is not None


def find_sources(given: Iterable[Given], out: Path, settings: StepsSettings) -> list[Source]:
    """Return the videos of paths, as `find_videos` does, and behind them those of links, playlists
    as many.

    Raises MediaError where a folder holds no video, or a link cannot be reached or leads to none.
    """
    names = [str(name) for name in given]
    links = list(dict.fromkeys(name for name in names if is_link(name)))
    sources: list[Source] = list(find_videos(Path(name) for name in names if not is_link(name)))
    for url in links:
        from stepline.media.links import find_links

        sources += find_links(url, out / DOWNLOADS, settings.links)
    return sources


def name_sources(sources: Iterable[Source], out: Path) -> "list[tuple[Source, str | None]]":
    """Return each source with the id of a file, as `name_videos` gives it; a link has none before
    it is fetched."""
    listed = list(sources)
    named = name_videos([source for source in listed if isinstance(source, Path)], out)
    links: list[tuple[Source, str | None]] = [
        (source, None) for source in listed if not isinstance(source, Path)
    ]
    return [*((path, identity) for identity, path in named.items()), *links]


def is_site(path: Path | None) -> bool:
    """Tell whether an option names what the page of a link has."""
    return path == SITE and not SITE.exists()


def source_label(source: Source) -> str:
    """Return what messages call a source: its path, or its address without password and query."""
    if isinstance(source, Path):
        return str(source)
    from stepline.media.http import display_url

    return display_url(source.url)


@contextmanager
def open_source(
    source: Source,
    out: Path,
    settings: StepsSettings,
    *,
    id: str | None = None,
    captions: Path | None = None,
    texts: tuple[str, ...] | None = (),
    part: Span | None = None,
    keep: bool = True,
    report: "Report | None" = None,
) -> Iterator[Request]:
    """Yield what the main job is asked of a source; what a link brings lies in OUT, until the end
    unless `keep`.

    id: of a file, where several have one name. captions: SITE: those of the link's page. texts:
    None: the titles of the page's chapters. Raises MediaError where a link brings no video, or its
    page not what is asked of it.
    """
    if isinstance(source, Path):
        if is_site(captions) or texts is None:
            raise MediaError(
                f"{source}: a file, which has no page; give captions and texts as files"
            )
        yield Request(
            source, id or next(iter(name_videos([source], out))), captions, texts, part=part
        )
        return
    from stepline.media.links import fetch_link, forget_link

    folder, language = out / DOWNLOADS, (settings.asr.language or "en").partition("-")[0]
    video = fetch_link(source, folder, captions=is_site(captions), language=language, report=report)
    try:
        if texts is None:
            texts = tuple(chapter.title for chapter in video.origin.chapters)
            if not texts:
                raise MediaError(
                    f"{source_label(source)}: its page names no chapters; give --texts a file"
                )
        said = video.captions if is_site(captions) else captions
        (name,) = name_videos([video.path], out)
        yield Request(video.path, name, said, texts, video.origin, kept=keep, part=part)
    finally:
        if not keep:
            forget_link(source.url, folder)


@contextmanager
def open_only_source(
    given: Given,
    settings: StepsSettings,
    out: Path | None,
    captions: Path | None,
    texts: tuple[str, ...] = (),
    *,
    part: Span | None = None,
    report: "Report | None" = None,
) -> Iterator[Request]:
    """Yield the one video that a command takes; of a link, fetched into `out`, or for as long as it
    is worked on.

    A file without `out` is named by its stem alone.
    """
    if not is_link(str(given)):  # whatever it is, whoever reads it tells
        path, identity = Path(given), Path(given).stem
        with open_source(
            path, Path(), settings, id=identity, captions=captions, texts=texts, part=part
        ) as request:
            yield request
        return
    with tempfile.TemporaryDirectory(prefix="stepline-") as folder:
        place = out or Path(folder)
        sources = find_sources([given], place, settings)
        if len(sources) > 1:
            raise MediaError(
                f"{given}: a playlist of {len(sources)} videos; give the address of one of them"
            )
        with open_source(
            sources[0], place, settings, captions=captions, texts=texts, part=part, report=report
        ) as request:
            yield request


def fetch_sources(
    given: Iterable[Given], out: Path, settings: StepsSettings, report: "Report | None"
) -> list[Path]:
    """Return paths as they are and, behind them, the files of links, fetched into OUT."""
    from stepline.media.links import fetch_link, find_links

    names = [str(name) for name in given]
    found = [
        link
        for name in names
        if is_link(name)
        for link in find_links(name, out / DOWNLOADS, settings.links)
    ]
    files = [fetch_link(link, out / DOWNLOADS, report=report).path for link in found]
    return [*(Path(name) for name in names if not is_link(name)), *files]


def find_videos(paths: Iterable[Path], *, needed: bool = True) -> list[Path]:
    """Return the named files and the videos inside named folders, in the order named, each once.

    A folder's videos come sorted; hidden files and the clips and summaries that Stepline cut are
    none of them.
    Raises MediaError where a folder holds none and one is needed.
    """
    videos: dict[Path, Path] = {}
    for path in paths:
        inside = (
            [file for file in files_below(path) if _is_video(file)] if path.is_dir() else [path]
        )
        if not inside and needed:
            raise MediaError(
                f"{path}: no video in this folder ({', '.join(sorted(SUFFIXES))}); name the files instead"
            )
        for file in inside:
            videos.setdefault(Path(os.path.realpath(file)), file)
    return list(videos.values())


def _is_video(file: Path) -> bool:
    """Tell whether a file is a video, and none of the clips, summaries and copies that Stepline
    made."""
    from stepline.outputs import CLIPS_SUFFIX, OUTPUTS, SUMMARY_SUFFIX

    if file.suffix.lower() not in SUFFIXES or file.name.startswith("."):
        return False
    beside = (SUMMARY_SUFFIX, OUTPUTS["mp4"].suffix, OUTPUTS["mkv"].suffix)
    suffix = next((suffix for suffix in beside if file.name.endswith(suffix)), None)
    made, suffix = (file, suffix) if suffix is not None else (file.parent, CLIPS_SUFFIX)
    ours = (
        made.name.endswith(suffix)
        and made.with_name(made.name.removesuffix(suffix) + ".json").is_file()
    )
    return not ours


def name_videos(paths: Sequence[Path], out: Path) -> dict[str, Path]:
    """Return id -> path: the file's stem, made longer where another video of the run or in `out`
    has that stem."""
    stems = [path.stem for path in paths]
    named = {}
    for path in paths:
        unique = stems.count(path.stem) == 1 and not is_taken(path, out)
        digest = hashlib.sha256(os.fsencode(os.path.realpath(path))).hexdigest()[:6]
        named[path.stem if unique else f"{path.stem}-{digest}"] = path
    return named


def is_taken(path: Path, out: Path) -> bool:
    """Tell whether `out` holds this stem's record for a video at another path, which must not be
    overwritten."""
    from stepline.outputs import safe_stem

    try:
        owner = read_record(out / f"{safe_stem(path.stem)}.json").video.path
    except StoreError:
        return False
    return owner is not None and os.path.realpath(owner) != os.path.realpath(path)
