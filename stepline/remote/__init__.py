"""Files anywhere by URL, whole or not at all, with second tries of what may work the next time."""

from stepline.remote.path import DEFAULTS, FileEntry, RemotePath, fingerprint_of

__all__ = ["DEFAULTS", "FileEntry", "RemotePath", "fingerprint_of"]
