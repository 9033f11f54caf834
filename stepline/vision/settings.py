"""Settings of the vision stage."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from stepline.plugins import choice
from stepline.settings import Batch, Fraction, Settings

BackboneName = Annotated[str, choice("backbones")]


class VisionSettings(Settings):
    """How frames become features."""

    backbone: BackboneName = "conse"  # clip, s3d, s3d-mixed5c, precomputed, a plugin's; "none": speech alone
    path: Path | None = None  # clip: checkpoint folder; s3d: weights; precomputed: feature file or folder of them
    texts: Path | None = None  # precomputed: text features (.pth, .npz, .safetensors) of the lines to ground
    unit: bool = True  # precomputed: rows scaled to length 1; false for a network trained on rows as they are
    hub: str | None = None  # clip: a checkpoint's name on the model hub; naming one allows the download
    dictionary: Path | None = None  # s3d: s3d_dict.npy; None: the one beside the weights
    tokens: Literal["released", "tan"] = "released"  # s3d: how texts are cut into words; TAN keeps unknown ones
    rate: Annotated[float, Field(ge=0.01, le=240.0)] = 1.0  # rows per second; the NaSVA paper's 1 Hz
    frame_size: Annotated[int, Field(ge=32, le=4096)] = 256  # pixels of a decoded frame's shorter side
    batch: Batch = 4  # frames encoded at once; 4 fits the caches best; for speed alone
    classes: Annotated[int, Field(ge=1, le=1000)] = 10  # conse: T of Norouzi et al. 2013, their best
    text_model: str = "minilm"  # conse: the space of names and texts, as `text.embed` takes it
    cut_ratio: Annotated[float, Field(gt=1.0, le=1e6)] = 4.0  # a cut changes colour so much more than neighbours do
    cut_floor: Fraction = 0.2  # and at least this fraction of the pixels' colours
    faces: bool = True  # whether faces that look at the camera are looked for, which tell talk from doing
    hands: bool = False  # the same of hands; they do not tell it (docs/real_clips.md)
    screen_text: bool = True  # whether text in the picture is found and read

    @property
    def text_space(self) -> str:
        """Name of the encoder whose vectors texts become: that of conse's texts, else the backbone's own."""
        if self.backbone == "s3d-mixed5c":
            return "s3d"
        return self.text_model if self.backbone == "conse" else self.backbone

    @property
    def unit_rows(self) -> bool:
        """Whether rows of features have length 1."""
        return self.backbone != "s3d-mixed5c" and (self.backbone != "precomputed" or self.unit)
