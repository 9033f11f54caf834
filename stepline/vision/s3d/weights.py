"""S3D-G's released weights (antoine77340/S3D_HowTo100M), by path: every name and shape is checked, nothing is run."""

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from stepline.errors import ModelError
from stepline.vision.s3d.network import S3D
from stepline.vision.s3d.words import EMBEDDING, Words

TEXT = "text_module."
COUNTED = ".num_batches_tracked"  # of no use at rest, and older files lack it
SHOWN = 3  # wrong names that an error tells


def read_s3d(path: Path, dictionary_size: int) -> tuple[S3D, Words]:
    """Return both towers at rest. dictionary_size: words and padding, as many as the file has word vectors.

    Raises ModelError, naming what does not fit, for any other file.
    """
    given = _load(path)
    with torch.device("meta"):
        video, words = S3D(), Words(dictionary_size)
    faults = _faults(_shapes(video, words), given)
    if faults:
        more = f" and {len(faults) - SHOWN} more" if len(faults) > SHOWN else ""
        raise ModelError(f"{path}: not S3D's weights: {', '.join(faults[:SHOWN])}{more}; give s3d_howto100m.pth")
    counts = {name: torch.zeros((), dtype=torch.int64) for name in video.state_dict() if name.endswith(COUNTED)}
    video.load_state_dict({**counts, **{n: v for n, v in given.items() if not n.startswith(TEXT)}}, assign=True)
    words.load_state_dict({n.removeprefix(TEXT): v for n, v in given.items() if n.startswith(TEXT)}, assign=True)
    return video.eval(), words.eval()


def _load(path: Path) -> dict[str, Tensor]:
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged file makes torch.load raise almost anything, IndexError among it
        reason = (str(error).strip() or type(error).__name__).splitlines()[0][:200]
        raise ModelError(f"{path}: not S3D's weights ({reason}); give s3d_howto100m.pth") from error
    if not isinstance(content, dict) or not all(isinstance(value, Tensor) for value in content.values()):
        raise ModelError(f"{path}: holds a {type(content).__name__}, no tensors by name; give s3d_howto100m.pth")
    return {str(name): value.float() if value.is_floating_point() else value for name, value in content.items()}


def _shapes(video: nn.Module, words: nn.Module) -> dict[str, tuple[int, ...]]:
    """Return the shape of every weight by its name in the file."""
    shapes = {name: tuple(value.shape) for name, value in video.state_dict().items()}
    return shapes | {TEXT + name: tuple(value.shape) for name, value in words.state_dict().items()}


def _faults(wanted: Mapping[str, tuple[int, ...]], given: Mapping[str, Tensor]) -> list[str]:
    table = f"{TEXT}word_embd.weight"
    if table in given and tuple(given[table].shape[1:]) == (EMBEDDING,) and len(given[table]) != wanted[table][0]:
        words = wanted[table][0] - 1
        return [f"{len(given[table]) - 1} word vectors for a dictionary of {words} words"]
    faults = [f"{name} is missing" for name in wanted if name not in given and not name.endswith(COUNTED)]
    faults += [f"{name} is unknown" for name in given if name not in wanted]
    both = [name for name in wanted if name in given]
    faults += [f"{n} is {tuple(given[n].shape)}, not {wanted[n]}" for n in both if tuple(given[n].shape) != wanted[n]]
    return faults + [f"{name} holds NaN or infinity" for name in both if not bool(given[name].isfinite().all())]
