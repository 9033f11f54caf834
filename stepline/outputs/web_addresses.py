"""Links of outputs: to files, pictures inside a page, and addresses on the web."""

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote, urljoin, urlsplit

from stepline.errors import SettingsError

WEB_SCHEMES = ("http", "https")
# in every page, which marks it as written by Stepline
PAGE_MARK = '<meta name="generator" content="Stepline">'
PREFIX_ENDS = ("/", "=")  # a file name is joined to such a prefix without another slash


def media_link(path: str) -> str:
    """Return a file's path as a quoted link, which no browser reads as another scheme or host."""
    return Path(path).as_uri() if path.startswith("/") else quote(path, safe="/")


def picture_link(jpeg: bytes) -> str:
    """Return a JPEG as a data URL."""
    return f"data:image/jpeg;base64,{base64.b64encode(jpeg).decode()}"


@dataclass(frozen=True)
class WebAddresses:
    """The web addresses at which outputs and videos are published. Without them links are relative.

    Attributes:
        base: http(s) address of the folder of outputs. None: links stay relative.
        media: the part of a video's address before its file name. None: videos are addressed from
            `base`.

    Raises SettingsError for a base that is not an http(s) address, and for a prefix that is empty or
    of another scheme.
    """

    base: str | None = None
    media: str | None = None

    def __post_init__(self) -> None:
        if self.base is not None:
            parts = urlsplit(self.base)
            if not is_address(self.base) or not parts.hostname:
                cure = "give one such as https://example.org/steps/"
                raise SettingsError(f"--base-url {self.base!r}: is not an http(s) address; {cure}")
            if parts.query or parts.fragment:
                cure = "give the address of the folder alone"
                raise SettingsError(f"--base-url {self.base!r}: holds more than a folder; {cure}")
        if self.media is not None and not self.media.strip():
            cure = "give the part of the videos' addresses before their file names"
            raise SettingsError(f"--media-url {self.media!r}: is empty; {cure}")
        if self.media is not None and urlsplit(self.media).scheme not in ("", *WEB_SCHEMES):
            cure = "give one such as https://example.org/videos/, or a path such as ../videos/"
            raise SettingsError(f"--media-url {self.media!r}: is not an http(s) address; {cure}")

    def absolute(self, link: str) -> str:
        """Return a relative link as a web address. The link is unchanged if `base` is None."""
        if self.base is None:
            return link
        # Without its slash, urljoin would replace the last folder.
        return urljoin(f"{self.base.rstrip('/')}/", link)

    def video(self, path: str | None) -> str | None:
        """Return the web address of a video, None if the path leads above the server's root.

        path: path of the video, relative to the folder of the outputs.
        """
        if path is None:
            return None
        if self.media is not None:
            # Of a path only the name, behind the prefix.
            name = quote(path.rpartition("/")[2])
            if self.media.endswith(PREFIX_ENDS):
                return self.media + name
            return f"{self.media}/{name}"
        if self.base is not None:
            # no address leads above the root of a server
            folders = urlsplit(self.base).path.strip("/")
            depth = len(folders.split("/")) if folders else 0
            parts = path.split("/")
            if path.startswith("/") or parts.count("..") > depth:
                return None
        return self.absolute(media_link(path))


def is_address(link: str) -> bool:
    """Whether a link is an http(s) address."""
    return urlsplit(link).scheme in WEB_SCHEMES


@dataclass(frozen=True)
class RecordLinks:
    """The links in the JSON-LD of a record.

    Attributes:
        page: link of the HTML page, None without one.
        video: link of the video, None without one.
        pictures: link of each step's picture, by the step's id.
    """

    page: str | None = None
    video: str | None = None
    pictures: Mapping[str, str] = field(default_factory=dict)

    @property
    def image(self) -> str | None:
        """The link of the last picture, which is nearest to the result."""
        links = list(self.pictures.values())
        return None if not links else links[-1]

    @property
    def is_absolute(self) -> bool:
        """Whether every link is an http(s) address."""
        links = list(self.pictures.values())
        links += filter(None, (self.page, self.video))
        return all(map(is_address, links))

    def step_link(self, number: int) -> str | None:
        """Return the link of a step in the page. number: number of the step, from 1 on."""
        if self.page is None:
            return None
        return f"{self.page}#step-{number}"

    def time_link(self, start: float, end: float) -> str | None:
        """Return a link to a span of seconds, in the page or else in the video.

        The value is None if there is neither.
        """
        if self.page is not None:
            return f"{self.page}?t={start:g}"
        if self.video is not None:
            return f"{self.video}#t={start:g},{end:g}"
        return None
