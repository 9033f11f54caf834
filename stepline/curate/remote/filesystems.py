"""fsspec's filesystems: one a process and kind, without retries and caches of their own; requests have time limits."""

import asyncio
import difflib
import os
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from typing import Any

from stepline.curate.settings import RemoteSettings
from stepline.errors import StoreError

KINDS = {"s3": "s3", "s3a": "s3", "gs": "gs", "gcs": "gs", "http": "http", "https": "http", "memory": "memory"}
EXTRA = {"s3": "s3fs", "gs": "gcsfs", "http": "aiohttp"}  # packages of the extra `cloud`
PAGE = 1000  # objects of a listing that one request gives; S3's most


def filesystem(url: str, settings: RemoteSettings) -> Any:
    """Return the filesystem of a URL. Raises StoreError for a kind that is unknown or not installed."""
    scheme = url.partition("://")[0].lower()
    if scheme not in KINDS:
        near = difflib.get_close_matches(scheme, KINDS, n=1, cutoff=0.5)
        cure = f"did you mean {near[0]}://?" if near else f"known: a path, {', '.join(f'{kind}://' for kind in KINDS)}"
        raise StoreError(f"{scheme}://: no such kind of address; {cure}")
    return _create(KINDS[scheme], settings, os.getpid())


@lru_cache(maxsize=8)
def _create(kind: str, settings: RemoteSettings, process: int) -> Any:  # noqa: ARG001 (none survives a fork)
    import fsspec

    try:
        created = fsspec.filesystem(kind, skip_instance_cache=kind != "memory", **_options(kind, settings))
    except ImportError as error:
        package = EXTRA.get(kind, kind)
        raise StoreError(f"{kind}:// needs the package {package}; pip install 'stepline[cloud]'") from error
    if kind == "s3":
        created.retries = 1  # ours alone count
    return created


def _options(kind: str, settings: RemoteSettings) -> dict[str, Any]:
    """Return how a filesystem is created; credentials are found by the clients themselves, as their own tools do."""
    if kind == "s3":
        limits = {"connect_timeout": settings.seconds, "read_timeout": settings.seconds}
        return {
            "anon": settings.anonymous,
            "endpoint_url": settings.endpoint,
            "use_listings_cache": False,
            "config_kwargs": {**limits, "retries": {"total_max_attempts": 1}},
        }
    if kind == "gs":
        options = {"token": "anon"} if settings.anonymous else {}
        return {**options, "endpoint_url": settings.endpoint, "use_listings_cache": False}
    return {"use_listings_cache": False} if kind == "http" else {}


def request(files: Any, verb: str, first: str, seconds: float, *rest: Any, **options: Any) -> Any:
    """Return what a filesystem's method answers within some seconds; else TimeoutError, and the request is dropped."""
    if not files.async_impl:
        return getattr(files, verb)(first, *rest, **options)
    from fsspec.asyn import sync

    async def limited() -> Any:
        return await asyncio.wait_for(getattr(files, f"_{verb}")(first, *rest, **options), seconds)

    return sync(files.loop, limited)


def list_objects(
    url: str, settings: RemoteSettings, attempt: Callable[[Callable[[], Any]], Any]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (name relative to the URL, what is known) of every object below it; S3 by pages, each tried on its own."""
    files = filesystem(url, settings)
    root = files._strip_protocol(url).rstrip("/")
    if KINDS[url.partition("://")[0].lower()] != "s3":
        found = attempt(lambda: request(files, "find", root, settings.seconds * 10, detail=True))
        for name, about in sorted(found.items()):
            yield name.removeprefix(root).lstrip("/"), about
        return
    bucket, _, prefix = root.partition("/")
    query = {"Bucket": bucket, "Prefix": f"{prefix}/" if prefix else "", "MaxKeys": PAGE}
    while True:
        page = attempt(partial(request, files, "call_s3", "list_objects_v2", settings.seconds, **query))
        for about in page.get("Contents", ()):
            name = about["Key"].removeprefix(query["Prefix"])
            if not name.endswith("/"):
                yield name, about
        if not page.get("IsTruncated"):
            return
        query["ContinuationToken"] = page["NextContinuationToken"]
