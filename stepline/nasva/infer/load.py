"""A trained network with all that must fit it: whose features it was trained on, and its calibration."""

from dataclasses import dataclass
from pathlib import Path

from stepline.errors import ModelError
from stepline.models import sha256
from stepline.nasva.checkpoint import Space, read_aligner, read_space
from stepline.nasva.infer.shown import Calibration, calibration_path, read_calibration
from stepline.nasva.model import Aligner
from stepline.records import FeatureSequence
from stepline.training.checkpoints import CHECKPOINT

NAMES = ("best.safetensors", "aligner.safetensors")  # what a folder is searched for, in this order
ANY = "precomputed"  # label of ready features that do not say whose they are: their owner answers for them


@dataclass(frozen=True)
class Loaded:
    """A network at rest; path: its file, sha256: of that file. What it does not say is None."""

    aligner: Aligner
    path: Path
    sha256: str
    space: Space | None
    calibration: Calibration | None

    def check(self, features: FeatureSequence, texts: str | None = None) -> None:
        """Raise ModelError where features, or the encoder of the texts, are not those that it was trained on."""
        width = self.aligner.settings.video_width
        if features.values.shape[1] != width:
            given = f"{features.backbone} features are {features.values.shape[1]} wide"
            raise ModelError(f"{self.path}: trained on features {width} wide, {given}; {self._cure()}")
        self.check_space(features.backbone, texts, rate=features.rate)

    def check_space(self, video: str, texts: str | None, *, rate: float) -> None:
        """Raise ModelError where the backbone, the encoder of the texts or the rate is not that of its training."""
        space = self.space or Space(ANY, ANY, rate)
        for what, own, given in (("features", space.video, video), ("texts", space.text, texts or ANY)):
            if own != given and ANY not in (own, given):
                raise ModelError(f"{self.path}: trained on {what} of {own!r}, given are {given!r}; {self._cure()}")
        if rate != space.rate:
            rates = f"trained at {space.rate:g} rows per second, given are {rate:g}"
            raise ModelError(f"{self.path}: {rates}; set vision.rate={space.rate:g}")

    def check_scale(self, *, unit: bool) -> None:
        """Raise ModelError where rows were scaled to length 1 for a network that takes them as they are."""
        if unit and self.aligner.settings.feature_scale == "none":
            cure = "give ready features and vision.unit=false"
            raise ModelError(f"{self.path}: trained on feature rows as they are, not on rows of length 1; {cure}")

    def _cure(self) -> str:
        named = f" ({self.space.video}, texts {self.space.text})" if self.space else ""
        return f"use the backbone that it was trained with{named}, or another --aligner"


def find_aligner(path: Path) -> Path:
    """Return the file of a network: the path itself, or the first of `NAMES` in it. Raises ModelError."""
    if path.is_file():
        return path
    for name in NAMES:
        if (path / name).is_file():
            return path / name
    if (path / CHECKPOINT).is_file():
        raise ModelError(f"{path}: the run is not finished; run `stepline train nasva` again to end it")
    found = sorted(path.glob("*.safetensors")) if path.is_dir() else []
    if len(found) == 1:
        return found[0]
    what = f"holds none of {', '.join(NAMES)}" if path.is_dir() else "no such file"
    raise ModelError(f"{path}: {what}; give the .safetensors file of a trained network")


def load(path: Path) -> Loaded:
    """Return the network in a file or folder, ready to infer. Raises ModelError, naming what does not fit."""
    file = find_aligner(path)
    digest = sha256(file)
    calibration = read_calibration(calibration_path(file), digest)
    return Loaded(read_aligner(file), file, digest, read_space(file), calibration)
