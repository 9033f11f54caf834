"""Settings of the judge; nothing heavy is imported here."""

from pathlib import Path

from stepline.settings import Positive, Settings


class JudgeSettings(Settings):
    """Who says whether the picture shows what is said."""

    detector: Path | None = None  # file or run folder of a trained detector; None: the wording and the picture's fit
    seconds: Positive = 3.0  # of the clip in which a sentence is judged, at least
