"""Files on disk and by URL: whole or not at all, locked, appended, read back."""
