"""Videos by their address: a file over http(s), or what yt-dlp finds on a page; fetched once,
resumed, under limits.

    for link in find_links("https://example.org/whisk.mp4", LinkSettings()):
        video = fetch_link(link, Path("downloads"))       # video.path, video.captions, video.origin

Each address has a folder of its own below the one named; `link.json`, written last, says what is in
it, so that a second run asks nobody. yt-dlp (extra `links`) runs in this process with connections
of media/http.py, and without plugins, cookies, passwords, proxies, a cache or other programs.
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
from typing import Any, BinaryIO, TypeAlias
from urllib.parse import unquote, urlsplit

from stepline.atomic_files import write_atomic
from stepline.errors import MediaError, SteplineError
from stepline.limits import parse_json
from stepline.media.addresses import check_url, display_url
from stepline.media.clips import join_tracks
from stepline.media.dates import read_day
from stepline.media.downloaded_file import remove_other_files, text_kind
from stepline.media.http import CHUNK_BYTES, LinkLimits, TransferLimits, open_url
from stepline.media.limited_yt_dlp import Info, limited_youtube_dl
from stepline.media.settings import LinkSettings
from stepline.own_files import check_own_folder
from stepline.records import FrozenModel, LinkChapter, LinkOrigin
from stepline.retry import TRANSIENT_STATUSES, doubled_pause, retry

log = logging.getLogger(__name__)

Report: TypeAlias = Callable[[str, int], None]  # the file's name, bytes that are there

MARK_NAME = "link.json"
# What a page, or a list of the pieces of a video, says it is; everything else is taken for the
# video itself.
PAGE_TYPES = ("text/html", "application/xhtml+xml", "application/dash+xml", "mpegurl")
# 416: what is there already is not the server's file any more, which is then fetched from its begin
RETRIED_STATUSES = TRANSIENT_STATUSES | {416}
LONGEST_NAME, LONGEST_REASON = 60, 160  # characters of a file's name, and of what yt-dlp says
CAPTION_FORMS = ("vtt", "srt", "json3")  # forms that are read, best first
MAX_CAPTION_BYTES = 64 * 2**20  # bytes


@dataclass(frozen=True)
class Link:
    """A video by its address. kind: the media type of the answer.

    page: to be found by yt-dlp; info: what it told, None where it was not asked yet. fault: why
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
    if not force and (done := _fetched(url, folder)) is not None:
        return [Link(url, settings, page=done.page)]
    limits = LinkLimits(settings)
    with _one_line(url):
        with _retried(lambda: open_url(url, limits), settings) as answer:
            kind = answer.headers.get_content_type()
        if not kind.endswith(PAGE_TYPES):
            return [Link(url, settings, kind)]
        info = _extract(url, limits)
    if info.get("_type") not in ("playlist", "multi_video"):
        return [Link(url, settings, page=True, info=info)]
    entries = [entry["url"] for entry in info.get("entries") or () if entry and entry.get("url")][
        : settings.most
    ]
    if not entries:
        raise MediaError(
            f"{display_url(url)}: a playlist without videos; give a page that shows one"
        )
    return [Link(entry, settings, page=True) for entry in entries]


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

    What a run that broke off has left is gone on with. captions: fetch those of its page too, best
    in `language`. force: fetch it again, also where it is there; what is there stays where that fails.
    Raises MediaError, in one line, for a server that fails or is too slow, a file too large, a page
    without a video, an answer that is no medium.
    """
    if link.fault is not None:
        raise MediaError(link.fault)
    check_own_folder(link_folder(link.url, folder))
    done = _fetched(link.url, folder)
    if not force and done is not None and (done.captions is not None or not captions):
        return done
    own = link_folder(link.url, folder)
    limits = LinkLimits(link.settings)
    aside = _set_aside(own) if force and done is not None else contextlib.nullcontext()
    with _one_line(link.url), _removed_if_empty(own), aside:
        own.mkdir(parents=True, exist_ok=True)
        if link.page:
            made = _fetch_page(link, own, limits, language if captions else None, report)
        elif captions:
            raise MediaError("a file, with which no captions come; leave --captions out")
        else:
            made = LinkedVideo(
                path=_fetch_file(link, own, limits, report), origin=LinkOrigin(url=link.url)
            )
        remove_other_files(made.path)
    stored = made.model_dump(mode="json") | {
        "path": made.path.name,
        "size": made.path.stat().st_size,
    }
    stored |= {"captions": made.captions.name} if made.captions is not None else {}
    write_atomic(own / MARK_NAME, json.dumps(stored, ensure_ascii=False, indent=2) + "\n")
    return made


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
        for file in own.iterdir() if own.is_dir() else ():
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
    return folder / hashlib.sha256(url.encode(errors="surrogatepass")).hexdigest()[:12]


def _fetched(url: str, folder: Path) -> LinkedVideo | None:
    """Return what an earlier run fetched, where it is still there, whole."""
    own = link_folder(url, folder)
    try:
        stored = parse_json((own / MARK_NAME).read_bytes())
        size, captions = stored.pop("size"), stored["captions"]
        # What a stranger noted may lead elsewhere.
        for name in (stored["path"], captions or ""):
            if Path(name).name != name:
                return None
        made = LinkedVideo.model_validate_json(
            json.dumps(
                stored
                | {"path": str(own / stored["path"]), "captions": captions and str(own / captions)}
            )
        )
        is_whole = made.path.stat().st_size == size and text_kind(made.path) is None
        return made if is_whole else None
    # missing, damaged or of another version
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _fetch_file(link: Link, folder: Path, limits: TransferLimits, report: Report | None) -> Path:
    """Download a file, by as many requests as it takes, each going on where the one before broke
    off."""
    name = Path(unquote(urlsplit(link.url).path)).name
    stem, dot, suffix = name.rpartition(".")
    ending = (
        mimetypes.guess_extension(link.kind) if link.kind.startswith(("video/", "audio/")) else None
    ) or ".mp4"
    path = folder / (
        _safe_name(stem) + f".{suffix}" if dot and suffix.isalnum() else _safe_name(name) + ending
    )
    partial = path.with_name(f".{path.name}.part")

    def go_on() -> None:
        with _rest(link.url, partial, limits) as (answer, file):
            while data := _read(answer, file):
                file.write(data)
                if report is not None:
                    report(path.name, file.tell())

    _retried(
        go_on, link.settings, reached=lambda: partial.stat().st_size if partial.exists() else 0
    )
    partial.replace(path)
    partial.with_suffix(".mark").unlink(missing_ok=True)
    return path


def _read(answer: Any, file: BinaryIO) -> bytes:
    """Return the next bytes of an answer; where it breaks off, what came of them is in the file."""
    try:
        return bytes(answer.read(16 * CHUNK_BYTES))
    except http.client.IncompleteRead as error:
        file.write(error.partial)
        raise


@contextmanager
def _rest(url: str, partial: Path, limits: TransferLimits) -> Iterator[tuple[Any, BinaryIO]]:
    """Yield the answer that holds what a partial file lacks, and the file, to be gone on with or
    begun anew.

    It is gone on with where the server says by ETag or date that its own is still the same.
    """
    mark = partial.with_suffix(".mark")
    there = partial.stat().st_size if partial.exists() and mark.exists() else 0
    headers = {"Accept-Encoding": "identity"}
    if there:
        headers |= {"Range": f"bytes={there}-", "If-Range": mark.read_text(encoding="utf-8")}
    try:
        opened = open_url(url, limits, headers)
    except urllib.error.HTTPError as error:
        if error.code == 416:  # the file has become shorter
            partial.unlink(missing_ok=True)
        raise
    with opened as answer:
        resumed = answer.status == 206 and answer.headers.get("Content-Range", "").startswith(
            f"bytes {there}-"
        )
        limits.check((there if resumed else 0) + (answer.length or 0))
        known = answer.headers.get("ETag") or answer.headers.get("Last-Modified") or ""
        # The rest of what comes compressed cannot be asked for by its bytes.
        if known and not known.startswith("W/") and not answer.is_packed:
            mark.write_text(known, encoding="utf-8")
        else:
            mark.unlink(missing_ok=True)
        with partial.open("ab" if resumed else "wb") as file:
            yield answer, file


def _retried(
    action: Callable[[], Any], settings: LinkSettings, reached: Callable[[], int] = lambda: 0
) -> Any:
    """Return what an action returns, tried again after what may pass; tries that brought something
    do not count."""
    fruitless_tries = 0
    bytes_before = reached()

    def pause_after(error: Exception, _: int) -> float:
        nonlocal fruitless_tries, bytes_before
        if not isinstance(error, (OSError, http.client.HTTPException)):
            raise error
        if isinstance(error, urllib.error.HTTPError) and error.code not in RETRIED_STATUSES:
            raise error
        fruitless_tries = 1 if reached() > bytes_before else fruitless_tries + 1
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
    info = link.info if link.info is not None else _extract(link.url, limits)
    if info.get("_type") in ("playlist", "multi_video"):
        raise MediaError("a playlist within a playlist; give its own address")
    if info.get("is_live"):
        raise MediaError("a live stream; give its recording")
    name = _safe_name(str(info.get("title") or info.get("id") or ""))

    def hook(state: Info) -> None:
        if report is not None and state.get("downloaded_bytes"):
            report(name, int(state["downloaded_bytes"]))

    place = str(folder.absolute()).replace("%", "%%").replace("$", "$$")  # a template of yt-dlp
    own: Info = {"outtmpl": {"default": f"{place}/{name}.%(ext)s"}, "progress_hooks": [hook]}
    if apart := _is_apart(info):
        own["outtmpl"] = {"default": f"{place}/{name}.%(format_id)s.%(ext)s"}
    with limited_youtube_dl(limits, own) as downloader:
        found = downloader.process_ie_result(info, download=True)
        files = [Path(each["filepath"]) for each in found.get("requested_downloads") or ()]
        if not files or not files[0].is_file():
            raise MediaError("yt-dlp brought no file; see with --verbose what it says")
        text = (
            _fetch_captions(downloader, found, folder / name, language)
            if language is not None
            else None
        )
    path = files[0]
    if len(files) == 2 and apart:
        path = folder / f"{name}.mkv"
        join_tracks(files[0], files[1], path)
        for file in files:
            file.unlink()
    chapters = [
        LinkChapter(
            start=max(0.0, float(chapter.get("start_time") or 0.0)), title=str(chapter["title"])
        )
        for chapter in found.get("chapters") or ()
        if chapter.get("title")
    ]
    told = {key: str(found[key]) for key in ("title", "uploader", "license") if found.get(key)}
    origin = LinkOrigin(
        url=link.url,
        title=told.get("title"),
        uploader=told.get("uploader"),
        licence=told.get("license"),
        chapters=tuple(chapters),
        upload_date=read_day(str(found.get("upload_date") or "")),
    )
    return LinkedVideo(path=path, origin=origin, page=True, captions=text)


def _is_apart(info: Info) -> bool:
    """Tell whether a page gives picture and sound as files of their own alone."""
    forms = info.get("formats") or ()
    kinds = {(form.get("vcodec") != "none", form.get("acodec") != "none") for form in forms}
    return (True, False) in kinds and (True, True) not in kinds


def _fetch_captions(downloader: Any, info: Info, stem: Path, language: str) -> Path:
    """Return a file of the page's captions: a person's before a machine's, in the language before
    in another."""
    for kind in ("subtitles", "automatic_captions"):
        tracks: Mapping[str, list[Info]] = info.get(kind) or {}
        for code in sorted(tracks, key=lambda code: (code.partition("-")[0] != language, code)):
            if kind == "automatic_captions" and code.partition("-")[0] != language:
                continue  # the site translates its own into every language
            for form in CAPTION_FORMS:
                track = next((each for each in tracks[code] if each.get("ext") == form), None)
                if track is not None:
                    path = stem.with_name(f"{stem.name}.{code}.{form.removesuffix('3')}")
                    given = track.get("data")
                    data = (
                        given.encode()
                        if given
                        else downloader.urlopen(track["url"]).read(MAX_CAPTION_BYTES)
                    )
                    path.write_bytes(data)
                    return path
    raise MediaError(
        f"its page has no captions in {', '.join(CAPTION_FORMS)}; leave --captions out"
    )


def _extract(url: str, limits: LinkLimits) -> Info:
    """Return what yt-dlp finds on a page: a video, or a playlist with the addresses of its
    videos."""
    with limited_youtube_dl(limits, {}) as downloader:
        info: Info | None = downloader.extract_info(url, download=False)
    if info is None:
        raise MediaError("no video is found on this page; give the address of the video itself")
    return info


@contextmanager
def _one_line(url: str) -> Iterator[None]:
    """Make of whatever ends the fetching of a link one MediaError that names it and says the
    cure."""
    name = display_url(url)
    try:
        yield
    # yt-dlp raises what its thousand extractors raise; each is told below
    except Exception as error:
        causes = list(_causes(error))
        own = next((str(cause) for cause in causes if isinstance(cause, SteplineError)), None)
        told = f"{name}: {own or _reason(error, causes)}"
        for cause in causes:  # the answers that they hold
            if (close := getattr(cause, "close", None)) is not None:
                close()
        raise MediaError(told) from error


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and what it was made of, also where yt-dlp or urllib keep that in a field."""
    waiting, seen = [error], set()
    while waiting:
        cause = waiting.pop()
        if id(cause) in seen:
            continue
        seen.add(id(cause))
        yield cause
        kept = [
            getattr(cause, name, None) for name in ("__cause__", "__context__", "cause", "reason")
        ]
        kept += getattr(cause, "unexpected_errors", ())
        kept += (getattr(cause, "exc_info", None) or (None, None))[1:2]
        waiting += [each for each in kept if isinstance(each, BaseException)]


def _reason(error: Exception, causes: Sequence[BaseException]) -> str:
    """Return what went wrong and what to do, from what urllib or yt-dlp raised."""
    status = next((s for c in causes if isinstance(s := getattr(c, "status", None), int)), None)
    if status in (401, 403):
        return "access is denied; download it as its owner allows, and give the file"
    if status in (404, 410):
        return "is not there; correct the address"
    if status is not None and status >= 400:
        return f"the server answered {status}; try again later: what has come is kept"
    if "Unsupported URL" in str(error):
        return "no video is found on this page; give the address of the video itself"
    text = str(getattr(error, "reason", None) or error) or type(error).__name__
    text = " ".join(
        re.sub(r"^ERROR: (\[[^]]*\] )?", "", text.partition("; please report")[0]).split()
    )
    cure = "see whether its server is up, then run again: what has come is kept"
    return f"cannot be fetched ({text[:LONGEST_REASON]}); {cure}"


def _safe_name(name: str) -> str:
    """Return a name, without its suffix, that every file system takes."""
    return re.sub(r"[^\w.-]+", "-", name).strip("-.")[:LONGEST_NAME].strip("-.") or "video"
