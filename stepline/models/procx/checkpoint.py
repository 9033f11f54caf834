"""ProcX on disk: one safetensors file with weights, settings and vocabulary."""

from dataclasses import asdict, dataclass
from pathlib import Path

from stepline.files.digests import sha256
from stepline.models.procx.model import ProcX
from stepline.models.procx.settings import ModelSettings
from stepline.models.procx.vocabulary import MARK_TOKENS, Vocabulary
from stepline.models.training.network import (
    FeatureSpace,
    Header,
    LoadedNetwork,
    NetworkFileFormat,
    parse_settings,
)

# settings that older files lack, where the default is another today
SETTINGS_OF_OLDER_FILES = {"position_form": "end"}


@dataclass(frozen=True)
class TrainingFeatures:
    """Kind of the video features that a network was trained on.

    Attributes:
        backbone: name of the feature extractor.
        rate: feature rows per second.
        unit: whether the feature rows were scaled to length 1.
    """

    backbone: str
    rate: float = 1.0
    unit: bool = False


HeaderParts = tuple[ModelSettings, Vocabulary, TrainingFeatures]


def _parse(header: Header) -> HeaderParts:
    tree = SETTINGS_OF_OLDER_FILES | header["settings"]
    if not tree.pop("refine", True):
        raise ValueError("its layers do not move the boxes of the layer before")
    if tree["attention"].get("padding", "zero") != "zero":
        raise ValueError("its attention reads the border beyond a level's ends")
    settings = parse_settings(ModelSettings, tree)
    trained = dict(header["trained"])
    trained.pop("around", None)  # seconds of speech that networks of earlier versions could read
    tokens = tuple(header["vocabulary"]["tokens"])
    has_marks = tokens[: len(MARK_TOKENS)] == MARK_TOKENS
    if not has_marks or not all(isinstance(token, str) for token in tokens):
        raise ValueError("its vocabulary is not valid")
    vocabulary = Vocabulary(tokens, bool(header["vocabulary"]["lower"]))
    return settings, vocabulary, TrainingFeatures(**trained)


NETWORK = NetworkFileFormat[HeaderParts, ProcX](
    kind="stepline.procx",
    version=1,
    title="a ProcX network",
    command="`stepline train procx`",
    file_names=("best.safetensors", "procx.safetensors"),
    parse=_parse,
    build=lambda parts: ProcX(parts[0], len(parts[1])),
    removed_weights=("captioner.transcript_",),
)


@dataclass(frozen=True)
class LoadedProcx(LoadedNetwork):
    """A trained network in evaluation mode.

    Attributes:
        model: the network.
        vocabulary: tokens of its captions.
        training_features: kind of the features that it was trained on.
    """

    model: ProcX
    vocabulary: Vocabulary
    training_features: TrainingFeatures


def write_model(
    model: ProcX, vocabulary: Vocabulary, path: Path, trained: TrainingFeatures
) -> None:
    """Write a network in float32 to a file, atomically. Raises StoreError when writing fails.

    Args:
        model: the network.
        vocabulary: tokens of its captions.
        path: file to write.
        trained: kind of the features that the network was trained on.
    """
    words = {"tokens": vocabulary.tokens, "lower": vocabulary.lower}
    NETWORK.write(path, model, {"vocabulary": words, "trained": asdict(trained)})


def load_model(path: Path) -> LoadedProcx:
    """Return the trained network of a file or of a run's folder, in evaluation mode.

    Raises ModelError for a file that is not such a network. The message says what is wrong.
    """
    file = NETWORK.find_file(path)
    (settings, vocabulary, trained), model = NETWORK.load(file)
    space = FeatureSpace(trained.backbone, "", trained.rate)
    accepts_normalized_rows = trained.unit or settings.standardise
    return LoadedProcx(
        file,
        sha256(file),
        space,
        settings.features,
        accepts_normalized_rows,
        model,
        vocabulary,
        trained,
    )
