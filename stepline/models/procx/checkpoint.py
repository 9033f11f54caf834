"""ProcX on disk: one safetensors file with weights, settings and vocabulary, so that none of them
goes alone."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from stepline.errors import ModelError
from stepline.files.digests import sha256
from stepline.models.procx.model import ProcX
from stepline.models.procx.settings import ModelSettings
from stepline.models.procx.vocabulary import MARK_TOKENS, Vocabulary
from stepline.models.training.network_file import Header, NetworkFile, TrainedOn
from stepline.records import FeatureSequence

PROCX_FILE = NetworkFile(
    kind="stepline.procx",
    version=1,
    title="a ProcX network",
    writer="`stepline train procx`",
    names=("best.safetensors", "procx.safetensors"),
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


@dataclass(frozen=True)
class LoadedProcx:
    """A network at rest with its vocabulary. path: its file, sha256: of that file."""

    model: ProcX
    vocabulary: Vocabulary
    trained: TrainingFeatures
    path: Path
    sha256: str

    def check(self, features: FeatureSequence) -> None:
        """Raise ModelError where features are not of the kind that it was trained on."""
        self.check_space(features.backbone, features.rate)
        self._trained_on.check_width(self.model.settings.features, features)

    def check_space(self, backbone: str, rate: float) -> None:
        """Raise ModelError where the backbone, or the rows per second, are not those of its
        training."""
        self._trained_on.check_source("features", self.trained.backbone, backbone)
        self._trained_on.check_rate(self.trained.rate, rate)

    def check_scale(self, *, unit: bool) -> None:
        """Raise ModelError where rows were scaled to length 1 for a network that takes them as they
        are."""
        any_length = self.trained.unit or self.model.settings.standardise
        self._trained_on.check_scale(unit=unit, any_length=any_length)

    def check_speech(self) -> None:
        """Raise ModelError where it never read what is said."""
        if self.trained.around is None:
            cure = "leave --speech out, or train one with data.speech"
            raise ModelError(f"{self.path}: was trained on pictures alone; {cure}")

    @property
    def _trained_on(self) -> TrainedOn:
        own = self.trained.backbone
        cure = f"use the backbone that it was trained with ({own}), or another network"
        return TrainedOn(self.path, cure)


def write_model(
    model: ProcX, vocabulary: Vocabulary, path: Path, trained: TrainingFeatures
) -> None:
    """Write a network, float32, whole or not at all. Raises StoreError when the disk refuses."""
    header = {
        "settings": model.settings.model_dump(mode="json"),
        "vocabulary": {"tokens": vocabulary.tokens, "lower": vocabulary.lower},
        "trained": asdict(trained),
    }
    PROCX_FILE.write(path, model.state_dict(), header)


def load_model(path: Path) -> LoadedProcx:
    """Return the network in a file or a run's folder, ready to infer. Raises ModelError, naming
    what does not fit."""
    file = PROCX_FILE.find(path)

    def make_network(parsed: tuple[ModelSettings, Vocabulary, TrainingFeatures]) -> ProcX:
        settings, vocabulary, _ = parsed
        return ProcX(settings, len(vocabulary))

    parsed, model = PROCX_FILE.load(file, _parse, make_network)
    _, vocabulary, trained = parsed
    return LoadedProcx(model, vocabulary, trained, file, sha256(file))


def _parse(header: Header) -> tuple[ModelSettings, Vocabulary, TrainingFeatures]:
    # A setting that the file has not is filled in as it was then, not as today's default.
    tree = SETTINGS_OF_OLDER_FILES | header["settings"]
    settings = ModelSettings.model_validate_json(json.dumps(tree))
    tokens = tuple(header["vocabulary"]["tokens"])
    has_marks = tokens[: len(MARK_TOKENS)] == MARK_TOKENS
    if not has_marks or not all(isinstance(token, str) for token in tokens):
        raise ValueError("its vocabulary is not valid")
    vocabulary = Vocabulary(tokens, bool(header["vocabulary"]["lower"]))
    trained = TrainingFeatures(**header["trained"])
    return settings, vocabulary, trained
