"""Digests of files and folders (sha256 in hexadecimal), and 64-bit hashes of texts."""

import hashlib
from pathlib import Path

from stepline.errors import SettingsError


def sha256(path: Path) -> str:
    """Return the sha256 of a file in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def hash_text(text: str) -> int:
    """Return the 64-bit BLAKE2b hash of a text."""
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def file_digest(path: Path | None) -> str | None:
    """Return the hexadecimal sha256 of a file, or of all names and contents in a folder.

    The path None gives None. Raises SettingsError if nothing exists at the path.
    """
    if path is None:
        return None
    if path.is_file():
        return sha256(path)
    if not path.is_dir():
        raise SettingsError(f"{path}: a setting names it, and it is not there; correct the path")
    # Names count too, so that a renamed file makes another digest.
    files = sorted(file for file in path.rglob("*") if file.is_file())
    lines = "".join(f"{file.relative_to(path).as_posix()} {sha256(file)}\n" for file in files)
    return hashlib.sha256(lines.encode()).hexdigest()
