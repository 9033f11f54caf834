"""Settings of a training run of ProcX; nothing heavy is imported here."""

from typing import Final

from stepline.procx.data_settings import DataSettings
from stepline.procx.loss_settings import LossSettings
from stepline.procx.model_settings import ModelSettings
from stepline.procx.text_settings import VocabularySettings
from stepline.settings import Settings
from stepline.training_settings import TrainSettings

PROCX_TRAINING: Final = TrainSettings(   # section E.2; Tasty: 30 epochs, pre-training: 10 with batch 64; warm-up unsaid
    epochs=20, batch=8, learning_rate=1e-4, warmup=0.1, weight_decay=1e-3, clip=0.1
)


class ProcxRunSettings(Settings):
    """All that `stepline train procx` can be told; `model.features` is the features' own width."""

    model: ModelSettings = ModelSettings()
    vocabulary: VocabularySettings = VocabularySettings()
    loss: LossSettings = LossSettings()
    data: DataSettings = DataSettings()
    train: TrainSettings = PROCX_TRAINING
