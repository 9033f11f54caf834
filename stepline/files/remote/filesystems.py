"""fsspec filesystems: one per process and kind, without own retries and caches, with limits.

http requests reach public addresses only. The address is checked at the connection, so that no DNS
answer can change in between.
"""

import asyncio
import difflib
import io
import mimetypes
import os
import re
import socket
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from stepline.errors import StoreError
from stepline.files.remote.addresses import is_public
from stepline.files.remote.settings import BYTES_PER_MIB, RemoteSettings

FILESYSTEM_KINDS = {
    "s3": "s3",
    "s3a": "s3",
    "gs": "gs",
    "gcs": "gs",
    "http": "http",
    "https": "http",
    "memory": "memory",
}
EXTRA_OF_KIND = {"s3": "s3fs", "gs": "gcsfs", "http": "aiohttp"}  # packages of the extra `cloud`
PAGE_OBJECTS = 1000  # objects of a listing that one request gives; the most of S3 and of Google
GS_FIELDS = "items(name,size,etag),nextPageToken"  # of a listing, a tenth of what Google would tell
MAX_WHOLE_BYTES = 5 * BYTES_PER_MIB  # bytes from which gcsfs uploads a file in parts
MAX_LISTING_BYTES = 16 * BYTES_PER_MIB  # bytes of a page that lists files
MAX_FOLDER_DEPTH = 32  # folders in folders that are listed over http
RANGE_PATTERN = re.compile(r"bytes=(\d+)-(\d+)")


def filesystem(url: str, settings: RemoteSettings) -> Any:
    """Return the filesystem of a URL. Raises StoreError for a kind that is unknown or not
    installed.
    """
    scheme = _scheme(url)
    if scheme not in FILESYSTEM_KINDS:
        near = difflib.get_close_matches(scheme, FILESYSTEM_KINDS, n=1, cutoff=0.5)
        kinds = ", ".join(f"{kind}://" for kind in FILESYSTEM_KINDS)
        cure = f"did you mean {near[0]}://?" if near else f"known: a path, {kinds}"
        raise StoreError(f"{scheme}://: no such kind of address; {cure}")
    return _create(FILESYSTEM_KINDS[scheme], settings, os.getpid())


def _scheme(url: str) -> str:
    return url.partition("://")[0].lower()


# None survives a fork, which is why the process is a part of its key.
@lru_cache(maxsize=8)
def _create(kind: str, settings: RemoteSettings, process: int) -> Any:  # noqa: ARG001
    import fsspec

    try:
        create = _google_storage if kind == "gs" else partial(fsspec.filesystem, kind)
        files = create(skip_instance_cache=kind != "memory", **_options(kind, settings))
    except ImportError as error:
        package = EXTRA_OF_KIND.get(kind, kind)
        raise StoreError(
            f"{kind}:// needs the package {package}; pip install 'stepline[cloud]'"
        ) from error
    if kind == "s3":
        files.retries = 1  # ours alone count
    return files


def _google_storage(**options: Any) -> Any:
    """Return Google Cloud Storage by its JSON API, without gcsfs's own retries.

    fsspec's gs:// asks by gRPC for the kind of each bucket, which takes a minute behind an HTTP
    proxy.
    """
    from gcsfs.core import GCSFileSystem

    class GoogleStorage(GCSFileSystem):  # type: ignore[misc]
        """gcsfs with simple uploads of small files, since its own upload breaks at a line
        `--==0==`.
        """

        # Without the decorator that tries again.
        _request = GCSFileSystem._request.__wrapped__

        async def _pipe_file(self, path: str, value: bytes, mode: str = "overwrite") -> None:
            if mode == "create":  # notes of our own, which have no such line
                await super()._pipe_file(path, value, mode=mode)
                return
            bucket, key, _ = self.split_path(path)
            address = f"{self._location}/upload/storage/v1/b/{{}}/o"
            query = {"uploadType": "media", "name": key}
            content_type = mimetypes.guess_type(key)[0] or "application/octet-stream"
            headers = {"Content-Type": content_type}
            file = io.BytesIO(value)
            await self._call("POST", address, bucket, headers=headers, data=file, **query)

        async def _put_file(self, lpath: str, rpath: str) -> None:
            source = Path(lpath)
            if source.stat().st_size < MAX_WHOLE_BYTES:
                await self._pipe_file(rpath, source.read_bytes())
            else:
                await super()._put_file(lpath, rpath)

    return GoogleStorage(**options)


def _options(kind: str, settings: RemoteSettings) -> dict[str, Any]:
    """Return the options of a filesystem. The clients find credentials themselves."""
    if kind == "s3":
        limits = {"connect_timeout": settings.seconds, "read_timeout": settings.seconds}
        return {
            "anon": settings.anonymous,
            "endpoint_url": settings.endpoint,
            "use_listings_cache": False,
            "config_kwargs": {**limits, "retries": {"total_max_attempts": 1}},
        }
    if kind == "gs":
        token = {"token": "anon"} if settings.anonymous else {}
        return {**token, "endpoint_url": settings.endpoint, "use_listings_cache": False}
    if kind == "http":
        return {"use_listings_cache": False, "get_client": partial(_http_client, settings)}
    return {}


async def _http_client(settings: RemoteSettings, **options: Any) -> Any:
    """Return an aiohttp client whose connections, redirects and responses keep the limits."""
    import aiohttp

    def checked_socket(address: Any) -> socket.socket:
        family, kind, protocol, _, (host, *_) = address
        if not (settings.private or is_public(host)):
            raise StoreError(
                f"{host} is a private address; where you trust it, --set places.private=true"
            )
        return socket.socket(family, kind, protocol)

    async def check_redirect(_: Any, __: Any, redirect: Any) -> None:
        source = redirect.url
        location = redirect.response.headers.get("Location", "")
        target = source.join(type(source)(location))
        reason = redirect_refusal(str(source), str(target), settings)
        if reason is not None:
            redirect.response.close()
            raise StoreError(reason)

    class LimitedResponse(aiohttp.ClientResponse):
        """A response that is read only up to the requested bytes."""

        async def read(self) -> bytes:
            if self._body is not None:
                return self._body
            limit = self._limit()
            body = bytearray()
            async for part in self.content.iter_any():
                body += part
                if len(body) > limit:
                    self.close()
                    break
            if len(body) > limit and self.status < 400:
                what = f"{self.host} sent more than the {limit} bytes that may come"
                raise StoreError(f"{what}; look at that server")
            self._body = bytes(body)
            return self._body

        def _limit(self) -> int:
            """Return the maximal number of bytes."""
            header = self.request_info.headers.get("Range", "")
            # A range is as long as was asked for.
            byte_range = RANGE_PATTERN.fullmatch(header)
            if byte_range:
                return int(byte_range[2]) - int(byte_range[1]) + 1
            if self.content_type == "text/html":
                return MAX_LISTING_BYTES
            return settings.largest * BYTES_PER_MIB

    # The client, with these three checks.
    trace = aiohttp.TraceConfig()
    trace.on_request_redirect.append(check_redirect)
    connector = aiohttp.TCPConnector(socket_factory=checked_socket, happy_eyeballs_delay=None)
    return aiohttp.ClientSession(
        connector=connector, trace_configs=[trace], response_class=LimitedResponse, **options
    )


def host_of(url: str) -> str:
    """Return the host of an http URL. For a bucket return its scheme, such as s3://."""
    scheme = _scheme(url)
    kind = FILESYSTEM_KINDS.get(scheme, scheme)
    if kind != "http":
        return f"{kind}://"
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def redirect_refusal(source: str, target: str, settings: RemoteSettings) -> str | None:
    """Return why a redirect is refused, or None for an allowed one."""
    host, other = host_of(source), host_of(target)
    if source.startswith("https:") and target.startswith("http:"):
        what = f"{host} leads from https to http, where anyone can change it on the way"
        return f"{what}; give an address that does not"
    if is_redirect_allowed(host, other, settings):
        return None
    return f"{host} leads to another host; {allow_host(other)}"


def is_redirect_allowed(source: str, target: str, settings: RemoteSettings) -> bool:
    """Return whether a redirect from one host to another is allowed."""
    return bool(target) and (target == source or not {"*", target}.isdisjoint(settings.hosts))


def allow_host(host: str) -> str:
    """Return the advice how to allow a host."""
    return f"where you trust it, --set 'places.hosts=[\"{host}\"]'"


def request(files: Any, verb: str, first: str, seconds: float, *rest: Any, **options: Any) -> Any:
    """Return the result of a filesystem method. Raises TimeoutError and cancels it after some
    seconds.
    """
    if not files.async_impl:
        return getattr(files, verb)(first, *rest, **options)
    from fsspec.asyn import sync

    async def limited() -> Any:
        return await asyncio.wait_for(getattr(files, f"_{verb}")(first, *rest, **options), seconds)

    return sync(files.loop, limited)


def list_objects(
    url: str, settings: RemoteSettings, attempt: Callable[[Callable[[], Any]], Any]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (name relative to the URL, info) of every object below it. Each page is retried alone."""
    files = filesystem(url, settings)
    kind = FILESYSTEM_KINDS[_scheme(url)]
    root = files._strip_protocol(url).rstrip("/")

    # One listing of everything, where there are no pages.
    if kind not in ("s3", "gs"):
        seconds = settings.seconds * 10
        listing = attempt(
            lambda: request(files, "find", root, seconds, maxdepth=MAX_FOLDER_DEPTH, detail=True)
        )
        for name, about in sorted(listing.items()):
            yield name.removeprefix(root).lstrip("/"), about
        return

    # A bucket, page by page.
    bucket, _, prefix = root.partition("/")
    if prefix:
        prefix = f"{prefix}/"
    list_page = _s3_page if kind == "s3" else _gs_page
    page = partial(list_page, files, settings.seconds, bucket, prefix)
    following: str | None = ""
    while following is not None:
        entries, following = attempt(partial(page, following))
        for key, about in entries:
            if not key.endswith("/"):
                yield key.removeprefix(prefix), about


# (key, what is known) of objects, and where the next one is
_Page = tuple[list[tuple[str, dict[str, Any]]], str | None]


def _s3_page(files: Any, seconds: float, bucket: str, prefix: str, token: str) -> _Page:
    query = {"Bucket": bucket, "Prefix": prefix, "MaxKeys": PAGE_OBJECTS}
    if token:
        query["ContinuationToken"] = token
    page = request(files, "call_s3", "list_objects_v2", seconds, **query)
    entries = [(about["Key"], about) for about in page.get("Contents", ())]
    return entries, page["NextContinuationToken"] if page.get("IsTruncated") else None


def _gs_page(files: Any, seconds: float, bucket: str, prefix: str, token: str) -> _Page:
    query = {
        "prefix": prefix,
        "maxResults": PAGE_OBJECTS,
        "pageToken": token or None,
        "fields": GS_FIELDS,
        "json_out": True,
    }
    page = request(files, "call", "GET", seconds, "b/{}/o", bucket, **query)
    entries = [(about["name"], about) for about in page.get("items", ())]
    return entries, page.get("nextPageToken")
