import io
import tarfile


def file_bytes(folder, keep=lambda path: True):
    """Name -> bytes of all files in and below a folder, or of those to keep."""
    paths = (path for path in sorted(folder.rglob("*")) if path.is_file() and keep(path))
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def tar_bytes(files, mode="w"):
    """The bytes of a tar of name -> bytes. mode: as tarfile's."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return buffer.getvalue()
