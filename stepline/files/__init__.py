"""Files on disk and by URL: atomic writes, locks, append logs, parsers."""
