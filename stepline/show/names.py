"""File names from ids: safe on every file system, and never the same for two ids."""

import hashlib
import re
import unicodedata

SAFE = re.compile(r"[\w-][\w.-]*")  # letters and digits of any script; no separators, no hidden files
LONGEST = 120  # bytes, which leaves room for the longest suffix under the 255 that file systems allow
MARK = "~"  # not in SAFE: a name with a digest can never be some other id's plain name
DIGEST = 10  # hex digits of the id's sha256


def safe_stem(name: str) -> str:
    """Return `name` itself where it is safe as a file name, else what is safe of it, `~` and a digest of all of it."""
    if SAFE.fullmatch(name) and unicodedata.normalize("NFC", name) == name and len(name.encode()) <= LONGEST:
        return name
    digest = hashlib.sha256(name.encode(errors="surrogateescape")).hexdigest()[:DIGEST]
    kept = re.sub(r"[^\w.-]+", "-", unicodedata.normalize("NFC", name)).strip("-.")
    room = LONGEST - len(MARK) - DIGEST
    return kept.encode()[:room].decode(errors="ignore") + MARK + digest
