"""Files anywhere by URL, whole or not at all, with second tries of what may work the next time."""

from stepline.files.remote.path import DEFAULT_SETTINGS, FileEntry, RemotePath, fingerprint_of

__all__ = ["DEFAULT_SETTINGS", "FileEntry", "RemotePath", "fingerprint_of"]
