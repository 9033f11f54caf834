"""Videos by their address: a file over http(s), or what yt-dlp finds on a page. Fetched once,
resumed, under limits.

    for link in find_links("https://example.org/whisk.mp4", LinkSettings()):
        video = fetch_link(link, Path("downloads"))       # video.path, video.captions, video.origin

Each address has a folder of its own below the one named. `link.json`, written last, says what is in
it, so that a second run asks no one. In this process yt-dlp (extra `links`) runs with connections
of media/http.py. It has no plugins, cookies, passwords, proxies, cache or other programs.
"""

import contextlib
import hashlib
import http.client
import json
import logging
import mimetypes
import re
import shutil
import urllib.error
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Literal, TypeAlias
from urllib.parse import unquote, urlsplit

from stepline.errors import MediaError
from stepline.files.atomic_files import check_own_folder, write_atomic
from stepline.files.remote.addresses import check_url, display_url
from stepline.files.remote.retry import TRANSIENT_STATUSES, doubled_pause, retry
from stepline.limits import parse_json
from stepline.media.clips import join_tracks
from stepline.media.dates import read_day
from stepline.media.downloaded_file import remove_other_files, text_kind
from stepline.media.http import CHUNK_BYTES, LinkLimits, TransferLimits, open_url
from stepline.media.limited_yt_dlp import Info, limited_youtube_dl
from stepline.media.link_errors import as_link_error
from stepline.media.settings import LinkSettings
from stepline.records import FrozenModel, LinkChapter, LinkOrigin

log = logging.getLogger(__name__)

Report: TypeAlias = Callable[[str, int], None]  # the file's name, bytes that are there

MARK_NAME = "link.json"
# What a page, or a list of the pieces of a video, says it is. Everything else is taken for the
# video itself.
PAGE_TYPES = ("text/html", "application/xhtml+xml", "application/dash+xml", "mpegurl")
# 416: what is there already is not the server's file any more, which is then fetched from its begin
RETRIED_STATUSES = TRANSIENT_STATUSES | {416}
MAX_NAME_CHARS = 60  # of a file's name
CAPTION_FORMS = ("vtt", "srt", "json3")  # forms that are read, best first
MAX_CAPTION_BYTES = 64 * 2**20  # bytes


@dataclass(frozen=True)
class Link:
    """A video by its address. kind: the media type of the answer.

    page: to be found by yt-dlp. info: what it said, None where it was not asked yet. fault: why
    nothing is found there.
    """

    url: str
    settings: LinkSettings
    kind: str = ""
    page: bool = False
    info: Info | None = field(default=None, repr=False, compare=False)
    fault: str | None = None


class LinkedVideo(FrozenModel):
    """A video that was fetched. page: by yt-dlp. captions: of its page, None where they were not
    asked for."""

    path: Path
    origin: LinkOrigin
    page: bool = False
    captions: Path | None = None


def find_links(
    url: str, folder: Path, settings: LinkSettings, *, force: bool = False
) -> list[Link]:
    """Return the videos of an address: itself, or those of a playlist. What `folder` holds is not
    asked for again, unless force.

    Raises MediaError, in one line, where it cannot be reached or holds no video.
    """
    check_url(url)
    earlier = None if force else _fetched(url, folder)
    if earlier is not None:
        return [Link(url, settings, page=earlier.page)]

    # what answers: a file, or a page that yt-dlp reads
    limits = LinkLimits(settings)
    with as_link_error(url):
        with _retried(lambda: open_url(url, limits), settings) as answer:
            kind = answer.headers.get_content_type()
        if not kind.endswith(PAGE_TYPES):
            return [Link(url, settings, kind)]
        info = _extract(url, limits)
    if info.get("_type") not in ("playlist", "multi_video"):
        return [Link(url, settings, page=True, info=info)]

    # the videos of a playlist
    addresses = []
    for entry in info.get("entries") or ():
        if entry and entry.get("url"):
            addresses.append(entry["url"])
    if not addresses:
        raise MediaError(
            f"{display_url(url)}: a playlist without videos; give a page that shows one"
        )
    return [Link(address, settings, page=True) for address in addresses[: settings.most]]


def fetch_link(
    link: Link,
    folder: Path,
    *,
    captions: bool = False,
    language: str = "en",
    report: Report | None = None,
    force: bool = False,
) -> LinkedVideo:
    """Return the video of a link, as a file below `folder`, fetched now or by an earlier run.

    What a run that broke off has left is gone on with.
    captions: fetch those of its page too, best in `language`.
    force: fetch it again, also where it is there. What is there stays where that fails.
    Raises MediaError, in one line, for a server that fails or is too slow, and for a file too
    large. Raises it too for a page without a video, and for an answer that is not a medium.
    """
    if link.fault is not None:
        raise MediaError(link.fault)
    own = link_folder(link.url, folder)
    check_own_folder(own)
    earlier = _fetched(link.url, folder)
    if not force and earlier is not None and (earlier.captions is not None or not captions):
        return earlier
    limits = LinkLimits(link.settings)
    aside: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
    if force and earlier is not None:
        aside = _set_aside(own)
    with as_link_error(link.url), _removed_if_empty(own), aside:
        own.mkdir(parents=True, exist_ok=True)
        if link.page:
            caption_language = language if captions else None
            video = _fetch_page(link, own, limits, caption_language, report)
        elif captions:
            raise MediaError("a file, with which no captions come; leave --captions out")
        else:
            path = _fetch_file(link, own, limits, report)
            video = LinkedVideo(path=path, origin=LinkOrigin(url=link.url))
        remove_other_files(video.path)

    # written last: what it names is whole
    mark = video.model_dump(mode="json")
    mark["path"] = video.path.name
    mark["size"] = video.path.stat().st_size
    if video.captions is not None:
        mark["captions"] = video.captions.name
    text = json.dumps(mark, ensure_ascii=False, indent=2) + "\n"
    write_atomic(own / MARK_NAME, text)
    return video


@contextmanager
def _set_aside(own: Path) -> Iterator[None]:
    """Move the folder of a link aside while it is fetched again, and back where that fails."""
    earlier = own.with_name(f"{own.name}.earlier")
    shutil.rmtree(earlier, ignore_errors=True)
    own.rename(earlier)
    try:
        yield
    except BaseException:
        shutil.rmtree(own, ignore_errors=True)
        earlier.rename(own)
        raise
    shutil.rmtree(earlier)


def forget_link(url: str, folder: Path) -> None:
    """Remove what was fetched of a link."""
    own = link_folder(url, folder)
    with _removed_if_empty(own):
        if not own.is_dir():
            return
        for file in own.iterdir():
            file.unlink(missing_ok=True)


@contextmanager
def _removed_if_empty(own: Path) -> Iterator[None]:
    """Remove the folder of a link, and the one of all links, at the end, where nothing is in
    them."""
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            own.rmdir()
            own.parent.rmdir()


def link_folder(url: str, folder: Path) -> Path:
    """Return the folder of an address below `folder`."""
    address = url.encode(errors="surrogatepass")
    digest = hashlib.sha256(address).hexdigest()
    return folder / digest[:12]


def _fetched(url: str, folder: Path) -> LinkedVideo | None:
    """Return what an earlier run fetched, where it is still there, whole."""
    own = link_folder(url, folder)
    try:
        # the note that was written last
        mark = parse_json((own / MARK_NAME).read_bytes())
        size = mark.pop("size")
        captions = mark["captions"]
        # What a stranger noted may lead elsewhere.
        for name in (mark["path"], captions or ""):
            if Path(name).name != name:
                return None
        mark["path"] = str(own / mark["path"])
        mark["captions"] = captions and str(own / captions)
        video = LinkedVideo.model_validate_json(json.dumps(mark))
        is_whole = video.path.stat().st_size == size and text_kind(video.path) is None
        if is_whole:
            return video
        return None
    # missing, damaged or of another version
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _fetch_file(link: Link, folder: Path, limits: TransferLimits, report: Report | None) -> Path:
    """Download a file, by as many requests as it takes, each going on where the one before broke
    off."""
    path = folder / _file_name(link)
    partial = path.with_name(f".{path.name}.part")

    def go_on() -> None:
        with _rest(link.url, partial, limits) as (answer, file):
            while data := _read(answer, file):
                file.write(data)
                if report is not None:
                    report(path.name, file.tell())

    # bytes that are there already
    def reached() -> int:
        if not partial.exists():
            return 0
        return partial.stat().st_size

    _retried(go_on, link.settings, reached)
    partial.replace(path)
    partial.with_suffix(".mark").unlink(missing_ok=True)
    return path


def _file_name(link: Link) -> str:
    """Return the name of a link's file: the one of its address, with a suffix by its kind where
    that has none."""
    address_path = unquote(urlsplit(link.url).path)
    name = Path(address_path).name
    stem, dot, suffix = name.rpartition(".")
    if dot and suffix.isalnum():
        return f"{_safe_name(stem)}.{suffix}"
    ending = None
    if link.kind.startswith(("video/", "audio/")):
        ending = mimetypes.guess_extension(link.kind)
    return _safe_name(name) + (ending or ".mp4")


def _read(answer: Any, file: BinaryIO) -> bytes:
    """Return the next bytes of an answer. Where it breaks off, what came of them is in the file."""
    try:
        return bytes(answer.read(16 * CHUNK_BYTES))
    except http.client.IncompleteRead as error:
        file.write(error.partial)
        raise


@contextmanager
def _rest(url: str, partial: Path, limits: TransferLimits) -> Iterator[tuple[Any, BinaryIO]]:
    """Yield the answer that holds what a partial file lacks, and the file, to be gone on with or
    begun again.

    It is gone on with where the server says by ETag or date that its own is still the same.
    """
    # what is there may only be continued with the same file
    mark = partial.with_suffix(".mark")
    present_bytes = 0
    if partial.exists() and mark.exists():
        present_bytes = partial.stat().st_size
    headers = {"Accept-Encoding": "identity"}
    if present_bytes:
        headers["Range"] = f"bytes={present_bytes}-"
        headers["If-Range"] = mark.read_text(encoding="utf-8")
    try:
        opened = open_url(url, limits, headers)
    except urllib.error.HTTPError as error:
        if error.code == 416:  # the file has become shorter
            partial.unlink(missing_ok=True)
        raise
    with opened as answer:
        mode: Literal["ab", "wb"] = "wb"
        total = answer.length or 0
        content_range = answer.headers.get("Content-Range", "")
        if answer.status == 206 and content_range.startswith(f"bytes {present_bytes}-"):
            mode = "ab"
            total += present_bytes
        limits.check(total)
        version = answer.headers.get("ETag") or answer.headers.get("Last-Modified") or ""
        # The rest of what comes compressed cannot be asked for by its bytes.
        if version and not version.startswith("W/") and not answer.is_packed:
            mark.write_text(version, encoding="utf-8")
        else:
            mark.unlink(missing_ok=True)
        with partial.open(mode) as file:
            yield answer, file


def _retried(
    action: Callable[[], Any], settings: LinkSettings, reached: Callable[[], int] = lambda: 0
) -> Any:
    """Return what an action returns, tried again after what may pass. Tries that brought something
    do not count."""
    # tries in a row that brought nothing
    fruitless_tries = 0
    bytes_before = reached()

    def pause_after(error: Exception, _: int) -> float:
        nonlocal fruitless_tries, bytes_before
        if not isinstance(error, (OSError, http.client.HTTPException)):
            raise error
        if isinstance(error, urllib.error.HTTPError) and error.code not in RETRIED_STATUSES:
            raise error
        if reached() > bytes_before:
            fruitless_tries = 0
        fruitless_tries += 1
        bytes_before = reached()
        if fruitless_tries >= settings.attempts:
            raise error
        pause = doubled_pause(settings.pause, fruitless_tries)
        next_try = fruitless_tries + 1
        log.info("%s; try %d of %d in %.1f s", error, next_try, settings.attempts, pause)
        return pause

    return retry(action, pause_after)


def _fetch_page(
    link: Link, folder: Path, limits: LinkLimits, language: str | None, report: Report | None
) -> LinkedVideo:
    """Download the video of a page by yt-dlp. language: of the captions to fetch, None for none."""
    # what the page has
    info = link.info
    if info is None:
        info = _extract(link.url, limits)
    if info.get("_type") in ("playlist", "multi_video"):
        raise MediaError("a playlist within a playlist; give its own address")
    if info.get("is_live"):
        raise MediaError("a live stream; give its recording")
    title = info.get("title") or info.get("id") or ""
    name = _safe_name(str(title))

    def hook(state: Info) -> None:
        if report is not None and state.get("downloaded_bytes"):
            report(name, int(state["downloaded_bytes"]))

    # a template of yt-dlp, in which these two signs are doubled
    template = str(folder.absolute()).replace("%", "%%").replace("$", "$$") + f"/{name}"
    is_apart = _is_apart(info)
    if is_apart:
        template += ".%(format_id)s"
    options: Info = {"outtmpl": {"default": f"{template}.%(ext)s"}, "progress_hooks": [hook]}

    # its files
    captions = None
    with limited_youtube_dl(limits, options) as downloader:
        result = downloader.process_ie_result(info, download=True)
        downloads = result.get("requested_downloads") or ()
        files = [Path(download["filepath"]) for download in downloads]
        if not files or not files[0].is_file():
            raise MediaError("yt-dlp downloaded no file; --verbose shows its messages")
        if language is not None:
            captions = _fetch_captions(downloader, result, folder / name, language)

    # one file of them
    path = files[0]
    if len(files) == 2 and is_apart:
        path = folder / f"{name}.mkv"
        join_tracks(files[0], files[1], path)
        for file in files:
            file.unlink()
    origin = _page_origin(link.url, result)
    return LinkedVideo(path=path, origin=origin, page=True, captions=captions)


def _page_origin(url: str, result: Info) -> LinkOrigin:
    """Return what a page says of its video."""
    # the chapters that have a title
    chapters = []
    for chapter in result.get("chapters") or ():
        if chapter.get("title"):
            start = float(chapter.get("start_time") or 0.0)
            title = str(chapter["title"])
            chapters.append(LinkChapter(start=max(0.0, start), title=title))
    facts = {}
    for key in ("title", "uploader", "license"):
        if result.get(key):
            facts[key] = str(result[key])
    upload_date = str(result.get("upload_date") or "")
    return LinkOrigin(
        url=url,
        title=facts.get("title"),
        uploader=facts.get("uploader"),
        licence=facts.get("license"),
        chapters=tuple(chapters),
        upload_date=read_day(upload_date),
    )


def _is_apart(info: Info) -> bool:
    """Tell whether a page gives picture and sound as files of their own alone."""
    has_pictures_alone = False
    for form in info.get("formats") or ():
        if form.get("vcodec") == "none":
            continue
        if form.get("acodec") != "none":
            return False
        has_pictures_alone = True
    return has_pictures_alone


def _fetch_captions(downloader: Any, info: Info, stem: Path, language: str) -> Path:
    """Return a file of the page's captions: a person's before a machine's, in the language before
    in another."""
    for kind in ("subtitles", "automatic_captions"):
        tracks: Mapping[str, list[Info]] = info.get(kind) or {}
        for code in sorted(tracks, key=lambda code: (code.partition("-")[0] != language, code)):
            if kind == "automatic_captions" and code.partition("-")[0] != language:
                continue  # the site translates its own into every language
            for form in CAPTION_FORMS:
                track = _track_of_form(tracks[code], form)
                if track is None:
                    continue
                data = _caption_bytes(downloader, track)
                suffix = form.removesuffix("3")
                path = stem.with_name(f"{stem.name}.{code}.{suffix}")
                path.write_bytes(data)
                return path
    raise MediaError(
        f"its page has no captions in {', '.join(CAPTION_FORMS)}; leave --captions out"
    )


def _caption_bytes(downloader: Any, track: Info) -> bytes:
    text = track.get("data")
    if text:
        return bytes(text.encode())
    answer = downloader.urlopen(track["url"])
    return bytes(answer.read(MAX_CAPTION_BYTES))


def _track_of_form(tracks: Sequence[Info], form: str) -> Info | None:
    for track in tracks:
        if track.get("ext") == form:
            return track
    return None


def _extract(url: str, limits: LinkLimits) -> Info:
    """Return what yt-dlp finds on a page: a video, or a playlist with the addresses of its
    videos."""
    with limited_youtube_dl(limits, {}) as downloader:
        info: Info | None = downloader.extract_info(url, download=False)
    if info is None:
        raise MediaError("no video is found on this page; give the address of the video itself")
    return info


def _safe_name(name: str) -> str:
    """Return a name, without its suffix, that every file system takes."""
    safe = re.sub(r"[^\w.-]+", "-", name).strip("-.")
    head = safe[:MAX_NAME_CHARS].strip("-.")
    return head or "video"
