"""Downloads videos by URL: a file over http(s), or yt-dlp's on a page, once, resumed, with limits.

    for link in find_links("https://example.org/whisk.mp4", LinkSettings()):
        video = fetch_link(link, Path("downloads"))       # video.path, video.captions, video.origin

Each URL has a folder of its own in the given folder. `link.json`, written last, describes its
content, so that a second run asks no server.
"""

import codecs
import contextlib
import hashlib
import http.client
import json
import logging
import mimetypes
import re
import shutil
import urllib.error
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from stepline.errors import MediaError, SteplineError
from stepline.files.atomic_files import check_own_folder, write_atomic
from stepline.files.remote.addresses import check_url, display_url
from stepline.files.remote.retry import TRANSIENT_STATUSES, exponential_backoff, retry
from stepline.limits import MAX_SECOND, parse_json
from stepline.media.container import open_media
from stepline.media.http import CHUNK_BYTES, LinkLimits, TransferLimits, open_url
from stepline.media.page_videos import (
    PLAYLIST_TYPES,
    Info,
    LinkedVideo,
    Report,
    extract_info,
    fetch_page_video,
    safe_name,
)
from stepline.media.settings import LinkSettings, MediaSettings
from stepline.records import LinkOrigin

log = logging.getLogger(__name__)

LINK_RECORD_NAME = "link.json"
DOWNLOAD_BYTES = 16 * CHUNK_BYTES  # per read
# media types of a page, or of a list of a video's segments. All others are taken for the video
# itself
PAGE_TYPES = ("text/html", "application/xhtml+xml", "application/dash+xml", "mpegurl")
# 416: the partial file is not part of the server's file any more, which is fetched from its start
RETRIED_STATUSES = TRANSIENT_STATUSES | {416}
MAX_REASON_CHARS = 160  # of what urllib or yt-dlp says
CAUSE_FIELDS = ("__cause__", "__context__", "cause", "reason")  # of an error, that hold its cause
# starts of texts that servers send in place of a video, in lower case. No media file starts so
TEXT_KIND_BY_START = (
    (b"<!doctype html", "a web page (HTML)"),
    (b"<html", "a web page (HTML)"),
    (b"<head", "a web page (HTML)"),
    (b"<?xml", "an XML text"),
    (b"<error", "an XML text"),
    (b"{", "a JSON text"),
    (b"[", "a JSON text"),
    (b"#extm3u", "a playlist (HLS)"),
)
TEXT_START_BYTES = 1024
# to check whether a download is a media file. Its reader checks the limits later
ANY_SIZE = MediaSettings(
    max_bytes=2**40, max_duration=MAX_SECOND, max_streams=1000, max_pixels=10**9
)


@dataclass(frozen=True)
class Link:
    """The URL of one video, with the facts that the server or page gave about it.

    Attributes:
        url: URL of the file or web page.
        settings: settings of the download.
        media_type: media type of the server's response, such as "video/mp4".
        is_web_page: whether the URL is a web page, whose video yt-dlp must find.
        info: yt-dlp's metadata of the page, None before yt-dlp was called.
        failure_reason: why there is no video, None if there is one.
    """

    url: str
    settings: LinkSettings
    media_type: str = ""
    is_web_page: bool = False
    info: Info | None = field(default=None, repr=False, compare=False)
    failure_reason: str | None = None


def find_links(
    url: str, download_folder: Path, settings: LinkSettings, *, force: bool = False
) -> list[Link]:
    """Return the link of a video URL, or the links of the videos in a playlist.

    Args:
        url: URL of a file, page or playlist.
        download_folder: folder of all downloads. No request is made for a video that an earlier run
            downloaded into it.
        settings: limits of the download.
        force: whether to make the requests even for such a video.

    Raises MediaError, in one line, if the URL cannot be reached or has no video.
    """
    check_url(url)
    earlier = None if force else _earlier_download(url, download_folder)
    if earlier is not None:
        return [Link(url, settings, is_web_page=earlier.page)]

    limits = LinkLimits(settings)
    with explain_link_errors(url):
        with _call_with_retries(lambda: open_url(url, limits), settings) as response:
            media_type = response.headers.get_content_type()
        if not media_type.endswith(PAGE_TYPES):
            return [Link(url, settings, media_type)]
        info = extract_info(url, limits)
    if info.get("_type") not in PLAYLIST_TYPES:
        return [Link(url, settings, is_web_page=True, info=info)]

    # the videos of a playlist
    entries = info.get("entries") or ()
    addresses = [entry["url"] for entry in entries if entry and entry.get("url")]
    if not addresses:
        raise MediaError(
            f"{display_url(url)}: a playlist without videos; give a page that shows one"
        )
    return [Link(address, settings, is_web_page=True) for address in addresses[: settings.most]]


def fetch_link(
    link: Link,
    folder: Path,
    *,
    captions: bool = False,
    language: str = "en",
    report: Report | None = None,
    force: bool = False,
) -> LinkedVideo:
    """Return the video of a link, downloaded into `folder` now or by an earlier run.

    A broken download is resumed.

    Args:
        link: link from `find_links`.
        folder: folder of all downloads.
        captions: whether to download the captions of the page too.
        language: preferred language of the captions, as ISO 639-1 code.
        report: called with the file name and the number of bytes so far. None for no reports.
        force: whether to download again. The earlier file is kept if that fails.

    Raises MediaError, in one line, for a failing or slow server, a file that is too large, a page
    without a video, and a response that is not a media file.
    """
    if link.failure_reason is not None:
        raise MediaError(link.failure_reason)
    link_dir = link_folder(link.url, folder)
    check_own_folder(link_dir)
    earlier = _earlier_download(link.url, folder)
    if not force and earlier is not None and (earlier.captions is not None or not captions):
        return earlier
    limits = LinkLimits(link.settings)
    replacing = _set_aside_downloads(link_dir) if force and earlier else contextlib.nullcontext()
    with explain_link_errors(link.url), _remove_empty_folders(link_dir), replacing:
        link_dir.mkdir(parents=True, exist_ok=True)
        if link.is_web_page:
            info = extract_info(link.url, limits) if link.info is None else link.info
            video = fetch_page_video(
                link.url,
                info,
                link_dir,
                limits,
                language=language if captions else None,
                report=report,
            )
        elif captions:
            raise MediaError("a file, with which no captions come; leave --captions out")
        else:
            path = _fetch_file(link, link_dir, limits, report)
            video = LinkedVideo(path=path, origin=LinkOrigin(url=display_url(link.url)))
        _check_is_media(video.path)

    # written last, so that its files are complete
    link_record = video.model_dump(mode="json") | {
        "path": video.path.name,
        "captions": video.captions and video.captions.name,
        "size": video.path.stat().st_size,
    }
    text = json.dumps(link_record, ensure_ascii=False, indent=2)
    write_atomic(link_dir / LINK_RECORD_NAME, text + "\n")
    return video


@contextmanager
def _set_aside_downloads(link_dir: Path) -> Iterator[None]:
    """Rename the folder of a link during a new download, and restore it if the download fails."""
    earlier = link_dir.with_name(f"{link_dir.name}.earlier")
    shutil.rmtree(earlier, ignore_errors=True)
    link_dir.rename(earlier)
    try:
        yield
    except BaseException:
        shutil.rmtree(link_dir, ignore_errors=True)
        earlier.rename(link_dir)
        raise
    shutil.rmtree(earlier)


def delete_downloads(url: str, folder: Path) -> None:
    """Remove the downloaded files of a link."""
    link_dir = link_folder(url, folder)
    with _remove_empty_folders(link_dir):
        for file in link_dir.glob("*"):
            file.unlink(missing_ok=True)


@contextmanager
def _remove_empty_folders(link_dir: Path) -> Iterator[None]:
    """Remove the folder of a link and its parent folder at the end of the context, if empty."""
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            link_dir.rmdir()
            link_dir.parent.rmdir()


def link_folder(url: str, folder: Path) -> Path:
    """Return the folder for the downloads from a URL: a subfolder of `folder`, named by its hash."""
    return folder / hashlib.sha256(url.encode(errors="surrogatepass")).hexdigest()[:12]


def _earlier_download(url: str, folder: Path) -> LinkedVideo | None:
    """Return the video that an earlier run downloaded completely. None if there is none."""
    link_dir = link_folder(url, folder)
    try:
        record = parse_json((link_dir / LINK_RECORD_NAME).read_bytes())
        size = record.pop("size")
        captions = record["captions"]
        # A record from someone else may lead out of the folder.
        for name in (record["path"], captions or ""):
            if Path(name).name != name:
                return None
        if not record.get("page"):  # an earlier version stored the whole address
            record["origin"]["url"] = display_url(record["origin"]["url"])
        record["path"] = str(link_dir / record["path"])
        record["captions"] = captions and str(link_dir / captions)
        video = LinkedVideo.model_validate_json(json.dumps(record))
        is_complete = video.path.stat().st_size == size and _text_kind(video.path) is None
        return video if is_complete else None
    # missing, damaged or of another version
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _fetch_file(link: Link, folder: Path, limits: TransferLimits, report: Report | None) -> Path:
    """Download the file of a link and return its path.

    Each request asks only for the bytes that are missing.

    Args:
        link: link to a file.
        folder: folder to download into.
        limits: limits of all requests together.
        report: called with the file name and the number of bytes so far.
    """
    path = folder / _file_name(link)
    partial = path.with_name(f".{path.name}.part")

    def partial_bytes() -> int:
        return partial.stat().st_size if partial.exists() else 0

    def resume_download() -> None:
        response, is_remainder = _request_remainder(link.url, partial, limits)
        with response, partial.open("ab" if is_remainder else "wb") as file:
            try:
                while data := response.read(DOWNLOAD_BYTES):
                    file.write(data)
                    if report is not None:
                        report(path.name, file.tell())
            except http.client.IncompleteRead as error:
                file.write(error.partial)
                raise

    _call_with_retries(resume_download, link.settings, partial_bytes)
    partial.replace(path)
    partial.with_suffix(".mark").unlink(missing_ok=True)
    return path


def _file_name(link: Link) -> str:
    """Return the file name in a link's URL, with a suffix by its media type if it has none."""
    name = Path(unquote(urlsplit(link.url).path)).name
    stem, dot, suffix = name.rpartition(".")
    if dot and suffix.isalnum():
        return f"{safe_name(stem)}.{suffix}"
    is_media = link.media_type.startswith(("video/", "audio/"))
    guessed_suffix = mimetypes.guess_extension(link.media_type) if is_media else None
    return safe_name(name) + (guessed_suffix or ".mp4")


def _request_remainder(url: str, partial: Path, limits: TransferLimits) -> tuple[Any, bool]:
    """Return (response, whether it holds only the missing bytes) for a partly downloaded file.

    The second value is True for status 206, if the ETag or date shows that the file is unchanged.
    Otherwise the response holds the whole file.

    Args:
        url: URL of the file.
        partial: local file with the bytes so far.
        limits: limits of the transfer.
    """
    validator = partial.with_suffix(".mark")
    present_bytes = partial.stat().st_size if partial.exists() and validator.exists() else 0
    headers = {"Accept-Encoding": "identity"}
    if present_bytes:
        headers["Range"] = f"bytes={present_bytes}-"
        headers["If-Range"] = validator.read_text(encoding="utf-8")
    try:
        response = open_url(url, limits, headers)
    except urllib.error.HTTPError as error:
        if error.code == 416:  # the file has become shorter
            partial.unlink(missing_ok=True)
        raise
    content_range = response.headers.get("Content-Range", "")
    is_remainder = response.status == 206 and content_range.startswith(f"bytes {present_bytes}-")
    try:
        limits.check_limits((response.length or 0) + (present_bytes if is_remainder else 0))
        version = response.headers.get("ETag") or response.headers.get("Last-Modified") or ""
        if version and not version.startswith("W/"):
            validator.write_text(version, encoding="utf-8")
        else:
            validator.unlink(missing_ok=True)
    except BaseException:
        response.close()
        raise
    return response, is_remainder


def _call_with_retries(
    action: Callable[[], Any], settings: LinkSettings, bytes_so_far: Callable[[], int] = lambda: 0
) -> Any:
    """Return the result of a function that is called again after transient errors.

    Args:
        action: the function.
        settings: number of attempts and pauses.
        bytes_so_far: returns the bytes downloaded. If they grew, the count of attempts restarts.
    """
    failed_tries = 0  # without progress, in a row
    bytes_before = bytes_so_far()

    def pause_after(error: Exception, _: int) -> float:
        nonlocal failed_tries, bytes_before
        if not isinstance(error, (OSError, http.client.HTTPException)):
            raise error
        if isinstance(error, urllib.error.HTTPError) and error.code not in RETRIED_STATUSES:
            raise error
        if bytes_so_far() > bytes_before:
            failed_tries = 0
        failed_tries += 1
        bytes_before = bytes_so_far()
        if failed_tries >= settings.attempts:
            raise error
        pause = exponential_backoff(settings.pause, failed_tries)
        log.info("%s; try %d of %d in %.1f s", error, failed_tries + 1, settings.attempts, pause)
        return pause

    return retry(action, pause_after)


def _text_kind(path: Path) -> str | None:
    """Return what kind of text a file starts with, in words such as "a web page (HTML)".

    None if it may be a media file.
    """
    with path.open("rb") as file:
        content = file.read(TEXT_START_BYTES).removeprefix(codecs.BOM_UTF8).lstrip().lower()
    kinds = (kind for start, kind in TEXT_KIND_BY_START if content.startswith(start))
    return next(kinds, None)


def _check_is_media(path: Path) -> None:
    """Raise MediaError if a downloaded file is not a media file, and remove the file.

    Servers also answer with web pages and error messages.
    """
    kind = _text_kind(path)
    if kind is not None:
        path.unlink()
        raise MediaError(
            f"what came is {kind}, no video; open the address in a browser, and give that of the "
            "video itself"
        )
    try:
        with open_media(path, ANY_SIZE):
            return
    except MediaError as error:
        reason = str(error).removeprefix(f"{path}: ")
        path.unlink()
        raise MediaError(reason) from error


@contextmanager
def explain_link_errors(url: str) -> Iterator[None]:
    """Convert the errors of urllib and yt-dlp in this context to MediaError with URL and cure."""
    name = display_url(url)
    try:
        yield
    # yt-dlp raises what its thousand extractors raise. Each becomes one line below.
    except Exception as error:
        causes = list(_iterate_causes(error))
        our_reasons = (str(cause) for cause in causes if isinstance(cause, SteplineError))
        reason = next(our_reasons, "") or _explain_error(error, causes)
        for cause in causes:  # Some hold an open response.
            if hasattr(cause, "close"):
                cause.close()
        raise MediaError(f"{name}: {reason}") from error


def _iterate_causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and its causes, also those stored in attributes by yt-dlp or urllib."""
    pending = [error]
    visited_ids = set()
    while pending:
        cause = pending.pop()
        if id(cause) in visited_ids:
            continue
        visited_ids.add(id(cause))
        yield cause
        values = [getattr(cause, name, None) for name in CAUSE_FIELDS]
        values += getattr(cause, "unexpected_errors", ())
        exc_info = getattr(cause, "exc_info", None) or (None, None)
        values += exc_info[1:2]
        pending += [value for value in values if isinstance(value, BaseException)]


def _explain_error(error: Exception, causes: Sequence[BaseException]) -> str:
    """Return the reason of an error of urllib or yt-dlp in words, and the cure.

    Args:
        error: the error.
        causes: the error and the errors that caused it.
    """
    statuses = (getattr(cause, "status", None) for cause in causes)
    status = next((status for status in statuses if isinstance(status, int)), 0)
    if status in (401, 403):
        return "access is denied; download it as its owner allows, and give the file"
    if status in (404, 410):
        return "is not there; correct the address"
    if status >= 400:
        return f"the server answered {status}; try again later: what has come is kept"
    if "Unsupported URL" in str(error):
        return "no video is found on this page; give the address of the video itself"
    text = str(getattr(error, "reason", None) or error) or type(error).__name__
    text, _, _ = text.partition("; please report")
    text = re.sub(r"^ERROR: (\[[^]]*\] )?", "", text)
    line = " ".join(text.split())
    cure = "see whether its server is up, then run again: what has come is kept"
    return f"cannot be fetched ({line[:MAX_REASON_CHARS]}); {cure}"
