"""Array files of other projects, read without running anything that they may carry."""

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from stepline.errors import StoreError

TORCH = (".pth", ".pt", ".pth.tar")
KINDS = (".npy", ".npz", ".safetensors", *TORCH)


def read_arrays(path: Path) -> tuple[Any, Mapping[str, str]]:
    """Return what a file holds, with every tensor as a numpy array, and its metadata ({} where it has none).

    .npy gives an array, .npz and .safetensors a dict, .pth, .pt and .pth.tar whatever was saved. The JSON list
    "text" in the metadata of a .safetensors file joins its arrays, since that format holds no strings.
    Raises StoreError when the file cannot be read, or would have to run code to be read.
    """
    return _read(str(path), path)


def parse_arrays(place: str, data: bytes) -> tuple[Any, Mapping[str, str]]:
    """Return what the bytes of such a file hold, as `read_arrays` does; `place` ends as the file's name would."""
    return _read(place, data)


def _read(place: str, source: Path | bytes) -> tuple[Any, Mapping[str, str]]:
    name = place.lower()
    if not name.endswith(KINDS):
        raise StoreError(f"{place}: unknown kind of feature file; give .npy, .npz, .safetensors, .pth or .pth.tar")
    try:
        if name.endswith((".npy", ".npz")):
            return _read_numpy(source), {}
        if name.endswith(".safetensors"):
            return _read_safetensors(source)
        return _read_torch(source), {}
    except Exception as error:  # a damaged file makes torch.load raise almost anything, IndexError among it
        raise StoreError(f"{place}: cannot be read ({_reason(error)}); extract the features again") from error


def _reason(error: Exception) -> str:
    """Return why a file was refused; where numpy or torch would advise to run its code, that it holds some."""
    reason = (str(error).strip() or type(error).__name__).splitlines()[0]
    return (
        "it holds objects that only running code could read"
        if "pickle" in reason or "eights only" in reason
        else reason[:200]
    )


def _opened(source: Path | bytes) -> Any:
    return io.BytesIO(source) if isinstance(source, bytes) else source


def _read_numpy(source: Path | bytes) -> Any:
    content = np.load(_opened(source), allow_pickle=False)
    if isinstance(content, np.ndarray):
        return content
    with content:
        return dict(content)


def _read_safetensors(source: Path | bytes) -> tuple[dict[str, Any], Mapping[str, str]]:
    if isinstance(source, bytes):
        from safetensors.numpy import load

        arrays: dict[str, Any] = load(source)
        metadata = json.loads(source[8 : 8 + int.from_bytes(source[:8], "little")]).get("__metadata__", {})
    else:
        from safetensors import safe_open

        with safe_open(source, framework="np") as file:
            metadata = file.metadata() or {}
            arrays = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 (no mapping)
    if "text" in metadata:
        arrays["text"] = json.loads(metadata["text"])
    return arrays, metadata


def _read_torch(source: Path | bytes) -> Any:
    """Unpickle tensors, plain containers and plain numpy arrays, and nothing else."""
    import torch

    rebuild = np.empty(0).__reduce__()[0]  # numpy's array constructor; older files know it by its former module
    numpy_types: list[Any] = [
        np.ndarray,
        np.dtype,
        *{type(np.dtype(code)) for code in "efdilqB"},
        rebuild,
        (rebuild, "numpy.core.multiarray._reconstruct"),
    ]
    with torch.serialization.safe_globals(numpy_types):
        return _plain(torch.load(_opened(source), map_location="cpu", weights_only=True))


def _plain(content: Any) -> Any:
    """Turn the tensors in `content` into numpy arrays."""
    import torch

    if isinstance(content, torch.Tensor):
        dense = content.detach()
        return (dense.float() if dense.dtype == torch.bfloat16 else dense).numpy()
    if isinstance(content, dict):
        return {key: _plain(value) for key, value in content.items()}
    return content
