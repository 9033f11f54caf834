"""Ids of YouTube videos, with and without the "v_" that ActivityNet's and PDVC's files put before
them."""

from collections.abc import Collection

ID_PREFIX = "v_"
ID_CHARS = 11  # of a YouTube id, which may itself begin with "v_"
PREFIXED_ID_CHARS = ID_CHARS + len(ID_PREFIX)


def plain_id(video: str) -> str:
    """Return an id as YouTube has it, without the prefix that some files put before its eleven
    letters."""
    return video.removeprefix(ID_PREFIX) if len(video) == PREFIXED_ID_CHARS else video


def shared_prefix(ids: Collection[str]) -> str:
    """Return the prefix where all ids carry it, else "".

    They do where some are a YouTube id with it, and none is a bare YouTube id.
    """
    lengths = set(map(len, ids))
    if PREFIXED_ID_CHARS not in lengths or ID_CHARS in lengths:
        return ""
    if all(id.startswith(ID_PREFIX) for id in ids):
        return ID_PREFIX
    return ""
