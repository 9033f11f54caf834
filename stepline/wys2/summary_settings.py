"""Settings of summaries; nothing heavy is imported here."""

from typing import Annotated

from pydantic import Field

from stepline.settings import NonNegative, Positive, Settings


class SummarySettings(Settings):
    """How long a summary is, and where it may be cut."""

    seconds: Positive | None = None  # most seconds; None: every shown step
    share: Annotated[float, Field(gt=0.0, le=1.0)] | None = None  # most of the video's length; the smaller one counts
    gap: NonNegative = 1.0  # s; segments closer than this become one
    reach: NonNegative = 6.0  # s an end moves to leave a sentence whole; else to a word's end
    pad: NonNegative = 0.15  # s of the pause kept before and after speech

    def target(self, duration: float) -> float | None:
        """Return the most seconds that a summary of a video of `duration` s may have; None: no limit."""
        limits = [self.seconds, None if self.share is None else self.share * duration]
        return min((limit for limit in limits if limit is not None), default=None)
