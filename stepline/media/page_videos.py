"""Downloads the video and captions of a web page by yt-dlp.

    info = extract_info("https://example.org/page", limits)
    video = fetch_page_video("https://example.org/page", info, folder, limits)

yt-dlp uses the limited connections of media/http.py, and no plugins, cookies, passwords, proxies or
cache. It starts no other program, except the script interpreter that some extractors need.
"""

import functools
import logging
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from stepline.errors import MediaError, explain_missing_extra
from stepline.files.remote.addresses import display_url
from stepline.media.clips import join_tracks
from stepline.media.http import LinkLimits, connection_class
from stepline.media.probe import parse_date
from stepline.media.settings import LinkSettings
from stepline.records import FrozenModel, LinkChapter, LinkOrigin

log = logging.getLogger(__name__)

Info = dict[str, Any]  # facts of yt-dlp about a page or a video
Report = Callable[[str, int], None]  # called with file name and bytes so far

# Allowed protocols of a video. For others yt-dlp runs programs of this machine (rtmpdump, ffmpeg),
# which check no address.
VIDEO_PROTOCOLS = frozenset({"http", "https", "m3u8", "m3u8_native", "http_dash_segments"})
PROTOCOL_FILTER = f"[protocol~='^({'|'.join(sorted(VIDEO_PROTOCOLS))})$']"
MAX_PROTOCOL_CHARS = 40  # in a message
MAX_NAME_CHARS = 60  # of a file's name
PLAYLIST_TYPES = ("playlist", "multi_video")
CAPTION_FORMATS = ("vtt", "srt", "json3")  # formats that are read, best first
MAX_CAPTION_BYTES = 64 * 2**20


class LinkedVideo(FrozenModel):
    """A downloaded video.

    Attributes:
        path: path of the video file.
        origin: URL, title and other metadata of its source.
        page: whether yt-dlp downloaded it from a web page.
        captions: path of the downloaded caption file, None if captions were not requested.
    """

    path: Path
    origin: LinkOrigin
    page: bool = False
    captions: Path | None = None


@contextmanager
def limited_youtube_dl(limits: LinkLimits, options: Info) -> Iterator[Any]:
    """Yield yt-dlp's YoutubeDL object, whose connections have limits.

    Args:
        limits: limits of all connections together.
        options: further options of yt-dlp.

    Raises MediaError if yt-dlp is not installed.
    """
    try:
        import yt_dlp
        from yt_dlp.extractor import openload
        from yt_dlp.globals import plugin_dirs
    except ModuleNotFoundError as error:
        raise MediaError(
            f"a page, which {explain_missing_extra(error)}; or give the video's own address"
        ) from error
    # Plugins would run other people's code in this process.
    plugin_dirs.value = []
    # PhantomJS, a browser that some extractors start, checks no address either.
    openload.check_executable = lambda *_: False
    limited_class = _limited_downloader_class(yt_dlp.YoutubeDL, limits)
    with limited_class(_youtube_dl_options(limits.settings) | options) as downloader:
        yield downloader


def _limited_downloader_class(youtube_dl: Any, limits: LinkLimits) -> Any:
    """Return a subclass of YoutubeDL whose connections have limits.

    Args:
        youtube_dl: yt-dlp's class YoutubeDL.
        limits: limits of all connections together.
    """
    from yt_dlp.networking._urllib import HTTPHandler, UrllibRH
    from yt_dlp.utils import determine_protocol

    # yt-dlp requires the suffix RH (request handler) in the class name.
    class LimitedRH(UrllibRH):  # type: ignore[misc]
        def _create_instance(self, *arguments: Any, **options: Any) -> Any:
            opener = super()._create_instance(*arguments, **options)
            # ftp would make connections of its own, under no limits.
            opener.handle_open.pop("ftp", None)
            for handler in opener.handlers:
                if isinstance(handler, HTTPHandler):
                    handler._make_conn_class = lambda kind, _: connection_class(kind, limits)
            return opener

        def _prepare_headers(self, _: Any, headers: Any) -> None:
            # http.py reads no compressed body.
            headers["Accept-Encoding"] = "identity"

    class LimitedYoutubeDL(youtube_dl):  # type: ignore[misc]
        @functools.cached_property
        def _request_director(self) -> Any:
            # No other handler: those of curl and requests make their own connections.
            return self.build_request_director([LimitedRH])

        def dl(self, name: str, info: Info, *arguments: Any, **options: Any) -> Any:
            """Download a file, unless yt-dlp would start another program for it."""
            protocol = str(determine_protocol(info))
            if not VIDEO_PROTOCOLS.issuperset(protocol.split("+")):
                downloader_name = repr(protocol[:MAX_PROTOCOL_CHARS])
                raise MediaError(
                    f"the video comes by {downloader_name}, which is not fetched; give another"
                )
            return super().dl(name, info, *arguments, **options)

    return LimitedYoutubeDL


def _youtube_dl_options(settings: LinkSettings) -> Info:
    # Forbidden protocols are not chosen. If there is no other, `dl` raises the error.
    fitting = f"{PROTOCOL_FILTER}[height<=?{settings.height}]"
    return {
        # the last but one: video and audio as two files, or only one of them
        "format": f"b{fitting}/b{PROTOCOL_FILTER}/((bv{fitting}/bv{PROTOCOL_FILTER}),ba{PROTOCOL_FILTER})/b",
        "extract_flat": "in_playlist",
        "noplaylist": True,
        "playlistend": settings.most,
        "retries": settings.attempts,
        "fragment_retries": settings.attempts,
        "socket_timeout": settings.seconds,
        # a video that lacks a segment is an error, not a shorter video
        "skip_unavailable_fragments": False,
        "continuedl": True,
        "logger": _YtDlpLog(),
        "noprogress": True,
        "color": "never",
        # nothing is stored elsewhere, and no proxy of the environment is used
        "cachedir": False,
        "proxy": "",
        "fixup": "never",
        "ffmpeg_location": str(Path(__file__).parent / "none"),  # no other program is run
    }


class _YtDlpLog:
    """Logger that forwards yt-dlp's messages to Stepline's log, which --verbose shows."""

    def debug(self, text: str) -> None:
        """Log a message. yt-dlp also raises its errors as exceptions."""
        log.info("%s", text)

    info = warning = error = debug


def extract_info(url: str, limits: LinkLimits) -> Info:
    """Return yt-dlp's metadata of a page: of a video, or of a playlist with its videos' URLs.

    Args:
        url: URL of the page.
        limits: limits of all connections together.
    """
    with limited_youtube_dl(limits, {}) as downloader:
        info: Info | None = downloader.extract_info(url, download=False)
    if info is None:
        raise MediaError("no video is found on this page; give the address of the video itself")
    return info


def fetch_page_video(
    url: str,
    info: Info,
    folder: Path,
    limits: LinkLimits,
    *,
    language: str | None,
    report: Report | None,
) -> LinkedVideo:
    """Return the video of a web page, downloaded by yt-dlp.

    Args:
        url: URL of the page.
        info: metadata from `extract_info`.
        folder: folder for the files.
        limits: limits of the whole download.
        language: language of the captions to download. None for no captions.
        report: called with the file name and the number of bytes so far. None for no reports.
    """
    if info.get("_type") in PLAYLIST_TYPES:
        raise MediaError("a playlist within a playlist; give its own address")
    if info.get("is_live"):
        raise MediaError("a live stream; give its recording")
    name = safe_name(str(info.get("title") or info.get("id") or ""))

    def report_progress(state: Info) -> None:
        if report is not None and state.get("downloaded_bytes"):
            report(name, int(state["downloaded_bytes"]))

    # yt-dlp's template of file names, in which these two signs are doubled
    template = str(folder.absolute()).replace("%", "%%").replace("$", "$$") + f"/{name}"
    has_two_files = _has_separate_tracks(info)
    if has_two_files:
        template += ".%(format_id)s"

    captions = None
    with limited_youtube_dl(
        limits, {"outtmpl": {"default": f"{template}.%(ext)s"}, "progress_hooks": [report_progress]}
    ) as downloader:
        result = downloader.process_ie_result(info, download=True)
        files = [Path(item["filepath"]) for item in result.get("requested_downloads") or ()]
        if not files or not files[0].is_file():
            raise MediaError("yt-dlp downloaded no file; --verbose shows its messages")
        if language is not None:
            captions = _fetch_captions(downloader, result, folder / name, language)

    path = files[0]
    if len(files) == 2 and has_two_files:
        path = folder / f"{name}.mkv"
        join_tracks(files[0], files[1], path)
        for file in files:
            file.unlink()
    return LinkedVideo(path=path, origin=_page_origin(url, result), page=True, captions=captions)


def _page_origin(url: str, result: Info) -> LinkOrigin:
    """Return URL, title, author, date and chapters of a page's video.

    Of the query of the URL only the id of the video stays, such as v=ID.

    Args:
        url: URL of the page.
        result: yt-dlp's metadata of the video.
    """
    chapters = []
    for chapter in result.get("chapters") or ():
        if chapter.get("title"):
            start = max(0.0, float(chapter.get("start_time") or 0.0))
            chapters.append(LinkChapter(start=start, title=str(chapter["title"])))
    keys = ("title", "uploader", "license")
    facts = {key: str(result[key]) for key in keys if result.get(key)}
    page_url = str(result.get("webpage_url") or url)
    query = [row for row in parse_qsl(urlsplit(page_url).query) if row[1] == result.get("id")]
    return LinkOrigin(
        url=display_url(page_url) + ("?" + urlencode(query) if query else ""),
        title=facts.get("title"),
        uploader=facts.get("uploader"),
        licence=facts.get("license"),
        chapters=tuple(chapters),
        upload_date=parse_date(str(result.get("upload_date") or "")),
    )


def _has_separate_tracks(info: Info) -> bool:
    """Return whether a page offers video and audio only as separate files."""
    formats = info.get("formats") or ()
    audio_codecs = {item.get("acodec") for item in formats if item.get("vcodec") != "none"}
    return audio_codecs == {"none"}


def _fetch_captions(downloader: Any, info: Info, stem: Path, language: str) -> Path:
    """Download a caption file of the page and return its path.

    Captions in the given language are preferred, then human captions to automatic ones.

    Args:
        downloader: yt-dlp's YoutubeDL object.
        info: yt-dlp's metadata of the video.
        stem: path of the caption file without suffixes.
        language: preferred language, as ISO 639-1 code.
    """
    kinds = [info.get(name) or {} for name in ("subtitles", "automatic_captions")]
    for is_foreign, is_automatic, code in sorted(
        (code.partition("-")[0] != language, number, code)
        for number, tracks in enumerate(kinds)
        for code in tracks
    ):
        if is_automatic and is_foreign:
            continue  # the site translates its own into every language
        tracks_by_format = {
            track.get("ext"): track for track in reversed(kinds[is_automatic][code])
        }
        for format in filter(tracks_by_format.get, CAPTION_FORMATS):
            track = tracks_by_format[format]
            data = (track.get("data") or "").encode()
            data = data or downloader.urlopen(track["url"]).read(MAX_CAPTION_BYTES)
            path = stem.with_name(f"{stem.name}.{code}.{format.removesuffix('3')}")
            path.write_bytes(data)
            return path
    raise MediaError(
        f"its page has no captions in {', '.join(CAPTION_FORMATS)}; leave --captions out"
    )


def safe_name(name: str) -> str:
    """Return a file name without suffix, changed so that it is valid on every file system."""
    return re.sub(r"[^\w.-]+", "-", name).strip("-.")[:MAX_NAME_CHARS].strip("-.") or "video"
