"""The authors' released weights, read without running anything that the file may carry, under our names."""

import logging
import re
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from stepline.errors import ModelError
from stepline.nasva.attention import sine_positions
from stepline.nasva.checkpoint import check_weights
from stepline.nasva.model_settings import ModelSettings

log = logging.getLogger(__name__)

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
    settings = _settings(weights, path)
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


def _settings(weights: Mapping[str, Tensor], path: Path) -> ModelSettings:
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
