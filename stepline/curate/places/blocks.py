"""A file elsewhere as one that is open here, read by ranges."""

import io
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stepline.curate.places.place import Place

MIB = 2**20


class Blocks(io.RawIOBase):
    """The bytes of a place, as `io.BufferedReader` wants them. size: bytes of the whole file."""

    def __init__(self, place: "Place", size: int) -> None:
        self._place, self._size, self._at = place, size, 0

    def readable(self) -> bool:
        """Tell that it can be read."""
        return True

    def seekable(self) -> bool:
        """Tell that it can be read from any byte."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go to a byte and return which."""
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def tell(self) -> int:
        """Return the byte that is read next."""
        return self._at

    def readall(self) -> bytes:
        """Return all that is left."""
        return b"".join(iter(lambda: self.read(self._place.settings.block * MIB), b""))

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer as far as the file goes; return how many bytes came."""
        end = min(self._size, self._at + len(buffer))
        if end <= self._at:
            return 0
        data = self._place.read(self._at, end)
        buffer[: len(data)] = data
        self._at = end
        return len(data)
