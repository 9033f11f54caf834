"""Reading and writing of NaSVA's network: its file, feature space and calibration, and the .pth
files that its authors released.

Every function that reads a network takes both forms. Released weights are read as tensors only and
get our names (`WEIGHT_NAMES`). No code in such a file is run.
"""

import logging
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from stepline.errors import ModelError, first_line
from stepline.files.digests import sha256
from stepline.limits import check_zip
from stepline.models.nasva.calibration import Calibration, calibration_path, read_calibration
from stepline.models.nasva.settings import AlignerNetworkSettings
from stepline.models.training.network import (
    UNKNOWN_SOURCES,
    FeatureSpace,
    Header,
    LoadedNetwork,
    NetworkFileFormat,
    check_network_weights,
    parse_settings,
)
from stepline.networks.device import current_device
from stepline.networks.weights import known_weights

if TYPE_CHECKING:
    from torch import Tensor

    from stepline.models.nasva.model import Aligner

log = logging.getLogger(__name__)

NO_SPACE = FeatureSpace("", "", None)  # of a file that does not say whose features it takes
MINILM_WIDTH = 384  # of its vectors


def _parse(header: Header) -> tuple[AlignerNetworkSettings, FeatureSpace]:
    settings = parse_settings(AlignerNetworkSettings, header["settings"])
    if "space" not in header:
        return settings, NO_SPACE
    from stepline.models.training.sources import get_text_space_name

    space = FeatureSpace(**header["space"])
    # Earlier runs wrote the option ("conse"), not the space that it stands for.
    return settings, replace(space, text=get_text_space_name(space.text))


def _build(header: tuple[AlignerNetworkSettings, FeatureSpace]) -> "Aligner":
    from stepline.models.nasva.model import Aligner

    return Aligner(header[0])


NETWORK = NetworkFileFormat(
    kind="stepline.nasva.aligner",
    version=1,
    title="a grounding network",
    command="`stepline train nasva`",
    file_names=("best.safetensors", "aligner.safetensors"),
    parse=_parse,
    build=_build,
)


@dataclass(frozen=True)
class LoadedAligner(LoadedNetwork):
    """A network in evaluation mode.

    Attributes:
        network: the network itself.
        calibration: the calibration of P(shown) that is stored next to the network's file. None:
            there is none.
    """

    network: "Aligner"
    calibration: Calibration | None

    def check_text_width(self, width: int) -> None:
        """Raise ModelError if the network takes text vectors of another width than `width`."""
        own = self.network.settings.text_width
        if width != own:
            raise ModelError(
                f"{self.path}: trained on texts {own} wide, given are texts {width} wide; {self._cure}"
            )

    def get_text_encoder_name(self, option: str) -> str:
        """Return the name of the network's text encoder for `text.embed`.

        option: command-line option by which the user gives text vectors, for the message. Raises
        ModelError if `text.embed` has no such encoder, so that text vectors must be given.
        """
        width = self.network.settings.text_width
        if self.space == NO_SPACE and width == MINILM_WIDTH:
            return "minilm"
        # "clip", "internvideo" and the like name vectors that only their files hold
        text = self.space.text
        unknown = text in UNKNOWN_SOURCES
        if unknown or not (text in known_weights() or Path(text).is_dir()):
            origin = "of an encoder that it does not name" if unknown else f"of {text!r}"
            raise ModelError(
                f"{self.path}: its texts are vectors {width} wide {origin}; give {option}, their "
                "features"
            )
        return text


def load_aligner(path: Path) -> LoadedAligner:
    """Return the network in a file or folder, with its calibration. Raises ModelError with the fault
    of the file."""
    import torch  # noqa: F401   (a missing package is reported before a faulty file)

    file = NETWORK.find_file(path)
    digest = sha256(file)
    calibration = read_calibration(calibration_path(file), digest)
    space, aligner = _read_network(file)
    width = aligner.settings.video_width
    accepts_normalized_rows = aligner.settings.feature_scale != "none"
    return LoadedAligner(file, digest, space, width, accepts_normalized_rows, aligner, calibration)


def read_aligner(path: Path) -> "Aligner":
    """Return the network in a file or folder, in evaluation mode. Raises ModelError with the fault
    of the file."""
    return _read_network(NETWORK.find_file(path))[1]


def write_aligner(network: "Aligner", path: Path, space: FeatureSpace | None = None) -> None:
    """Write a network as float32 weights.

    Args:
        network: the network.
        path: the .safetensors file.
        space: features that the network was trained on. None: the file does not say.

    Raises StoreError if the file cannot be written.
    """
    NETWORK.write(path, network, {} if space is None else {"space": asdict(space)})


def _read_network(file: Path) -> "tuple[FeatureSpace, Aligner]":
    """Return the feature space and the network of a file in either form."""
    if not is_released_file(file):
        (_, space), aligner = NETWORK.load(file)
        return space, aligner
    settings, weights = read_released_weights(file)
    aligner = _build((settings, RELEASED_SPACE))
    aligner.load_state_dict(weights)
    aligner.to(current_device().name).eval()
    return RELEASED_SPACE, aligner


# a .pth names no features, and its places are seconds
RELEASED_SPACE = FeatureSpace(UNKNOWN_SOURCES[1], UNKNOWN_SOURCES[1], rate=1.0)
OFFICIAL_SUFFIXES = (".pth", ".pt", ".pth.tar")  # of files that torch.save wrote
# what they begin with, whatever their name: a zip, a pickle of old
OFFICIAL_MAGIC = (b"PK\x03\x04", b"\x80\x02\x8a\n")
RELEASED_HEADS = 8  # attention heads; no shape says how many, the released configuration does
# prefixes of the weights of heads that the released code declares and never uses
UNUSED_PREFIXES = ("alignable_head.", "timestamp_head.")
# the sines and cosines of its positions, (1, 5000, D). We make our own
POSITIONS_KEY = "visual_pos_enc.pe"
# how far those may be from ours. float32 sines of angles up to 5000 differ by 1e-3
MAX_POSITION_ERROR = 1e-2

# Their name -> ours, tried in turn. N is a layer.
WEIGHT_NAMES = (
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
WEIGHT_ENDINGS = {
    "in_proj_weight": "project.weight",
    "in_proj_bias": "project.bias",
    "out_proj.": "out.",
    "linear1.": "wide.",
    "linear2.": "narrow.",
}


def is_released_file(path: Path) -> bool:
    """Return whether torch.save wrote a file, by its name or its first bytes. Our files are
    safetensors."""
    if path.name.endswith(OFFICIAL_SUFFIXES):
        return True
    try:
        with path.open("rb") as file:
            return file.read(len(OFFICIAL_MAGIC[0])) in OFFICIAL_MAGIC
    except OSError:  # its reader says what is wrong
        return False


def read_released_weights(path: Path) -> "tuple[AlignerNetworkSettings, dict[str, Tensor]]":
    """Return the network settings, and weight name -> float32 tensor, of a .pth that the released
    code wrote.

    Every key and shape is checked. The weights of its two unused heads are left out and logged.
    Raises ModelError when the file cannot be read, or is of another network.
    """
    import torch

    from stepline.models.nasva.model import Aligner, make_sine_positions

    try:
        check_zip(path)
        content = torch.load(path, map_location="cpu", weights_only=True)
    # a damaged file makes torch.load raise almost anything, IndexError among it
    except Exception as error:
        reason = first_line(error)[:120]
        raise ModelError(
            f"{path}: cannot be read as weights ({reason}); download the released file again"
        ) from error
    stored = content.get("model_state_dict", content) if isinstance(content, Mapping) else content
    if not isinstance(stored, Mapping) or not all(
        isinstance(value, torch.Tensor) for value in stored.values()
    ):
        raise ModelError(
            f"{path}: holds no `model_state_dict` of tensors; give the .pth that NaSVA's authors "
            "released"
        )
    # Under our names, without the heads that nothing uses.
    weights = {}
    unused = []
    for key, value in stored.items():
        if key.startswith(UNUSED_PREFIXES):
            unused.append(key)
        elif key != POSITIONS_KEY:
            weights[rename_released_weight(key)] = value.float()
    if unused:
        log.info(
            "%s: %d weights of heads that the released code never uses are left out: %s",
            path,
            len(unused),
            sorted(unused),
        )
    settings = _infer_settings(weights, path)
    check_network_weights(lambda: Aligner(settings), weights, path)
    # Positions are not stored by us, so theirs must be those that we make.
    if POSITIONS_KEY in stored:
        theirs = stored[POSITIONS_KEY].float()
        count = theirs.shape[1] if theirs.ndim == 3 else 1
        ours = make_sine_positions(count, settings.width, theirs.device)[None]  # (1, N, D)
        same_shape = theirs.shape == ours.shape
        if not same_shape or float((theirs - ours).abs().max()) > MAX_POSITION_ERROR:
            raise ModelError(
                f"{path}: {POSITIONS_KEY} are other positions than the fixed ones; "
                "such a network cannot be imported"
            )
    return settings, weights


def rename_released_weight(key: str) -> str:
    """Return our name of a weight of the released code. An unknown name stays."""
    for pattern, ours in WEIGHT_NAMES:
        renamed, count = re.subn(f"^{pattern}", ours, key)
        if count:
            for theirs, end in WEIGHT_ENDINGS.items():
                renamed = renamed.replace(theirs, end)
            return renamed
    return key


def _infer_settings(weights: "Mapping[str, Tensor]", path: Path) -> AlignerNetworkSettings:
    """Return the settings of the released configuration, with the sizes that the weights have.

    Shapes give the widths, layers, feed-forward, projection and text positions. The released code
    gives the rest: 8 heads, dropout, form, unscaled features, no alignability head.
    """
    try:
        width, video_width = weights["video_in.0.weight"].shape
        if width % RELEASED_HEADS:
            raise ModelError(
                f"{path}: {width} wide, not a multiple of the {RELEASED_HEADS} attention heads of "
                "the released code, and no weight shows how many it has; give the .pth of its "
                "authors, or one of `stepline train nasva`"
            )
        return AlignerNetworkSettings(
            video_width=video_width,
            text_width=weights["text_in.0.weight"].shape[1],
            width=width,
            heads=RELEASED_HEADS,
            encoder_layers=_count_layers(weights, "encoder"),
            decoder_layers=_count_layers(weights, "decoder"),
            feed_forward=weights["decoder.0.feed.wide.weight"].shape[0],
            projection=weights["video_out.weight"].shape[0],
            text_positions=weights["text_place.weight"].shape[0],
            attention_dropout=0.1,
            feature_scale="none",
        )
    except (KeyError, ValueError, IndexError) as error:
        raise ModelError(
            f"{path}: not NaSVA's released network ({first_line(error)}); "
            "give the .pth of its authors"
        ) from error


def _count_layers(weights: "Mapping[str, Tensor]", part: str) -> int:
    return len({key.split(".")[1] for key in weights if key.startswith(f"{part}.")})
