"""Texts before they are words: what each line means, how much of it is said, and where it is shown."""

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from stepline.world.simulate.tasks import Ints
from stepline.world.simulate.timeline import Times

Style: TypeAlias = Literal["narration", "step", "recipe"]
STYLES: Final[tuple[Style, ...]] = ("narration", "step", "recipe")

SAID: Final = 0
DROPPED: Final = 1  # a pronoun stands in its place
MISHEARD: Final = 2  # the recogniser wrote another word

NONE: Final = -1  # no action, object, step, window or chat

Marks: TypeAlias = npt.NDArray[np.int8]


@dataclass(frozen=True)
class Lines:
    """K texts of one style; every array has K rows.

    action, object, chat: what a line means, numbers of the world's vocabulary or NONE. step: the task's step that it
    tells, NONE for chat. window: the window it tells of, NONE where the video does not show it. times: (K, 2) when it
    is said, NaN for lines that nobody says. said_action, said_object: SAID, DROPPED or MISHEARD. wording: picks the
    words. sources: for each line the narrations that it was written from.
    """

    style: Style
    action: Ints
    object: Ints
    chat: Ints
    step: Ints
    window: Ints
    times: Times
    said_action: Marks
    said_object: Marks
    wording: Ints
    sources: tuple[tuple[int, ...], ...] = ()

    def __len__(self) -> int:
        return len(self.action)

    @property
    def shown(self) -> npt.NDArray[np.bool_]:
        """Tell for each line whether the video shows it."""
        return np.asarray(self.window != NONE)
