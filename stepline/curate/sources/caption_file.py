"""HowTo100M's captions of all videos in one JSON object: where in the file each video's lie, and a digest of them.

The file is read once, from its beginning to its end, with one video in memory; captions are then parts of the file.
"""

import hashlib
import io

import numpy as np

from stepline.curate.places import Place
from stepline.curate.sources.files import Stamped
from stepline.errors import DatasetError
from stepline.sieve_swap.json_stream import Damage, Reader

BYTES = "latin-1"  # a character for each byte: what the structure of JSON needs, and offsets in bytes
DIGEST = 8  # bytes of a digest that are kept
MARK = b"\xef\xbb\xbf"  # of UTF-8, which some editors put first


class CaptionFile:
    """Captions by video id. Raises DatasetError for a file that is damaged, compressed or of another form."""

    def __init__(self, place: Place) -> None:
        self._place = place
        keys: list[bytes] = []
        spans: list[tuple[int, int]] = []
        digests: list[bytes] = []
        with place.open() as file:
            offset = len(MARK) if file.read(len(MARK)) == MARK else 0
            file.seek(offset)
            reader = Reader(io.TextIOWrapper(file, encoding=BYTES, newline=""))
            for key, value in reader.members():
                if isinstance(value, Damage):
                    cure = "unpack it where it is compressed, else download it again"
                    raise DatasetError(f"{place.shown}: {f'{key} '.lstrip()}{value.reason}; {cure}")
                start, end = reader.last
                keys.append(key.encode(BYTES))
                spans.append((offset + start, offset + end))
                digests.append(hashlib.sha256(reader.source.encode(BYTES)).digest()[:DIGEST])
        order = np.argsort(np.array(keys or [b""], "S"), kind="stable")[: len(keys)]
        self._keys = np.array(keys or [b""], "S")[order]
        self._spans = np.array(spans, np.int64).reshape(-1, 2)[order]
        self._digests = [digests[row] for row in order]

    def __len__(self) -> int:
        return len(self._keys)

    def find(self, id: str) -> Stamped | None:
        """Return the part of the file that holds a video's captions; None where it has none."""
        wanted = id.encode()
        row = int(np.searchsorted(self._keys, wanted))
        if row == len(self._keys) or self._keys[row] != wanted:
            return None
        start, end = self._spans[row]
        return Stamped(f"{self._place.url}#bytes={start}-{end}/{id}.json", self._digests[row].hex())
