"""Settings of a training run of ProcX; nothing heavy is imported here."""

from typing import Annotated, Final

from pydantic import Field

from stepline.procx.data_settings import DataSettings
from stepline.procx.loss_settings import LossSettings
from stepline.procx.model_settings import ModelSettings
from stepline.procx.text_settings import VocabularySettings
from stepline.settings import Count, NonNegative, Positive, Settings
from stepline.training_settings import TrainSettings


class ProcxTrainSettings(TrainSettings):
    """How long and how fast ProcX learns; defaults are section E.2's for YouCook2."""

    epochs: Count = 20  # section E.2; Tasty: 30; pre-training: 10
    batch: Count = 8  # videos a step; section E.2; pre-training: 64
    warmup: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.1  # share of the steps in which the rate rises; unsaid
    weight_decay: NonNegative = 1e-3  # AdamW's, of matrices alone; section E.2
    clip: Positive = 0.1  # greatest norm of a gradient; section E.2


PROCX_TRAINING: Final = ProcxTrainSettings()


class ProcxRunSettings(Settings):
    """All that `stepline train procx` can be told; `model.features` is the features' own width."""

    model: ModelSettings = ModelSettings()
    vocabulary: VocabularySettings = VocabularySettings()
    loss: LossSettings = LossSettings()
    data: DataSettings = DataSettings()
    train: ProcxTrainSettings = PROCX_TRAINING
