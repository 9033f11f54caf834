"""The grounding network on disk: one safetensors file that carries its settings, so that neither goes alone.

The authors' released weights, read without running anything that the file may carry, under our names.
"""

import json
import logging
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from stepline.errors import ModelError
from stepline.nasva.model import Aligner, sine_positions
from stepline.nasva.network_settings import ModelSettings
from stepline.storage import atomic_path

log = logging.getLogger(__name__)

KIND = "stepline.nasva.aligner"
VERSION = 1  # of the names of the weights; a reader refuses any other
SHOWN = 3  # wrong keys that an error names


@dataclass(frozen=True)
class Space:
    """Whose features a network was trained on: video, the label of a FeatureSequence; text, the encoder of the texts.

    text is a name that `text.embed` takes ("minilm"), or the backbone's own where it encodes texts itself ("clip").
    rate: feature rows per second.
    """

    video: str
    text: str
    rate: float = 1.0


def write_aligner(model: Aligner, path: Path, space: Space | None = None) -> None:
    """Write a network, float32. Raises StoreError when the disk refuses."""
    write_weights(model.settings, model.state_dict(), path, space)


def write_weights(
    settings: ModelSettings, weights: Mapping[str, Tensor], path: Path, space: Space | None = None
) -> None:
    """Write the weights of a network, its settings and its space in one file, whole or not at all."""
    tensors = {key: weights[key].detach().to("cpu", torch.float32).contiguous() for key in sorted(weights)}
    header: dict[str, Any] = {"kind": KIND, "version": VERSION, "settings": settings.model_dump(mode="json")}
    if space is not None:
        header["space"] = asdict(space)
    with atomic_path(path) as partial:
        save_file(tensors, partial, metadata={"stepline": json.dumps(header, sort_keys=True)})


def read_aligner(path: Path) -> Aligner:
    """Return the network that a file holds, ready to infer. Raises ModelError, naming what does not fit."""
    settings, weights = read_weights(path)
    check_weights(settings, weights, path)
    model = Aligner(settings)
    model.load_state_dict(weights)
    model.eval()
    return model


def read_weights(path: Path) -> tuple[ModelSettings, dict[str, Tensor]]:
    """Return the settings and weights of a file, as they are. Raises ModelError for any other file."""
    with _opened(path) as file:
        settings = _settings(_header(file))
        return settings, {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 (no mapping)


def read_space(path: Path) -> Space | None:
    """Return whose features the network in a file was trained on, None where it does not say. Raises ModelError."""
    with _opened(path) as file:
        header = _header(file)
        _settings(header)
        return Space(**header["space"]) if "space" in header else None


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """Yield an open file; what is wrong with it while it is read becomes a ModelError."""
    try:
        with safe_open(path, framework="pt") as file:
            yield file
    except (OSError, SafetensorError, ValueError, ValidationError, TypeError) as error:
        reason = str(error).splitlines()[0]
        raise ModelError(f"{path}: not a grounding network of Stepline ({reason}); give one that it wrote") from error


def _header(file: Any) -> dict[str, Any]:
    header: dict[str, Any] = json.loads((file.metadata() or {}).get("stepline", "{}"))
    return header


def _settings(header: dict[str, Any]) -> ModelSettings:
    if header.get("kind") != KIND or header.get("version") != VERSION:
        raise ValueError(f"kind {header.get('kind')!r}, version {header.get('version')!r}")
    return ModelSettings.model_validate_json(json.dumps(header["settings"]))


def check_weights(settings: ModelSettings, weights: Mapping[str, Tensor], path: Path) -> None:
    """Raise ModelError unless the weights are those of a network of these settings: names, shapes, finite."""
    with torch.device("meta"):
        wanted = {key: tuple(value.shape) for key, value in Aligner(settings).state_dict().items()}
    given = {key: tuple(value.shape) for key, value in weights.items()}
    faults = [f"{key} is missing" for key in wanted.keys() - given.keys()]
    faults += [f"{key} is unknown" for key in given.keys() - wanted.keys()]
    both = wanted.keys() & given.keys()
    faults += [f"{key} is {given[key]}, not {wanted[key]}" for key in both if given[key] != wanted[key]]
    faults += [f"{key} holds NaN or infinity" for key in both if not bool(weights[key].isfinite().all())]
    if faults:
        more = f" and {len(faults) - SHOWN} more" if len(faults) > SHOWN else ""
        raise ModelError(f"{path}: not these weights: {', '.join(sorted(faults)[:SHOWN])}{more}; give the right file")


HEADS = 8  # attention heads; no shape tells, the released configuration does
DEAD = ("alignable_head.", "timestamp_head.")  # heads that the released code declares and never uses
FIXED = "visual_pos_enc.pe"  # the sines and cosines of its positions, (1, 5000, D); we make our own
DRIFT = 1e-2  # how far those may be from ours; float32 sines of angles up to 5000 differ by 1e-3

# Their name -> ours, tried in turn; N is a layer.
NAMES = (
    (r"visual_proj\.", "video_in."),
    (r"text_proj\.", "text_in."),
    (r"text_pos_enc\.", "text_place."),
    (r"v_sim_proj\.", "video_out."),
    (r"t_sim_proj\.", "text_out."),
    (r"decoder\.norm\.", "decoder_norm."),
    (r"visual_encoder\.layers\.(\d+)\.self_attn\.", r"encoder.\1.attention."),
    (r"visual_encoder\.layers\.(\d+)\.norm1\.", r"encoder.\1.attention_norm."),
    (r"visual_encoder\.layers\.(\d+)\.norm2\.", r"encoder.\1.feed_norm."),
    (r"visual_encoder\.layers\.(\d+)\.linear", r"encoder.\1.feed.linear"),
    (r"decoder\.layers\.(\d+)\.self_attn\.", r"decoder.\1.self_attention."),
    (r"decoder\.layers\.(\d+)\.multihead_attn\.", r"decoder.\1.cross_attention."),
    (r"decoder\.layers\.(\d+)\.norm1\.", r"decoder.\1.self_norm."),
    (r"decoder\.layers\.(\d+)\.norm2\.", r"decoder.\1.cross_norm."),
    (r"decoder\.layers\.(\d+)\.norm3\.", r"decoder.\1.feed_norm."),
    (r"decoder\.layers\.(\d+)\.linear", r"decoder.\1.feed.linear"),
)
ENDS = {
    "in_proj_weight": "project.weight",
    "in_proj_bias": "project.bias",
    "out_proj.": "out.",
    "linear1.": "wide.",
    "linear2.": "narrow.",
}


def import_official(path: Path) -> tuple[ModelSettings, dict[str, Tensor]]:
    """Return the settings and float32 weights of a .pth that the released code wrote; `write_weights` keeps them.

    Every key and shape is checked; its two unused heads are left out and named in the log.
    Raises ModelError when the file cannot be read, or holds anything else.
    """
    given = _read(path)
    dead = sorted(key for key in given if key.startswith(DEAD))
    if dead:
        log.info("%s: %d weights of heads that the released code never uses are left out: %s", path, len(dead), dead)
    live = {key: value for key, value in given.items() if key not in dead and key != FIXED}
    weights = {our_name(key): value.float() for key, value in live.items()}
    settings = _official_settings(weights, path)
    check_weights(settings, weights, path)
    if FIXED in given:
        _check_positions(given[FIXED].float(), settings.width, path)
    return settings, weights


def our_name(key: str) -> str:
    """Return our name of an official weight; a key that it has not stays as it is."""
    for pattern, ours in NAMES:
        named, found = re.subn(f"^{pattern}", ours, key)
        if found:
            for theirs, end in ENDS.items():
                named = named.replace(theirs, end)
            return named
    return key


def _read(path: Path) -> dict[str, Tensor]:
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged file makes torch.load raise almost anything, IndexError among it
        reason = (str(error).strip() or type(error).__name__).splitlines()[0][:120]
        raise ModelError(f"{path}: cannot be read as weights ({reason}); download the released file again") from error
    state = content.get("model_state_dict", content) if isinstance(content, Mapping) else content
    if not isinstance(state, Mapping) or not all(isinstance(value, Tensor) for value in state.values()):
        raise ModelError(f"{path}: holds no `model_state_dict` of tensors; give the .pth that NaSVA's authors released")
    return dict(state)


def _official_settings(weights: Mapping[str, Tensor], path: Path) -> ModelSettings:
    """Return the released configuration, with the sizes that the weights have."""
    try:
        width, video_width = weights["video_in.0.weight"].shape
        return ModelSettings(
            video_width=video_width,
            text_width=weights["text_in.0.weight"].shape[1],
            width=width,
            heads=HEADS,
            encoder_layers=_layers(weights, "encoder"),
            decoder_layers=_layers(weights, "decoder"),
            feed_forward=weights["decoder.0.feed.wide.weight"].shape[0],
            projection=weights["video_out.weight"].shape[0],
            text_positions=weights["text_place.weight"].shape[0],
            attention_dropout=0.1,
            feature_scale="none",
        )
    except (KeyError, ValueError, IndexError) as error:
        reason = str(error).splitlines()[0]
        raise ModelError(f"{path}: not NaSVA's released network ({reason}); give the .pth of its authors") from error


def _layers(weights: Mapping[str, Tensor], part: str) -> int:
    return len({key.split(".")[1] for key in weights if key.startswith(f"{part}.")})


def _check_positions(given: Tensor, width: int, path: Path) -> None:
    ours = sine_positions(given.shape[1] if given.ndim == 3 else 1, width, given.device)[None]  # (1, N, D)
    if given.shape != ours.shape or float((given - ours).abs().max()) > DRIFT:
        raise ModelError(f"{path}: {FIXED} are other positions than the fixed ones; such a network cannot be imported")
