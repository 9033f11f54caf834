"""The videos that a command is given: files, folders of them, captions without a video, and links.

    for source in find_sources(["films", "https://example.org/whisk.mp4"], out, settings):
        with source.open(out, settings) as request:
            run_video(request, settings, options)

Only `detect_input_kind` decides what an argument is. A link is downloaded to OUT/downloads when it is opened.
"""

import contextlib
import hashlib
import logging
import os
import re
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Unpack

from stepline.errors import CaptionError, MediaError, StoreError
from stepline.language_tags import split_language
from stepline.media import MediaInfo, probe
from stepline.media.container import check_duration
from stepline.outputs import CLIPS_SUFFIX, OUTPUTS, safe_stem
from stepline.outputs.shared_folder import unshared_files_below
from stepline.pipeline.request import Request, RequestOptions, SourceOptions, StepsSettings
from stepline.speech.captions import no_sentence_error, read_captions
from stepline.storage import read_record

if TYPE_CHECKING:
    from stepline.media.links import Link
    from stepline.media.page_videos import Report


VideoArgument = Path | str  # a path, or an address of http(s)

# What a folder is searched for. A file that is named is tried whatever it is called.
VIDEO_ENDINGS = (
    ".mp4 .m4v .mov .qt .f4v .3gp .3g2 .mkv .mk3d .webm .ogv .ogm .avi .divx .flv .wmv .asf "
    ".mpg .mpeg .mpe .m2v .vob .vro .ts .mts .m2t .m2ts .mxf .wtv .rm .rmvb .nut"
)
VIDEO_SUFFIXES = frozenset(VIDEO_ENDINGS.split())
# The captions that a folder is searched for. JSON and csv hold other things too, so they must be
# named.
FOLDER_SUFFIXES = frozenset((".srt", ".vtt", ".sbv"))
CAPTION_SUFFIXES = FOLDER_SUFFIXES | {".csv", ".json"}
log = logging.getLogger(__name__)
CAPTIONS_ALONE = "captions alone, no picture: every step is said only"

LINK_PATTERN = re.compile(r"https?://\S+", re.IGNORECASE)
DOWNLOADS_FOLDER = "downloads"  # folder in an OUT for what links brought
# in place of a file, where none has that name: what the page of a link has
LINK_PAGE_PATH = Path("site")


def is_link(name: str) -> bool:
    """Return whether an argument is an http(s) address, not a path."""
    return LINK_PATTERN.fullmatch(name) is not None


def is_link_page_option(option_path: Path | None) -> bool:
    """Return whether an option's value is "site", which selects a link's page.

    The captions or chapters on that web page are then used.
    """
    return option_path == LINK_PAGE_PATH and not LINK_PAGE_PATH.exists()


InputKind = Literal["link", "folder", "captions", "video"]


def detect_input_kind(argument: VideoArgument, *, in_folder: bool = False) -> InputKind | None:
    """Return whether an argument is a video, captions or a link. None: a file that is not read.

    Args:
        argument: a path, or an http(s) address.
        in_folder: whether the file was found in a folder. Then its suffix decides, and hidden files
            and files that Stepline wrote are not read. Otherwise a file that is not captions counts
            as a video.
    """
    if is_link(str(argument)):
        return "link"
    path = Path(argument)
    suffix = path.suffix.lower()
    if path.is_dir():
        return "folder"
    if not in_folder:
        return "captions" if suffix in CAPTION_SUFFIXES else "video"
    if path.name.startswith("."):
        return None
    if suffix in FOLDER_SUFFIXES:
        return None if _is_record(path.with_suffix(".json")) else "captions"
    return "video" if suffix in VIDEO_SUFFIXES and not _is_stepline_output(path) else None


def _is_record(path: Path) -> bool:
    try:
        read_record(path)
    except StoreError:
        return False
    return True


def _is_stepline_output(file: Path) -> bool:
    """Return whether Stepline cut or copied a video.

    The record of the video or of its folder is then in the same folder.
    """
    from stepline.pipeline.output_files import SUMMARY_SUFFIX

    for suffix in (SUMMARY_SUFFIX, OUTPUTS["mp4"].suffix, OUTPUTS["mkv"].suffix):
        if file.name.endswith(suffix):
            return file.with_name(file.name.removesuffix(suffix) + ".json").is_file()
    folder = file.parent
    stem = folder.name.removesuffix(CLIPS_SUFFIX)
    return stem != folder.name and folder.with_name(f"{stem}.json").is_file()


@dataclass(frozen=True)
class VideoSource:
    """A video that the user gave: a file, or a link that is downloaded when it is opened.

    Attributes:
        location: the file or the link.
        kind: whether a file is a "video" or "captions".
        id: the id of the record of a file, as `name_videos` makes it. None for a link that is not
            downloaded yet.
    """

    location: "Path | Link"
    kind: InputKind
    id: str | None = None

    @property
    def label(self) -> str:
        """The name in messages: its path, or its address without password and query."""
        if isinstance(self.location, Path):
            return str(self.location)
        from stepline.files.remote.addresses import display_url

        return display_url(self.location.url)

    @contextmanager
    def open(
        self,
        out: Path,
        settings: StepsSettings,
        *,
        captions: Path | None = None,
        texts: tuple[str, ...] | None = (),
        keep: bool = True,
        report: "Report | None" = None,
        force: bool = False,
        **options: Unpack[RequestOptions],
    ) -> Iterator[Request]:
        """Yield the request for this video. A link is downloaded first.

        Args:
            out: the folder of the results. Downloads go to a folder in it.
            settings: settings of all stages of finding steps.
            captions: a caption file. LINK_PAGE_PATH: the captions on the link's page. None: speech
                is recognised.
            texts: lines to find. None: the titles of the chapters on the link's page.
            keep: whether a download is kept in `out` after the context ends.
            report: callback for the progress of the download. None: not reported.
            force: whether a link is downloaded again.
            options: part, title and graph of the request.

        Raises MediaError if a link has no video, or if its page lacks the captions or chapters.
        """
        # Checked here, since a result of an earlier run would hide that the file is missing.
        if captions is not None and not is_link_page_option(captions) and not captions.exists():
            raise CaptionError(f"{captions}: no such captions file; correct its path")
        if isinstance(self.location, Path):
            require_utf8_name(self.location)
            if is_link_page_option(captions) or texts is None:
                cure = "give captions and texts as files"
                raise MediaError(f"{self.location}: a file, which has no page; {cure}")
            if self.kind == "captions":
                if captions not in (None, self.location):
                    cure = "give the video, or leave --captions out"
                    raise CaptionError(f"{self.location}: captions already; {cure}")
                captions = self.location
            id = self.id or self.location.stem
            yield Request(self.location, id, captions, texts, **options)
            return
        from stepline.media.links import delete_downloads, fetch_link

        folder = out / DOWNLOADS_FOLDER
        with_captions = is_link_page_option(captions)
        video = fetch_link(
            self.location,
            folder,
            captions=with_captions,
            language=(settings.asr.language or "en").partition("-")[0],
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
            yield Request(video.path, id, captions, texts, video.origin, kept=keep, **options)
        finally:
            if not keep:
                delete_downloads(self.location.url, folder)


def find_sources(
    arguments: Iterable[VideoArgument],
    out: Path,
    settings: StepsSettings,
    *,
    captions: bool = False,
    force: bool = False,
) -> list[VideoSource]:
    """Return the videos of files and folders, and after them the videos of links and playlists.

    Args:
        arguments: paths and http(s) addresses.
        out: the folder of the results.
        settings: settings of all stages. Only those of links are used.
        captions: whether caption files without a video in a folder are included.
        force: whether links that were looked up before are looked up again.

    Raises MediaError if a folder has no video, or if the only argument is a link without a video.
    With several arguments, the error of a link is raised when the link is opened.
    """
    # Files come first. A fault of a link is raised only where nothing else could be done.
    paths, urls = _paths_and_links(arguments)
    kinds = find_inputs(paths, captions=captions)
    files = [VideoSource(path, kinds[path], id) for id, path in name_videos(kinds, out).items()]
    is_only = len(files) + len(urls) == 1
    links = _find_links(urls, out, settings, is_only=is_only, force=force)
    return [*files, *(VideoSource(link, "link") for link in links)]


@contextmanager
def open_single_source(
    argument: VideoArgument,
    settings: StepsSettings,
    out: Path | None,
    *,
    report: "Report | None" = None,
    **options: Unpack[SourceOptions],
) -> Iterator[Request]:
    """Yield the request for the only video of a command. A link is downloaded.

    Args:
        argument: a path or an address.
        settings: settings of all stages of finding steps.
        out: the folder for a download. None: a temporary folder.
        report: callback for the progress of the download. None: not reported.
        options: as of `VideoSource.open`.
    """
    with contextlib.ExitStack() as stack:
        kind = detect_input_kind(argument)
        if kind == "link":
            if out is None:
                out = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="stepline-")))
            sources = find_sources([argument], out, settings)
            if len(sources) > 1:
                from stepline.files.remote.addresses import display_url

                cure = "give the address of one of them"
                name = display_url(str(argument))
                raise MediaError(f"{name}: a playlist of {len(sources)} videos; {cure}")
        else:
            # A folder is no video, which `media.probe` reports.
            path = Path(argument)
            sources = [VideoSource(path, kind or "video", path.stem)]
        opened = sources[0].open(out or Path(), settings, report=report, **options)
        yield stack.enter_context(opened)


def fetch_sources(
    arguments: Iterable[VideoArgument], out: Path, settings: StepsSettings, report: "Report | None"
) -> list[Path]:
    """Return the paths among the arguments and, after them, the downloaded files of links."""
    from stepline.media.links import fetch_link

    paths, urls = _paths_and_links(arguments)
    files = list(paths)
    for link in _find_links(urls, out, settings, is_only=True):
        files.append(fetch_link(link, out / DOWNLOADS_FOLDER, report=report).path)
    return files


def _paths_and_links(arguments: Iterable[VideoArgument]) -> tuple[list[Path], list[str]]:
    """Return the paths among arguments, and the addresses without duplicates."""
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
    urls: list[str], out: Path, settings: StepsSettings, *, is_only: bool, force: bool = False
) -> "list[Link]":
    """Return the videos of web addresses.

    Args:
        urls: http(s) addresses of videos, pages and playlists.
        out: the folder of the results. What is known of a link is stored in a folder in it.
        settings: settings of all stages. Only those of links are used.
        is_only: whether the address is the only video of the command. Then its error is raised.
            Otherwise the error is stored in the link.
        force: whether links that were looked up before are looked up again.
    """
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
            links.append(Link(url, settings.links, failure_reason=str(error)))
    return links


def find_videos(paths: Iterable[Path]) -> list[Path]:
    """Return the named files and the videos inside named folders."""
    return list(find_inputs(paths))


def find_inputs(paths: Iterable[Path], *, captions: bool = False) -> dict[Path, InputKind]:
    """Return the named files and the videos inside named folders, each with its kind.

    Args:
        paths: files and folders. The result has their order, without duplicates.
        captions: whether captions without a video in a folder count too.

    The videos of a folder are sorted. Hidden files, shared copies, and clips and summaries that
    Stepline cut are left out. Raises MediaError if a folder has none.
    """
    # each file once, also where two names lead to it
    found: dict[str, tuple[Path, InputKind]] = {}
    for path in paths:
        kind = detect_input_kind(path)
        files: dict[Path, InputKind | None] = {path: kind}
        if kind == "folder":
            wanted_kinds = ("video", "captions") if captions else ("video",)
            nested_files = unshared_files_below(path)
            kinds = {file: detect_input_kind(file, in_folder=True) for file in nested_files}
            files = {file: kind for file, kind in kinds.items() if kind in wanted_kinds}
        if not files:
            suffixes = ", ".join(sorted(VIDEO_SUFFIXES))
            if captions:
                suffixes += f"; captions: {', '.join(sorted(FOLDER_SUFFIXES))}"
            raise MediaError(
                f"{path}: no video in this folder ({suffixes}); name the files instead"
            )
        for file, kind in files.items():
            if kind is not None:
                found.setdefault(os.path.realpath(file), (file, kind))
    inputs = dict(found.values())
    return _drop_sidecar_captions(inputs) if captions else inputs


def _drop_sidecar_captions(files: Mapping[Path, InputKind]) -> dict[Path, InputKind]:
    """Return the files without those that are captions of another file.

    talk.vtt and talk.en.vtt belong to talk.mp4, and talk.vtt to talk.srt.
    """
    # A sidecar is known by the name of its video, with or without a language tag.
    names = {file: file.absolute().with_suffix("") for file in files}
    owners = {names[file] for file, kind in files.items() if kind != "captions"}
    remaining = {}
    left_out = []
    for file, kind in files.items():
        if kind == "captions":
            name = names[file]
            if name in owners or name.with_name(split_language(name.name)[0]) in owners:
                left_out.append(file.name)
                continue
            owners.add(name)
        remaining[file] = kind
    if left_out:
        log.warning(
            "captions beside their video are not used (%s, %d in all); --captions uses one",
            left_out[0],
            len(left_out),
        )
    return remaining


def require_utf8_name(path: Path) -> None:
    """Raise MediaError if the name of a file is not UTF-8."""
    try:
        str(path).encode()
    except UnicodeEncodeError as error:
        raise MediaError(
            f"{str(path)!a}: its name is not UTF-8, which no JSON can hold; rename the file"
        ) from error


def name_videos(paths: Iterable[Path], out: Path) -> dict[str, Path]:
    """Return a mapping from record ids to video files. The id is the file name without its suffix.

    A hash is added if another video of the run has the same name, or a video with a record in
    `out`. A video with a record in `out` keeps its id.
    """
    paths = list(paths)
    stems = Counter(path.stem for path in paths)
    # a stem that is not unique gets a digest of the path
    named = {}
    for path in paths:
        real_path = os.path.realpath(path)
        # A digest of the path, not of the content: the same run gives the same name again.
        digest = hashlib.sha256(os.fsencode(real_path)).hexdigest()
        hashed = f"{path.stem}-{digest[:6]}"
        owner = _recorded_path(path.stem, out)
        is_shared = stems[path.stem] > 1 or owner or _recorded_path(hashed, out) == real_path
        named[hashed if is_shared and owner != real_path else path.stem] = path
    return named


def is_name_taken(path: Path, out: Path) -> bool:
    """Return whether `out` has a record of this stem for a video at another path."""
    return _recorded_path(path.stem, out) not in (None, os.path.realpath(path))


def _recorded_path(id: str, out: Path) -> str | None:
    """Return the path of the video of a record in `out`, without links. None if there is none."""
    try:
        path = read_record(out / f"{safe_stem(id)}.json").video.path
    except StoreError:
        return None
    return path and os.path.realpath(path)


def read_media_info(request: Request, settings: StepsSettings) -> MediaInfo:
    """Return the streams and the duration of the file. Captions have a duration and no stream.

    Raises MediaError if a video cannot be read, CaptionError if captions hold no sentence.
    """
    if not request.is_captions_only:
        return probe(request.path, settings.media)

    captions = read_captions(request.path, video_id=request.id, settings=settings.asr)
    sentences = captions.transcript.sentences
    if not sentences:
        raise no_sentence_error(request.path, captions.dropped)
    # How long the video is remains unknown. The last word ends it.
    duration = max(sentence.span.end for sentence in sentences)
    check_duration(request.path, duration, settings.media)
    return MediaInfo(
        path=request.path,
        duration=duration,
        width=0,
        height=0,
        rotation=0,
        frame_rate=0.0,
        has_picture=False,
        has_sound=False,
        warnings=(CAPTIONS_ALONE,),
    )
