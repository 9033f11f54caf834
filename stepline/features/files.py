"""Feature files of many projects, read without running code in the files. Writes Stepline's own files.

<sub>/<id>.pth.tar   (T, 768) half tensor, 1 row/s    InternVideo and CLIP features of HTM
<id>.mp4.npy         (T, 1024) float, 1 row/s         HowTo100M's S3D features; also .webm.npy
<id>.pth             {"vid", "start", "end", "text", "features": (K, 768)}   their text features
.npy .npz .safetensors .pt                            a user's own

T rows, one per second or at the rate that the file states, K texts, D width.
"""

import io
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from stepline.errors import ShapeError, StoreError, first_line
from stepline.files.atomic_files import write_atomic
from stepline.limits import MAX_FEATURES_BYTES, check_zip, parse_json, read_safetensors_header
from stepline.numeric import unit_rows
from stepline.records import RECORD_VERSION, FeatureSequence, Matrix

TORCH_SUFFIXES = (".pth", ".pt", ".pth.tar")
READABLE_SUFFIXES = (".npy", ".npz", ".safetensors", *TORCH_SUFFIXES)
FEATURE_SUFFIXES = (
    *(".safetensors", ".npy", ".mp4.npy", ".webm.npy", ".mkv.npy", ".npz"),
    *(".pth.tar", ".pth", ".pt"),
)
# The names under which a file of several arrays may keep the features.
ARRAY_NAMES = ("values", "features")
NOT_VIDEO_FEATURES = "holds features of texts, not of videos; give those of the videos"
PRECOMPUTED_BACKBONE = "precomputed"  # the backbone of a file that does not state it


@dataclass(frozen=True)
class TextFeatures:
    """Texts and their feature vectors.

    Attributes:
        texts: K texts.
        values: (K, D) float32 vector of each text, as extracted (not normalised).
    """

    texts: tuple[str, ...]
    values: Matrix


def is_feature_file(path: Path) -> bool:
    """Return whether a path has the suffix of a feature file."""
    return path.name.lower().endswith(READABLE_SUFFIXES)


def find_feature_file(folder: Path, video_id: str) -> Path:
    """Return the path of the feature file of a video, in a folder or its direct subfolders."""
    if not video_id or Path(video_id).name != video_id:
        raise StoreError(f"video id {video_id!r}: not a file name; rename the video")
    # The folder itself comes first, then the folders in it by name.
    subfolders = [child for child in folder.iterdir() if child.is_dir()]
    for candidate in (folder, *sorted(subfolders)):
        for suffix in FEATURE_SUFFIXES:
            path = candidate / f"{video_id}{suffix}"
            if path.is_file():
                return path
    raise StoreError(
        f"{folder}: no features for video {video_id!r}; expected {video_id} + one of "
        f"{' '.join(FEATURE_SUFFIXES)}"
    )


def read_feature_file(
    path: Path, *, rate: float = 1.0, width: int | None = None, unit: bool = True
) -> FeatureSequence:
    """Return the features of a video in a file, as float32.

    Args:
        path: path of the file.
        rate: rows per second, for files that state no rate. Files written by Stepline state it.
        width: required D, the width of a row. None: any width.
        unit: True scales each row to length 1. A row of zeros stays zero.

    Raises StoreError for an unreadable file or text features. Raises ShapeError unless the file
    holds (T, D) finite numbers.
    """
    content, metadata = read_arrays(path)
    if isinstance(content, Mapping):
        if "text" in content:
            raise StoreError(f"{path}: {NOT_VIDEO_FEATURES}")
        content = _feature_array(path, content)
    values = _check_matrix(path, content)
    if width is not None and values.shape[1] != width:
        raise ShapeError(
            f"{path}: {values.shape[1]} wide, the texts' features {width}; use one encoder for both"
        )
    if unit:
        values = unit_rows(values)
    own_rate = parse_rate(path, metadata, rate)
    return FeatureSequence(values, own_rate, metadata.get("backbone", PRECOMPUTED_BACKBONE))


def read_text_features(path: Path) -> TextFeatures:
    """Return texts and their vectors from a .pth dict, .npz or .safetensors file.

    The file has its texts under the key "text", in a .safetensors file in the metadata.

    Raises StoreError if the file has no texts, ShapeError unless there is one row per text.
    """
    content, _ = read_arrays(path)
    if not isinstance(content, Mapping) or "text" not in content:
        raise StoreError(
            f"{path}: no 'text' next to the features; give {{'text': [...], 'features': (K, D)}}"
        )
    # Other arrays of the file are of no concern here.
    texts = tuple(str(text) for text in np.atleast_1d(content["text"]))
    arrays = {key: value for key, value in content.items() if key in ARRAY_NAMES}
    values = _check_matrix(path, _feature_array(path, arrays))
    if len(texts) != len(values):
        raise ShapeError(
            f"{path}: {len(texts)} texts but {len(values)} rows of features; extract them again"
        )
    return TextFeatures(texts, values)


def _feature_array(path: Path, content: Mapping[str, Any]) -> Any:
    """Return the array with the features: the one with a usual name, or the only array."""
    named = [name for name in ARRAY_NAMES if name in content] or list(content)
    if len(named) != 1:
        raise StoreError(
            f"{path}: holds {', '.join(map(str, content)) or 'nothing'}; name one array 'features'"
        )
    return content[named[0]]


def _check_matrix(path: Path, array: Any) -> Matrix:
    """Return an array as (T, D) float32. Raises ShapeError for any other array, and for NaN."""
    if not isinstance(array, np.ndarray):
        raise ShapeError(
            f"{path}: holds a {type(array).__name__}, not an array of features (T, D); extract "
            "them again"
        )
    if array.ndim != 2 or 0 in array.shape or not np.issubdtype(array.dtype, np.floating):
        raise ShapeError(
            f"{path}: features must be (T, D) of float numbers, not {array.shape} {array.dtype}"
        )
    # A float64 beyond float32 becomes infinite and is refused below.
    with np.errstate(over="ignore"):
        values: Matrix = array.astype(np.float32)
    if not np.isfinite(values).all():
        row = int(np.flatnonzero(~np.isfinite(values).all(1))[0])
        raise ShapeError(f"{path}: row {row} holds NaN or infinity; extract the features again")
    return values


def parse_rate(location: object, metadata: Mapping[str, str], rate: float) -> float:
    """Return the rows per second that a file's metadata state.

    Args:
        location: path or name of the file, for error messages.
        metadata: metadata of the file.
        rate: rows per second that are returned if the metadata state none.

    Raises StoreError for an invalid rate.
    """
    stated = metadata.get("rate", rate)
    try:
        number = float(stated)
    except ValueError:
        number = math.nan
    if not (math.isfinite(number) and number > 0):
        raise StoreError(
            f"{location}: rate {stated!r} is not a rate in rows/s; write the features again"
        )
    return number


def write_feature_file(features: FeatureSequence, path: Path) -> None:
    """Write features as a float16 safetensors file, with rate and backbone as metadata."""
    from safetensors.numpy import save

    metadata = {
        "rate": repr(features.rate),
        "backbone": features.backbone,
        "version": str(RECORD_VERSION),
    }
    write_atomic(path, save({"values": features.values.astype(np.float16)}, metadata=metadata))


# ---------------------------------------------------------------- what a file holds, in any form


def read_arrays(location: Path | str, data: bytes | None = None) -> tuple[Any, Mapping[str, str]]:
    """Return the content of a feature file as numpy arrays, and its metadata, {} without any.

    The content is an array for .npy and a dict for .npz and .safetensors. For .pth, .pt and
    .pth.tar it is the saved object. safetensors holds no strings, so the JSON list "text" in its
    metadata is added to the dict.

    Args:
        location: path of the file, or the name of an archive member.
        data: bytes of the archive member. None: the file at `location` is read.

    Raises StoreError for an unreadable file, or one that needs code to be read.
    """
    name = str(location).lower()
    if not name.endswith(READABLE_SUFFIXES):
        raise StoreError(
            f"{location}: unknown kind of feature file; give .npy, .npz, .safetensors, .pth or "
            ".pth.tar"
        )
    source = Path(location) if data is None else data
    try:
        if name.endswith((".npy", ".npz")):
            return _read_numpy(source), {}
        if name.endswith(".safetensors"):
            return _read_safetensors(source)
        return _read_torch(source), {}
    # A damaged file makes torch.load raise almost anything, IndexError among it.
    except Exception as error:
        reason = first_line(error)
        if "pickle" in reason or "eights only" in reason:  # numpy and torch would advise to run it
            reason = "damaged, or a pickle with Python objects, which Stepline does not load"
        raise StoreError(
            f"{location}: cannot be read ({reason[:200]}); extract the features again"
        ) from error


def _path_or_stream(source: Path | bytes) -> Any:
    return io.BytesIO(source) if isinstance(source, bytes) else source


def _read_numpy(source: Path | bytes) -> Any:
    check_zip(source, MAX_FEATURES_BYTES)
    content = np.load(_path_or_stream(source), allow_pickle=False)
    if isinstance(content, np.ndarray):
        return content
    # An .npz is read whole, because it is closed here.
    with content:
        return dict(content)


def _read_safetensors(source: Path | bytes) -> tuple[dict[str, Any], Mapping[str, str]]:
    from safetensors.numpy import load, load_file

    arrays: dict[str, Any] = load(source) if isinstance(source, bytes) else load_file(source)
    # Loading leaves out the metadata, which are in the header.
    with io.BytesIO(source) if isinstance(source, bytes) else source.open("rb") as file:
        header, _ = read_safetensors_header(file)
    metadata = header.get("__metadata__", {})
    if "text" in metadata:
        arrays["text"] = parse_json(metadata["text"])
    return arrays, metadata


def _read_torch(source: Path | bytes) -> Any:
    """Unpickle a PyTorch file that holds only tensors, plain containers and plain numpy arrays."""
    import torch

    check_zip(source)
    # numpy's array constructor. Older files know it by its former module.
    rebuild = np.empty(0).__reduce__()[0]
    numpy_types: list[Any] = [
        np.ndarray,
        np.dtype,
        *{type(np.dtype(code)) for code in "efdilqB"},
        rebuild,
        (rebuild, "numpy.core.multiarray._reconstruct"),
    ]
    with torch.serialization.safe_globals(numpy_types):
        content = torch.load(_path_or_stream(source), map_location="cpu", weights_only=True)
        return _to_numpy(content)


def _to_numpy(content: Any) -> Any:
    """Return `content` with all its tensors converted to numpy arrays."""
    import torch

    if isinstance(content, torch.Tensor):
        dense = content.detach()
        # NumPy has no bfloat16.
        if dense.dtype == torch.bfloat16:
            dense = dense.float()
        return dense.numpy()
    if isinstance(content, dict):
        return {key: _to_numpy(value) for key, value in content.items()}
    return content
