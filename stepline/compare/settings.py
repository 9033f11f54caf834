"""Settings of the comparison of many videos of one task. Nothing heavy is imported here."""

from typing import Annotated

from pydantic import Field

from stepline.settings import CountOrZero, Fraction, Settings


class CompareSettings(Settings):
    """Settings of the alignment of many videos' steps into one procedure."""

    video_likeness: Fraction = Field(
        0.5,
        description="least similarity of a video to the others of its task. It is the mean cosine "
        "of each step with the most similar step of another video, in both directions. See "
        "docs/results/compare.md",
    )
    step_likeness: Fraction = 0.55
    """least cosine of a step with a group of steps that it joins in order"""
    moved_likeness: Fraction = 0.65
    """least cosine of a step with a group that it joins out of order"""
    repeated_likeness: Fraction = 0.8
    """least cosine of a step with a group that has a step of the same video"""
    rounds: CountOrZero = 2
    """how often each video is taken out of the alignment and aligned again"""
    common_share: Annotated[float, Field(gt=0.0, le=1.0)] = 0.5
    """least share of the videos, and never fewer than two, that do a step of the common procedure"""


class CompareRunSettings(Settings):
    """The settings of `stepline compare`."""

    compare: CompareSettings = CompareSettings()
