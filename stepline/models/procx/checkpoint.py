"""ProcX on disk: one safetensors file with weights, settings and vocabulary, so that none of them
goes alone."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeAlias

from stepline.errors import ModelError
from stepline.files.digests import sha256
from stepline.models.procx.model import ProcX
from stepline.models.procx.settings import ModelSettings
from stepline.models.procx.vocabulary import MARK_TOKENS, Vocabulary
from stepline.models.training.network import (
    FeatureSpace,
    Header,
    LoadedNetwork,
    NetworkSpec,
    parse_settings,
)

# what networks were that do not say it, where the default is another today
SETTINGS_OF_OLDER_FILES = {"position_form": "end"}


@dataclass(frozen=True)
class TrainingFeatures:
    """What a network was trained on: the backbone of its features, and rows per second.

    unit: its feature rows had length 1.
    around: seconds before and after a step whose speech it reads, None for none.
    """

    backbone: str
    rate: float = 1.0
    unit: bool = False
    around: float | None = None


HeaderParts: TypeAlias = tuple[ModelSettings, Vocabulary, TrainingFeatures]


def _parse(header: Header) -> HeaderParts:
    # A setting that the file has not is filled in as it was then, not as today's default.
    tree = SETTINGS_OF_OLDER_FILES | header["settings"]
    attention = dict(tree["attention"])
    attention.pop("query_start", None)  # of a fresh network alone
    if attention.pop("padding", "zero") != "zero":
        raise ValueError("its attention reads the border beyond a level's ends")
    settings = parse_settings(ModelSettings, tree | {"attention": attention})
    tokens = tuple(header["vocabulary"]["tokens"])
    has_marks = tokens[: len(MARK_TOKENS)] == MARK_TOKENS
    if not has_marks or not all(isinstance(token, str) for token in tokens):
        raise ValueError("its vocabulary is not valid")
    vocabulary = Vocabulary(tokens, bool(header["vocabulary"]["lower"]))
    return settings, vocabulary, TrainingFeatures(**header["trained"])


NETWORK = NetworkSpec[HeaderParts, ProcX](
    kind="stepline.procx",
    version=1,
    title="a ProcX network",
    command="`stepline train procx`",
    file_names=("best.safetensors", "procx.safetensors"),
    parse=_parse,
    build=lambda parts: ProcX(parts[0], len(parts[1])),
)


@dataclass(frozen=True)
class LoadedProcx(LoadedNetwork):
    """A network in evaluation mode with its vocabulary."""

    model: ProcX
    vocabulary: Vocabulary
    trained: TrainingFeatures

    def check_speech(self) -> None:
        """Raise ModelError where it never read what is said."""
        if self.trained.around is None:
            cure = "leave --speech out, or train one with data.speech"
            raise ModelError(f"{self.path}: was trained on pictures alone; {cure}")


def write_model(
    model: ProcX, vocabulary: Vocabulary, path: Path, trained: TrainingFeatures
) -> None:
    """Write a network, float32, whole or not at all. Raises StoreError when the disk refuses."""
    words = {"tokens": vocabulary.tokens, "lower": vocabulary.lower}
    NETWORK.write(path, model, {"vocabulary": words, "trained": asdict(trained)})


def load_model(path: Path) -> LoadedProcx:
    """Return the network in a file or a run's folder, ready to infer. Raises ModelError, naming
    what does not fit."""
    file = NETWORK.find_file(path)
    (settings, vocabulary, trained), model = NETWORK.load(file)
    space = FeatureSpace(trained.backbone, "", trained.rate)
    accepts_unit_rows = trained.unit or settings.standardise
    return LoadedProcx(
        file, sha256(file), space, settings.features, accepts_unit_rows, model, vocabulary, trained
    )
