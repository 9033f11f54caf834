"""Settings of the comparison of many videos of one task. Nothing heavy is imported here."""

from typing import Annotated

from pydantic import Field

from stepline.settings import CountOrZero, Fraction, Settings


class CompareSettings(Settings):
    """How the steps of many videos become one procedure."""

    # least likeness of a video to the others of its task. It is the mean cosine of each step with
    # the most similar one of another video, both ways. See docs/results/compare.md
    video_likeness: Fraction = 0.5
    # least cosine of a step with a group of steps that it joins in order
    step_likeness: Fraction = 0.55
    # the same for a step that joins out of order
    moved_likeness: Fraction = 0.65
    # the same for a further step of a video in a group
    repeated_likeness: Fraction = 0.8
    # how often each video is taken out of the alignment and aligned again
    rounds: CountOrZero = 2
    # least share of the videos, and never fewer than two, that do a step of the common procedure
    common_share: Annotated[float, Field(gt=0.0, le=1.0)] = 0.5


class CompareRunSettings(Settings):
    """The settings of `stepline compare`."""

    compare: CompareSettings = CompareSettings()
