"""Links of outputs: to files, pictures inside a page, and addresses on the web."""

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote, urljoin, urlsplit

from stepline.errors import SettingsError

WEB_SCHEMES = ("http", "https")
# in every page, by which it is known again
PAGE_MARK = '<meta name="generator" content="Stepline">'
PREFIX_ENDS = ("/", "=")  # of a prefix to which a file name is joined as it is


def media_link(path: str) -> str:
    """Return a file's path as a link that can never be read as another scheme or host."""
    return Path(path).as_uri() if path.startswith("/") else quote(path, safe="/")


def picture_link(jpeg: bytes) -> str:
    """Return a JPEG as a link that holds it."""
    return f"data:image/jpeg;base64,{base64.b64encode(jpeg).decode()}"


@dataclass(frozen=True)
class WebAddresses:
    """base: the address of the folder of outputs. media: what is before a video's file name.

    None where no one says: then links are relative to the folder. Raises SettingsError for a base
    that is not an address of http(s), and for an empty prefix.
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

    def absolute(self, link: str) -> str:
        """Return a link from the folder as an address, or as it is where no base is known."""
        if self.base is None:
            return link
        # Without its slash, urljoin would replace the last folder.
        return urljoin(f"{self.base.rstrip('/')}/", link)

    def video(self, path: str | None) -> str | None:
        """Return the address of a video.

        path: as seen from the folder. None without one, and for one that is above the root of the
        base, where no address leads.
        """
        if path is None:
            return None
        if self.media is not None:
            # Of a path only the name, behind the prefix.
            _, _, file_name = path.rpartition("/")
            name = quote(file_name)
            if self.media.endswith(PREFIX_ENDS):
                return self.media + name
            return f"{self.media}/{name}"
        if self.base is not None:
            # no address leads above the root of a server
            folders = urlsplit(self.base).path.strip("/")
            depth = len(folders.split("/"))
            if not folders:
                depth = 0
            parts = path.split("/")
            if path.startswith("/") or parts.count("..") > depth:
                return None
        return self.absolute(media_link(path))


def is_address(link: str) -> bool:
    """Tell whether a link is an address of http(s)."""
    return urlsplit(link).scheme in WEB_SCHEMES


@dataclass(frozen=True)
class RecordLinks:
    """Links of what JSON-LD names.

    page: of the page of the steps, "" for the one that holds it, None without one.
    video: of the file.
    pictures: of each step's, by the step's id.
    """

    page: str | None = None
    video: str | None = None
    pictures: Mapping[str, str] = field(default_factory=dict)

    @property
    def image(self) -> str | None:
        """The picture of the last step that has one, which comes nearest to the result."""
        links = list(self.pictures.values())
        return None if not links else links[-1]

    @property
    def is_absolute(self) -> bool:
        """Whether every link is an address of its own."""
        links = list(self.pictures.values())
        links += filter(None, (self.page, self.video))
        return all(map(is_address, links))

    def step(self, number: int) -> str | None:
        """Return the link of a step, from 1 on, in the page."""
        if self.page is None:
            return None
        return f"{self.page}#step-{number}"

    def moment(self, start: float, end: float) -> str | None:
        """Return the link of seconds: in the page, else in the video's file."""
        if self.page is not None:
            return f"{self.page}?t={start:g}"
        if self.video is not None:
            return f"{self.video}#t={start:g},{end:g}"
        return None
