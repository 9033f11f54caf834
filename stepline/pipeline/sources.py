"""The videos that a command is given: files, folders of them, and links, each fetched when its turn
comes.

    for source in find_sources(["films", "https://example.org/whisk.mp4"], out, settings):
        with source.open(out, settings) as request:
            run_video(request, settings, options)

What links bring goes to OUT/downloads.
"""

import contextlib
import hashlib
import logging
import os
import re
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from stepline.errors import CaptionError, MediaError, StoreError
from stepline.outputs.shared_folder import unshared_files_below
from stepline.pipeline.captions_alone import (
    FOLDER_SUFFIXES,
    is_captions,
    is_folder_captions,
    without_sidecars,
)
from stepline.pipeline.request import Request, StepsSettings
from stepline.records import Span
from stepline.storage import read_record

if TYPE_CHECKING:
    from stepline.grounding.task_graph import TaskGraph
    from stepline.media.links import Link
    from stepline.media.page_videos import Report

log = logging.getLogger(__name__)

VideoArgument: TypeAlias = Path | str  # a path, or an address of http(s)

# What a folder is searched for. A file that is named is tried whatever it is called.
VIDEO_ENDINGS = (
    ".mp4 .m4v .mov .qt .f4v .3gp .3g2 .mkv .mk3d .webm .ogv .ogm .avi .divx .flv .wmv .asf "
    ".mpg .mpeg .mpe .m2v .vob .vro .ts .mts .m2t .m2ts .mxf .wtv .rm .rmvb .nut"
)
VIDEO_SUFFIXES = frozenset(VIDEO_ENDINGS.split())

LINK_PATTERN = re.compile(r"https?://\S+", re.IGNORECASE)
DOWNLOADS_FOLDER = "downloads"  # folder in an OUT for what links brought
# in place of a file, where none has that name: what the page of a link has
SITE_PATH = Path("site")


def is_link(name: str) -> bool:
    """Tell whether an argument is an address, not a path."""
    return LINK_PATTERN.fullmatch(name) is not None


def is_site(path: Path | None) -> bool:
    """Tell whether an option names what the page of a link has."""
    return path == SITE_PATH and not SITE_PATH.exists()


@dataclass(frozen=True)
class VideoSource:
    """One video that a command is given: a file, or a link that is fetched when it is opened.

    id: of a file, as `name_videos` gives it. A link has none before it is fetched.
    """

    place: "Path | Link"
    id: str | None = None

    @property
    def label(self) -> str:
        """What messages call it: its path, or its address without password and query."""
        if isinstance(self.place, Path):
            return str(self.place)
        from stepline.files.remote.addresses import display_url

        return display_url(self.place.url)

    @property
    def is_link(self) -> bool:
        """Whether it is fetched first."""
        return not isinstance(self.place, Path)

    @contextmanager
    def open(
        self,
        out: Path,
        settings: StepsSettings,
        *,
        captions: Path | None = None,
        texts: tuple[str, ...] | None = (),
        part: Span | None = None,
        title: str | None = None,
        graph: "TaskGraph | None" = None,
        keep: bool = True,
        report: "Report | None" = None,
        force: bool = False,
    ) -> Iterator[Request]:
        """Yield what the main job is asked of it. What a link brings stays in OUT with `keep`.

        title: what the user calls it. force: fetch a link again.
        captions: SITE_PATH is those of the link's page. graph: whose lines the texts are.
        texts: None is the titles of the page's chapters.
        Raises MediaError where a link brings no video, or its page lacks what is asked of it.
        """
        if isinstance(self.place, Path):
            if is_site(captions) or texts is None:
                cure = "give captions and texts as files"
                raise MediaError(f"{self.place}: a file, which has no page; {cure}")
            id = self.id or next(iter(name_videos([self.place], out)))
            if is_captions(self.place):
                if captions not in (None, self.place):
                    cure = "give the video, or leave --captions out"
                    raise CaptionError(f"{self.place}: captions already; {cure}")
                captions = self.place
            yield Request(self.place, id, captions, texts, part=part, title=title, graph=graph)
            return
        from stepline.media.links import fetch_link, forget_link

        folder = out / DOWNLOADS_FOLDER
        language = (settings.asr.language or "en").partition("-")[0]
        with_captions = is_site(captions)
        video = fetch_link(
            self.place,
            folder,
            captions=with_captions,
            language=language,
            report=report,
            force=force,
        )
        try:
            if texts is None:
                texts = tuple(chapter.title for chapter in video.origin.chapters)
                if not texts:
                    cure = "its page names no chapters; give --texts a file"
                    raise MediaError(f"{self.label}: {cure}")
            if with_captions:
                captions = video.captions
            (id,) = name_videos([video.path], out)
            request = Request(video.path, id, captions, texts, video.origin, kept=keep, part=part)
            yield replace(request, title=title, graph=graph)
        finally:
            if not keep:
                forget_link(self.place.url, folder)


def find_sources(
    arguments: Iterable[VideoArgument],
    out: Path,
    settings: StepsSettings,
    *,
    captions: bool = False,
    force: bool = False,
) -> list[VideoSource]:
    """Return the videos of paths, as `find_videos` does, and after them those of links, playlists
    as many.

    captions: whether folders are searched for captions without a video too. force: ask for links
    that were fetched before, too.
    Raises MediaError where a folder holds no video, or the only link cannot be reached or leads to
    none. One of several ends itself alone, when it is opened.
    """
    # Files come first. A fault of a link is raised only where nothing else could be done.
    paths, urls = _paths_and_links(arguments)
    files = name_sources(find_videos(paths, captions=captions), out)
    is_only = len(files) + len(urls) == 1
    links = _find_links(urls, out, settings, is_only=is_only, force=force)
    return [*files, *(VideoSource(link) for link in links)]


def name_sources(files: Sequence[Path], out: Path) -> list[VideoSource]:
    """Return files as sources, each with its id."""
    return [VideoSource(path, id) for id, path in name_videos(files, out).items()]


@contextmanager
def open_only_source(
    argument: VideoArgument,
    settings: StepsSettings,
    out: Path | None,
    *,
    captions: Path | None = None,
    texts: tuple[str, ...] = (),
    part: Span | None = None,
    title: str | None = None,
    graph: "TaskGraph | None" = None,
    report: "Report | None" = None,
) -> Iterator[Request]:
    """Yield the one video that a command takes. Of a link, it is fetched into `out`, or for as long
    as it is worked on.

    A file is named by its stem alone.
    """
    with contextlib.ExitStack() as stack:
        if is_link(str(argument)):
            from stepline.files.remote.addresses import display_url

            if out is None:
                out = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="stepline-")))
            sources = find_sources([argument], out, settings)
            if len(sources) > 1:
                cure = "give the address of one of them"
                name = display_url(str(argument))
                raise MediaError(f"{name}: a playlist of {len(sources)} videos; {cure}")
        else:  # whatever it is, whoever reads it reports
            out = Path()
            path = Path(argument)
            sources = [VideoSource(path, path.stem)]

        # the one video
        opened = sources[0].open(
            out,
            settings,
            captions=captions,
            texts=texts,
            part=part,
            title=title,
            graph=graph,
            report=report,
        )
        yield stack.enter_context(opened)


def fetch_sources(
    arguments: Iterable[VideoArgument], out: Path, settings: StepsSettings, report: "Report | None"
) -> list[Path]:
    """Return paths as they are and, after them, the files of links, fetched into OUT."""
    from stepline.media.links import fetch_link

    paths, urls = _paths_and_links(arguments)
    files = list(paths)
    for link in _find_links(urls, out, settings, is_only=True):
        files.append(fetch_link(link, out / DOWNLOADS_FOLDER, report=report).path)
    return files


def _paths_and_links(arguments: Iterable[VideoArgument]) -> tuple[list[Path], list[str]]:
    """Return the paths and the addresses among arguments, an address once."""
    paths = []
    addresses = []
    for argument in arguments:
        name = str(argument)
        if is_link(name):
            addresses.append(name)
        else:
            paths.append(Path(name))
    return paths, list(dict.fromkeys(addresses))


def _find_links(
    urls: Sequence[str], out: Path, settings: StepsSettings, *, is_only: bool, force: bool = False
) -> "list[Link]":
    """Return the videos of addresses. Where several are given, a fault is kept for its turn."""
    if not urls:
        return []
    from stepline.media.links import Link, find_links

    links: list[Link] = []
    for url in urls:
        try:
            links += find_links(url, out / DOWNLOADS_FOLDER, settings.links, force=force)
        except MediaError as error:
            if is_only:
                raise
            links.append(Link(url, settings.links, fault=str(error)))
    return links


def find_videos(
    paths: Iterable[Path], *, needed: bool = True, captions: bool = False
) -> list[Path]:
    """Return the named files and the videos inside named folders, in the order named, each once.

    A folder's videos come sorted. Hidden files, copies in shared folders, and the clips and
    summaries that Stepline cut are left out. captions: as of `find_sources`. Those of a video that
    is taken are left out.
    Raises MediaError where a folder holds none and one is needed.
    """
    # each file once, also where two names lead to it
    videos: dict[Path, Path] = {}
    for path in paths:
        files = [path]
        if path.is_dir():
            below = unshared_files_below(path)
            files = [file for file in below if _is_input(file, captions=captions)]
            if needed:
                _report_left_out(path, below)
        if not files and needed:
            kinds = ", ".join(sorted(VIDEO_SUFFIXES))
            if captions:
                kinds += f"; captions: {', '.join(sorted(FOLDER_SUFFIXES))}"
            raise MediaError(f"{path}: no video in this folder ({kinds}); name the files instead")
        for file in files:
            videos.setdefault(Path(os.path.realpath(file)), file)
    files = list(videos.values())
    return without_sidecars(files) if captions else files


# What someone may take for a video of a folder: sound alone, playlists, animated pictures.
KIN_ENDINGS = (
    ".m4a .m4b .mka .mp3 .wav .flac .aac .oga .ogg .opus .wma .amr .aiff .aif .caf .ac3 "
    ".m3u8 .mpd .gif .apng .swf .braw .r3d .dav"
)
KIN_SUFFIXES = frozenset(KIN_ENDINGS.split())


def _report_left_out(folder: Path, files: Sequence[Path]) -> None:
    """Say which files of a folder are left out though someone may take them for videos."""
    suffixes = [file.suffix.lower() for file in files if not file.name.startswith(".")]
    counts = Counter(suffix for suffix in suffixes if suffix in KIN_SUFFIXES)
    if counts:
        kinds = ", ".join(f"{count} {suffix}" for suffix, count in sorted(counts.items()))
        log.warning("%s: left out: %s; name the files to read them", folder, kinds)


def _is_input(file: Path, *, captions: bool) -> bool:
    return _is_video(file) or (captions and is_folder_captions(file))


def _is_video(file: Path) -> bool:
    """Tell whether a file is a video, and none of the clips, summaries and copies that Stepline
    made."""
    from stepline.outputs import CLIPS_SUFFIX, OUTPUTS
    from stepline.pipeline.summary import SUMMARY_SUFFIX

    if file.suffix.lower() not in VIDEO_SUFFIXES or file.name.startswith("."):
        return False
    # A summary or a copy has its record next to it. A clip is in a folder that has.
    output = file.parent
    suffix = CLIPS_SUFFIX
    for whole_suffix in (SUMMARY_SUFFIX, OUTPUTS["mp4"].suffix, OUTPUTS["mkv"].suffix):
        if file.name.endswith(whole_suffix):
            output = file
            suffix = whole_suffix
            break
    if not output.name.endswith(suffix):
        return True
    return not output.with_name(output.name.removesuffix(suffix) + ".json").is_file()


def name_videos(paths: Sequence[Path], out: Path) -> dict[str, Path]:
    """Return id -> path: the file's stem, made longer where another video of the run or in `out`
    has that stem."""
    stems = [path.stem for path in paths]

    # a stem that is not unique gets a digest of the path
    named = {}
    for path in paths:
        id = path.stem
        if stems.count(path.stem) > 1 or is_taken(path, out):
            # A digest of the path, not of the content: the same run gives the same name again.
            real_path = os.path.realpath(path)
            digest = hashlib.sha256(os.fsencode(real_path)).hexdigest()
            id = f"{path.stem}-{digest[:6]}"
        named[id] = path
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
