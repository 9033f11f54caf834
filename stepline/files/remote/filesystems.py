"""fsspec filesystems for s3://, gs:// and http://, one per process, without retries and caches.

http requests reach public addresses only, and responses are limited in size. The address is checked
at the connection, so that no DNS answer can change in between.
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
PAGE_OBJECTS = 1000  # objects per page of a listing; the maximum of S3 and of Google
GS_FIELDS = "items(name,size,etag),nextPageToken"  # of a listing, a tenth of Google's answer
MAX_SIMPLE_UPLOAD_BYTES = 5 * BYTES_PER_MIB  # from which gcsfs uploads a file in parts
MAX_LISTING_BYTES = 16 * BYTES_PER_MIB  # of a web page that lists files
MAX_FOLDER_DEPTH = 32  # of nested folders that are listed over http
RANGE_PATTERN = re.compile(r"bytes=(\d+)-(\d+)")


def filesystem_of(url: str, settings: RemoteSettings) -> Any:
    """Return the fsspec filesystem of a URL. Raises StoreError for an unknown or missing kind."""
    scheme = _scheme(url)
    if scheme not in FILESYSTEM_KINDS:
        near = difflib.get_close_matches(scheme, FILESYSTEM_KINDS, n=1, cutoff=0.5)
        kinds = ", ".join(f"{kind}://" for kind in FILESYSTEM_KINDS)
        cure = f"did you mean {near[0]}://?" if near else f"known: a path, {kinds}"
        raise StoreError(f"{scheme}://: no such kind of address; {cure}")
    return _create_filesystem(FILESYSTEM_KINDS[scheme], settings, os.getpid())


def _scheme(url: str) -> str:
    return url.partition("://")[0].lower()


# Filesystems do not survive a fork, which is why the process is a part of the key.
@lru_cache(maxsize=8)
def _create_filesystem(kind: str, settings: RemoteSettings, process: int) -> Any:  # noqa: ARG001
    import fsspec

    try:
        create = _google_storage if kind == "gs" else partial(fsspec.filesystem, kind)
        files = create(skip_instance_cache=kind != "memory", **_options(kind, settings))
    except ImportError as error:
        package = EXTRA_OF_KIND.get(kind, kind)
        raise StoreError(
            f"{kind}:// needs the package {package}; pip install -c constraints.txt 'stepline[cloud]'"
        ) from error
    if kind == "s3":
        files.retries = 1  # retry.py retries
    return files


def _google_storage(**options: Any) -> Any:
    """Return the filesystem of Google Cloud Storage by its JSON API, without gcsfs's retries.

    fsspec's gs:// first requests the kind of each bucket by gRPC, which takes a minute behind an
    HTTP proxy.
    """
    from gcsfs.core import GCSFileSystem

    class GoogleStorage(GCSFileSystem):  # type: ignore[misc]
        """gcsfs with simple uploads of small files, since its upload breaks at a line `--==0==`."""

        # Without the decorator that retries.
        _request = GCSFileSystem._request.__wrapped__

        async def _pipe_file(self, path: str, value: bytes, mode: str = "overwrite") -> None:
            if mode == "create":  # our own notes, which have no such line
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
            if source.stat().st_size < MAX_SIMPLE_UPLOAD_BYTES:
                await self._pipe_file(rpath, source.read_bytes())
            else:
                await super()._put_file(lpath, rpath)

    return GoogleStorage(**options)


def _options(kind: str, settings: RemoteSettings) -> dict[str, Any]:
    """Return the arguments of a filesystem. Its client finds credentials itself."""
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
    """Return an aiohttp client with limits on addresses, redirects and sizes of responses."""
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
        target = source.join(type(source)(redirect.response.headers.get("Location", "")))
        reason = redirect_refusal(str(source), str(target), settings)
        if reason is not None:
            redirect.response.close()
            raise StoreError(reason)

    class LimitedResponse(aiohttp.ClientResponse):
        """A response that is read only up to the allowed number of bytes."""

        async def read(self) -> bytes:
            if self._body is not None:
                return self._body
            max_bytes = self._max_bytes()
            body = bytearray()
            async for chunk in self.content.iter_any():
                body += chunk
                if len(body) > max_bytes:
                    self.close()
                    break
            if len(body) > max_bytes and self.status < 400:
                raise StoreError(
                    f"{self.host} sent more than the {max_bytes} bytes that may come; "
                    "look at that server"
                )
            self._body = bytes(body)
            return self._body

        def _max_bytes(self) -> int:
            # A range has the requested length.
            byte_range = RANGE_PATTERN.fullmatch(self.request_info.headers.get("Range", ""))
            if byte_range:
                return int(byte_range[2]) - int(byte_range[1]) + 1
            if self.content_type == "text/html":
                return MAX_LISTING_BYTES
            return settings.largest * BYTES_PER_MIB

    trace = aiohttp.TraceConfig()
    trace.on_request_redirect.append(check_redirect)
    connector = aiohttp.TCPConnector(socket_factory=checked_socket, happy_eyeballs_delay=None)
    return aiohttp.ClientSession(
        connector=connector, trace_configs=[trace], response_class=LimitedResponse, **options
    )


def host_of(url: str) -> str:
    """Return the host of an http URL, or for a bucket its scheme, such as s3://."""
    scheme = _scheme(url)
    kind = FILESYSTEM_KINDS.get(scheme, scheme)
    if kind != "http":
        return f"{kind}://"
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def redirect_refusal(source: str, target: str, settings: RemoteSettings) -> str | None:
    """Return why a redirect is refused, None if it is allowed.

    Args:
        source: URL that redirects.
        target: URL to which it redirects.
        settings: names further allowed hosts.
    """
    source_host, target_host = host_of(source), host_of(target)
    if source.startswith("https:") and target.startswith("http:"):
        return (
            f"{source_host} leads from https to http, where anyone can change it on the way; "
            "give an address that does not"
        )
    if is_redirect_allowed(source_host, target_host, settings):
        return None
    return f"{source_host} leads to another host; {host_advice(target_host)}"


def is_redirect_allowed(source: str, target: str, settings: RemoteSettings) -> bool:
    """Return whether files of one host may lead to another host.

    Args:
        source: host name that redirects or names a file.
        target: host name to which it leads.
        settings: names further allowed hosts.
    """
    return bool(target) and (target == source or not {"*", target}.isdisjoint(settings.hosts))


def host_advice(host: str) -> str:
    """Return the advice for a message: the setting that allows a host."""
    return f"where you trust it, --set 'places.hosts=[\"{host}\"]'"


def request(
    files: Any, method: str, path: str, seconds: float, *arguments: Any, **options: Any
) -> Any:
    """Return the result of a method of an fsspec filesystem.

    Raises TimeoutError if an asynchronous method takes too long, and cancels it.

    Args:
        files: the filesystem.
        method: name of the method.
        path: first argument of the method.
        seconds: timeout of an asynchronous method.
        arguments: further arguments of the method.
        options: keyword arguments of the method.
    """
    if not files.async_impl:
        return getattr(files, method)(path, *arguments, **options)
    from fsspec.asyn import sync

    async def call_with_timeout() -> Any:
        call = getattr(files, f"_{method}")(path, *arguments, **options)
        return await asyncio.wait_for(call, seconds)

    return sync(files.loop, call_with_timeout)


def list_objects(
    url: str, settings: RemoteSettings, retry_call: Callable[[Callable[[], Any]], Any]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (name relative to the URL, metadata) of every object below it.

    Args:
        url: URL of a folder or bucket.
        settings: limits and options of the requests.
        retry_call: calls a function again after transient failures. Each page is one call.
    """
    files = filesystem_of(url, settings)
    kind = FILESYSTEM_KINDS[_scheme(url)]
    root = files._strip_protocol(url).rstrip("/")

    # One listing of everything, where there are no pages.
    if kind not in ("s3", "gs"):
        seconds = settings.seconds * 10
        listing = retry_call(
            lambda: request(files, "find", root, seconds, maxdepth=MAX_FOLDER_DEPTH, detail=True)
        )
        for name, metadata in sorted(listing.items()):
            yield name.removeprefix(root).lstrip("/"), metadata
        return

    # A bucket, page by page.
    bucket, _, prefix = root.partition("/")
    if prefix:
        prefix = f"{prefix}/"
    read_page = _read_s3_page if kind == "s3" else _read_gs_page
    token: str | None = ""
    while token is not None:
        objects, token = retry_call(
            partial(read_page, files, settings.seconds, bucket, prefix, token)
        )
        for key, metadata in objects:
            if not key.endswith("/"):
                yield key.removeprefix(prefix), metadata


# (key, metadata) of objects, and the token of the next page
_Page = tuple[list[tuple[str, dict[str, Any]]], str | None]


def _read_s3_page(files: Any, seconds: float, bucket: str, prefix: str, token: str) -> _Page:
    query = {"Bucket": bucket, "Prefix": prefix, "MaxKeys": PAGE_OBJECTS}
    if token:
        query["ContinuationToken"] = token
    page = request(files, "call_s3", "list_objects_v2", seconds, **query)
    objects = [(metadata["Key"], metadata) for metadata in page.get("Contents", ())]
    return objects, page["NextContinuationToken"] if page.get("IsTruncated") else None


def _read_gs_page(files: Any, seconds: float, bucket: str, prefix: str, token: str) -> _Page:
    query = {
        "prefix": prefix,
        "maxResults": PAGE_OBJECTS,
        "pageToken": token or None,
        "fields": GS_FIELDS,
        "json_out": True,
    }
    page = request(files, "call", "GET", seconds, "b/{}/o", bucket, **query)
    objects = [(metadata["name"], metadata) for metadata in page.get("items", ())]
    return objects, page.get("nextPageToken")
