"""All settings of placing steps in the video."""

from stepline.nasva.aligner_settings import AlignerSettings
from stepline.nasva.settings import CoarseSettings, GroundSettings
from stepline.settings import Settings


class NasvaSettings(Settings):
    """Placing steps in the video."""

    coarse: CoarseSettings = CoarseSettings()
    ground: GroundSettings = GroundSettings()
    aligner: AlignerSettings = AlignerSettings()
