"""yt-dlp under limits: its connections are Stepline's. It starts no other program of this machine,
but for the interpreter of a page's script that some of its extractors need.

    with limited_youtube_dl(LinkLimits(settings), {}) as downloader:
        downloader.extract_info("https://example.org/page", download=False)
"""

import functools
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

from stepline.errors import MediaError, missing_extra
from stepline.media.http import LinkLimits, connection_class
from stepline.media.settings import LinkSettings

log = logging.getLogger(__name__)

Info: TypeAlias = dict[str, Any]  # what yt-dlp says of a page

# How a video may come. By others yt-dlp runs programs of this machine (rtmpdump, ffmpeg), which
# look at no address.
VIDEO_PROTOCOLS = frozenset({"http", "https", "m3u8", "m3u8_native", "http_dash_segments"})
PROTOCOL_FILTER = f"[protocol~='^({'|'.join(sorted(VIDEO_PROTOCOLS))})$']"
MAX_PROTOCOL_CHARS = 40  # in a message


@contextmanager
def limited_youtube_dl(limits: LinkLimits, more: Info) -> Iterator[Any]:
    """Yield a YoutubeDL whose connections are under limits. more: options of its own.

    Raises MediaError where yt-dlp is not installed.
    """
    try:
        import yt_dlp
        from yt_dlp.extractor import openload
        from yt_dlp.globals import plugin_dirs
    except ModuleNotFoundError as error:
        raise MediaError(
            f"a page, which {missing_extra(error)}; or give the video's own address"
        ) from error
    # Plugins would run other people's code in this process.
    plugin_dirs.value = []
    # PhantomJS, a browser that some extractors start, looks at no address either.
    openload.check_executable = lambda *_: False
    limited_class = _limited_class(yt_dlp.YoutubeDL, limits)
    with limited_class(_options(limits.settings) | more) as downloader:
        yield downloader


def _limited_class(youtube_dl: Any, limits: LinkLimits) -> Any:
    """Return the class of a YoutubeDL under limits."""
    from yt_dlp.networking._urllib import HTTPHandler, UrllibRH
    from yt_dlp.utils import determine_protocol

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
            # Only what http.py can unpack.
            headers.setdefault("Accept-Encoding", "gzip, deflate")

    class LimitedYoutubeDL(youtube_dl):  # type: ignore[misc]
        @functools.cached_property
        def _request_director(self) -> Any:
            # No other handler: those of curl and requests make their own connections.
            return self.build_request_director([LimitedRH])

        def dl(self, name: str, info: Info, *arguments: Any, **options: Any) -> Any:
            """Fetch a file, unless another program would."""
            protocol = str(determine_protocol(info))
            if not VIDEO_PROTOCOLS.issuperset(protocol.split("+")):
                way = repr(protocol[:MAX_PROTOCOL_CHARS])
                raise MediaError(f"the video comes by {way}, which is not fetched; give another")
            return super().dl(name, info, *arguments, **options)

    return LimitedYoutubeDL


def _options(settings: LinkSettings) -> Info:
    most = f"[height<=?{settings.height}]"
    # What cannot be fetched is not chosen, and where there is nothing else, `dl` says so.
    ours = PROTOCOL_FILTER
    return {
        # the last but one: picture and sound as two files, or only one of them
        "format": f"b{ours}{most}/b{ours}/((bv{ours}{most}/bv{ours}),ba{ours})/b",
        "extract_flat": "in_playlist",
        "noplaylist": True,
        "playlistend": settings.most,
        "retries": settings.attempts,
        "fragment_retries": settings.attempts,
        "socket_timeout": settings.seconds,
        # a video that lacks a piece is an error, not a shorter video
        "skip_unavailable_fragments": False,
        "continuedl": True,
        "logger": _YtDlpLog(),
        "noprogress": True,
        "color": "never",
        # nothing is kept elsewhere, and no proxy of the environment is used
        "cachedir": False,
        "proxy": "",
        "fixup": "never",
        "ffmpeg_location": str(Path(__file__).parent / "none"),  # no other program is run
    }


class _YtDlpLog:
    """What yt-dlp says, for --verbose."""

    def debug(self, text: str) -> None:
        """Take a line. What is wrong comes as an exception too."""
        log.info("%s", text)

    info = warning = error = debug
