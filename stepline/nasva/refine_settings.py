"""Settings of `stepline refine`; nothing heavy is imported here."""

from typing import Literal, TypeAlias

from stepline.nasva.data_settings import DataSettings
from stepline.nasva.model_settings import LossSettings, ModelSettings
from stepline.nasva.selftrain_settings import SelfTrainSettings
from stepline.nasva.settings import CoarseSettings
from stepline.settings import Settings
from stepline.training_settings import TrainSettings

Said: TypeAlias = Literal["given", "likeness"]


class RefineRunSettings(Settings):
    """All that `stepline refine` can be told; `model.video_width` and `model.text_width` are the features' own."""

    said: Said = "given"  # where a step is said: as its record has it, or by likeness to the narration anew
    coarse: CoarseSettings = CoarseSettings()
    data: DataSettings = DataSettings()
    model: ModelSettings = ModelSettings()
    loss: LossSettings = LossSettings()
    train: TrainSettings = TrainSettings()  # of the final network; teachers stop after rounds.teacher_epochs
    rounds: SelfTrainSettings = SelfTrainSettings()
