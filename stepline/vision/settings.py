"""Settings of the vision stage."""

from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from stepline.llm.settings import ChatSettings
from stepline.plugins import choice
from stepline.settings import Batch, CountOrZero, Fraction, Positive, Settings

# of the settings of a vision-language model, in what earlier releases stored
OLD_FOLDERS = ("machine", "corrected")
BackboneName = Annotated[str, choice("backbones")]


class VisionLanguageSettings(ChatSettings):
    """Settings of the vision-language model that finds when steps are shown.

    By default no model is named, and none is used.
    """

    section: ClassVar[str] = "vision.vlm"

    projector: Path | None = None
    """GGUF file of a local model's image projector (mmproj)"""
    requests: CountOrZero = 10
    """requests per video at most, with retries"""
    tokens: CountOrZero = 100_000
    """tokens per video at most, of prompts, images and replies"""
    choices: Annotated[int, Field(ge=2, le=20)] = 8
    """candidate times per prompt, with an image each"""
    steps: Annotated[int, Field(ge=1, le=10)] = 3
    """steps per prompt, with the same images"""
    together: bool = False
    """put the images of a prompt side by side in one, for servers that take only one"""
    picture_size: Annotated[int, Field(ge=64, le=2048)] = 336
    """pixels of an image's shorter side"""
    least_gain: Fraction = 0.005
    """expected rise of P(a step's most likely time is right) from which a prompt is sent"""
    right: Positive = 4.0
    """right answers of this model in other videos, by default 4 of 5"""
    wrong: Positive = 1.0
    """its wrong answers in other videos"""
    dry_run: bool = False
    """send nothing, the record lists the prompts"""
    cache: bool = True
    """store valid replies in the cache folder, keyed by model, settings, prompt and images"""

    @property
    def named(self) -> bool:
        """Whether the settings name a model."""
        return self.base_url is not None or self.gguf is not None

    @property
    def projector_file(self) -> Path | None:
        """The GGUF file of the model's image projector, None if none is set."""
        return self.projector

    @model_validator(mode="before")
    @classmethod
    def _drop_old_folders(cls, tree: Any) -> Any:
        """Drop two empty settings that recipes of earlier releases contain."""
        if isinstance(tree, dict):
            tree = {name: value for name, value in tree.items() if name not in OLD_FOLDERS or value}
        return tree

    @model_validator(mode="after")
    def _check_model(self) -> "VisionLanguageSettings":
        if self.gguf is not None and self.projector is None:
            raise ValueError("a GGUF needs a projector to see; name its file as projector")
        return self


# Stored only where a model is named. Without one, these settings do not change the result.
OptionalVlm = Annotated[VisionLanguageSettings, Field(exclude_if=lambda vlm: not vlm.named)]


class VisionSettings(Settings):
    """Settings of the vision stage: backbone, features and visual cues."""

    backbone: BackboneName = "conse"
    """conse, clip, internvideo, s3d, s3d-mixed5c, precomputed, or a plugin. "none": speech only"""
    path: Path | None = None
    """clip: checkpoint folder, internvideo and s3d: weights, precomputed: feature file or folder"""
    texts: Path | None = None
    """precomputed: text features (.pth, .npz, .safetensors) of the lines to ground"""
    unit: bool = True
    """precomputed, internvideo: rows of length 1. false: for a network trained on them as they are"""
    hub: str | None = None
    """clip: a checkpoint's name on the model hub. Naming one allows the download"""
    dictionary: Path | None = None
    """s3d: s3d_dict.npy, internvideo: bpe_simple_vocab_16e6.txt.gz. None: next to the weights"""
    tokens: Literal["released", "tan"] = "released"
    """s3d: tokenisation of texts. TAN's keeps unknown words"""
    rate: Annotated[float, Field(ge=0.01, le=240.0)] = 1.0
    """rows of features per second, 1 in the NaSVA paper"""
    frame_size: Annotated[int, Field(ge=32, le=4096)] = 256
    """pixels of a decoded frame's shorter side"""
    batch: Batch = 4
    """frames that are encoded together, for speed only"""
    classes: Annotated[int, Field(ge=1, le=1000)] = 10
    """conse: most likely classes that are combined (T of Norouzi et al. 2013)"""
    text_model: str = "minilm"
    """conse: text encoder of class names and texts, as `text.embed` takes it"""
    screen_text: bool = True
    """whether text on the screen is recognised"""
    screen: Annotated[
        Literal["auto", "on", "off"], Field(exclude_if=lambda screen: screen == "auto")
    ] = Field(
        "auto",
        description="whether the video is a screen recording, whose steps are where the screen "
        'changes. "auto": detected. Left out of records where it is "auto"',
    )
    look: Annotated[Literal["auto", "all"], Field(exclude_if=lambda look: look == "auto")] = Field(
        "auto",
        description="which frames of a film are looked at. auto: key frames, or three a second for a "
        "network or a model of yours. all: three a second. Left out of records where it is auto",
    )
    vlm: OptionalVlm = VisionLanguageSettings()
    """a vision-language model (docs/eyes.md)"""

    @model_validator(mode="before")
    @classmethod
    def _read_old_name(cls, tree: Any) -> Any:
        if isinstance(tree, dict) and "witness" in tree:
            tree = dict(tree)
            tree.setdefault("vlm", tree.pop("witness"))
        return tree

    @model_serializer(mode="wrap")
    def _store_old_name(self, stored: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Store the section `vlm` under the name "witness", as in records of all releases."""
        tree: dict[str, Any] = stored(self)
        if "vlm" in tree:
            tree["witness"] = tree.pop("vlm")
        return tree

    @property
    def text_space(self) -> str:
        """Name of the text encoder whose vector space the visual features share."""
        if self.backbone == "s3d-mixed5c":
            return "s3d"
        if self.backbone == "conse":
            return self.text_model
        return self.backbone

    @property
    def crop(self) -> dict[str, str]:
        """The part of each frame that the backbone takes, as an entry of the feature settings.

        {} for backbones that took the same part in all releases of Stepline. A store of features
        notes the entry, so that rows of another crop are not added to it.
        """
        # NaSVA, supplement 6.1
        s3d = "224 of 256"
        crops = {"s3d": s3d, "s3d-mixed5c": s3d, "internvideo": "square"}
        return {"crop": crops[self.backbone]} if self.backbone in crops else {}

    @property
    def unit_rows(self) -> bool:
        """Whether the rows of visual features have length 1."""
        if self.backbone in ("precomputed", "internvideo"):
            return self.unit
        return self.backbone != "s3d-mixed5c"
