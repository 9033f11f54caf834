"""Settings of a training run of the grounding network; nothing heavy is imported here."""

from stepline.nasva.data_settings import DataSettings
from stepline.nasva.model_settings import LossSettings, ModelSettings
from stepline.settings import Settings
from stepline.training_settings import TrainSettings


class RunSettings(Settings):
    """All that `stepline train nasva` can be told; `model.video_width` and `model.text_width` are the features' own."""

    model: ModelSettings = ModelSettings()
    loss: LossSettings = LossSettings()
    data: DataSettings = DataSettings()
    train: TrainSettings = TrainSettings()
