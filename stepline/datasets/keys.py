"""Ids as PDVC and densevid_eval write them: "v_" before every YouTube id."""

from collections.abc import Collection

PREFIX = "v_"
YOUTUBE = 11  # characters of a YouTube id, which may itself begin with "v_"


def prefixed(ids: Collection[str]) -> bool:
    """Tell whether all ids carry the prefix: some are a YouTube id with it, and none is a bare YouTube id."""
    lengths = {len(id) for id in ids}
    known = YOUTUBE + len(PREFIX) in lengths and YOUTUBE not in lengths
    return known and all(id.startswith(PREFIX) for id in ids)
