def file_bytes(folder, keep=lambda path: True):
    """Name -> bytes of all files in and below a folder, or of those to keep."""
    paths = (path for path in sorted(folder.rglob("*")) if path.is_file() and keep(path))
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}
