"""Settings of the vision stage."""

from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from stepline.llm.settings import ChatSettings
from stepline.plugins import choice
from stepline.settings import Batch, CountOrZero, Fraction, Positive, Settings

# of the settings of a vision-language model, in what earlier releases stored
OLD_FOLDERS = ("machine", "corrected")
BackboneName = Annotated[str, choice("backbones")]


class VisionLanguageSettings(ChatSettings):
    """A vision-language model that is asked where steps are shown. None is asked unless one is
    named."""

    section: ClassVar[str] = "vision.vlm"

    projector: Path | None = Field(
        None, description="the GGUF of a local model's projector (mmproj), with which it sees"
    )
    requests: CountOrZero = Field(10, description="a video at most, second tries among them")
    tokens: CountOrZero = Field(
        100_000, description="a video at most, of questions, pictures and replies"
    )
    choices: Annotated[int, Field(ge=2, le=20)] = Field(
        8, description="places that a question offers, a picture each"
    )
    steps: Annotated[int, Field(ge=1, le=10)] = Field(
        3, description="that one question asks about, of the same pictures"
    )
    together: bool = Field(
        False,
        description="put the pictures of a question side by side in one, for servers that take one",
    )
    picture_size: Annotated[int, Field(ge=64, le=2048)] = Field(
        336, description="pixels of a picture's shorter side"
    )
    least_gain: Fraction = Field(
        0.005,
        description="rise of P(a step's most likely place is right) that a question must promise",
    )
    right: Positive = Field(
        4.0,
        description="answers of this model that were right in other videos. By default as if of 5",
    )
    wrong: Positive = Field(1.0, description="and that were wrong")
    dry_run: bool = Field(False, description="ask no one, the record says what would be asked")
    cache: bool = Field(
        True,
        description="keep good replies in the cache folder, keyed by model, settings, words and "
        "pictures",
    )

    @property
    def named(self) -> bool:
        """Whether anyone is to be asked."""
        return self.base_url is not None or self.gguf is not None

    @property
    def projector_file(self) -> Path | None:
        """The GGUF file of the projector."""
        return self.projector

    @model_validator(mode="before")
    @classmethod
    def _drop_old_folders(cls, tree: Any) -> Any:
        """Recipes of earlier releases store these two, always empty."""
        if isinstance(tree, dict):
            tree = {name: value for name, value in tree.items() if name not in OLD_FOLDERS or value}
        return tree

    @model_validator(mode="after")
    def _sees_one_way(self) -> "VisionLanguageSettings":
        if self.gguf is not None and self.projector is None:
            raise ValueError("a GGUF needs a projector to see; name its file as projector")
        return self


# Stored only where one is named: what no one is asked decides no result.
OptionalVlm: TypeAlias = Annotated[
    VisionLanguageSettings, Field(exclude_if=lambda vlm: not vlm.named)
]


class VisionSettings(Settings):
    """How frames become features."""

    backbone: BackboneName = Field(
        "conse",
        description='clip, internvideo, s3d, s3d-mixed5c, precomputed, a plugin\'s. "none": speech '
        "alone",
    )
    path: Path | None = Field(
        None,
        description="clip: checkpoint folder, internvideo and s3d: weights, precomputed: feature "
        "file or folder",
    )
    texts: Path | None = Field(
        None,
        description="precomputed: text features (.pth, .npz, .safetensors) of the lines to ground",
    )
    unit: bool = Field(
        True,
        description="precomputed, internvideo: rows of length 1. false: for a network trained on "
        "them as they are",
    )
    hub: str | None = Field(
        None,
        description="clip: a checkpoint's name on the model hub. Naming one allows the download",
    )
    dictionary: Path | None = Field(
        None,
        description="s3d: s3d_dict.npy, internvideo: bpe_simple_vocab_16e6.txt.gz. None: next to "
        "the weights",
    )
    tokens: Literal["released", "tan"] = Field(
        "released", description="s3d: how texts are cut into words. TAN keeps unknown ones"
    )
    rate: Annotated[float, Field(ge=0.01, le=240.0)] = Field(
        1.0, description="rows per second. The NaSVA paper has 1 Hz"
    )
    frame_size: Annotated[int, Field(ge=32, le=4096)] = Field(
        256, description="pixels of a decoded frame's shorter side"
    )
    batch: Batch = Field(
        4, description="frames encoded together, 4 fits the caches best, for speed alone"
    )
    classes: Annotated[int, Field(ge=1, le=1000)] = Field(
        10, description="conse: T of Norouzi et al. 2013, their best"
    )
    text_model: str = Field(
        "minilm", description="conse: the space of names and texts, as `text.embed` takes it"
    )
    faces: bool = Field(
        True,
        description="whether faces that look at the camera are looked for, which tell talk from "
        "doing",
    )
    screen_text: bool = Field(True, description="whether text in the picture is found and read")
    screen: Annotated[
        Literal["auto", "on", "off"], Field(exclude_if=lambda screen: screen == "auto")
    ] = Field(
        "auto",
        description="whether the video is a screen recording, whose steps are where the screen "
        'changes. "auto": looked for. Left out of records where it is "auto"',
    )
    vlm: OptionalVlm = Field(
        VisionLanguageSettings(), description="a vision-language model that is asked (docs/vlm.md)"
    )

    @model_validator(mode="before")
    @classmethod
    def _read_old_name(cls, tree: Any) -> Any:
        if isinstance(tree, dict) and "witness" in tree:
            tree = dict(tree)
            tree.setdefault("vlm", tree.pop("witness"))
        return tree

    @model_serializer(mode="wrap")
    def _store_old_name(self, stored: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Store `vlm` as "witness", which records of all releases have."""
        tree: dict[str, Any] = stored(self)
        if "vlm" in tree:
            tree["witness"] = tree.pop("vlm")
        return tree

    @property
    def text_space(self) -> str:
        """Name of the encoder whose vectors texts become: that of conse's texts, else the
        backbone's own."""
        if self.backbone == "s3d-mixed5c":
            return "s3d"
        if self.backbone == "conse":
            return self.text_model
        return self.backbone

    @property
    def unit_rows(self) -> bool:
        """Whether rows of features have length 1."""
        if self.backbone in ("precomputed", "internvideo"):
            return self.unit
        return self.backbone != "s3d-mixed5c"
