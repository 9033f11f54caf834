"""Text files opened for reading: plain or gzip, in bounded pieces, errors told in one line."""

import gzip
import lzma
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from stepline.errors import DatasetError

DAMAGE = (OSError, EOFError, zlib.error, lzma.LZMAError)  # what a cut or broken file raises
ENDINGS = (".gz",)


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """Yield a file's bytes, unpacked where its name ends in .gz. Raises DatasetError where it cannot be opened."""
    try:
        raw = path.open("rb")
    except OSError as error:
        raise DatasetError(f"{path}: cannot be read ({error.strerror}); give a file that can be") from error
    with raw, gzip.GzipFile(fileobj=raw) if path.suffix in ENDINGS else raw as file:
        yield cast(BinaryIO, file)


def stem(path: Path) -> str:
    """Return a file's name without its endings: recipes for recipes.json.gz."""
    name = path.name
    while (ending := Path(name).suffix) and len(ending) <= 9 and Path(name).stem:
        name = Path(name).stem
    return name


def form(path: Path) -> str:
    """Return the ending that tells a file's form, .gz aside: ".json" for recipes.json.gz."""
    return (Path(path.stem) if path.suffix in ENDINGS else path).suffix.lower()
