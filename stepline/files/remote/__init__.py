"""Files by URL (s3://, gs://, http://), with atomic writes and retries of transient failures."""

from stepline.files.remote.path import DEFAULT_SETTINGS, FileEntry, RemotePath

__all__ = ["DEFAULT_SETTINGS", "FileEntry", "RemotePath"]
