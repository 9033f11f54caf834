"""Does the picture show what is said? Labels of narration detection and of alignability, which are not the same.

**Alignability** (TAN, HTM-Align): the item is a sentence and its whole video; it is positive when ANY part of the video
shows what it says, early, late or while it is said. The score is the model's best over the video.

**Narration detection** (WYS2, section 3 and VND-Test): the item is a sentence and the clip in which it is SAID; it is
positive when that clip shows the action. Something shown only ten seconds later is alignable and still negative here.
VND-Test gives these labels itself. For HTM-Align WYS2 does not say how its labels follow from the alignable ones; here
a sentence is positive when it is alignable and the span where it is shown overlaps the span where it is said. The
official file holds the spoken times of sentences that are not alignable only, so this needs the transcript
(sentencified_htm); without it, an alignable sentence is taken at its annotated span and is always positive.
"""

import numpy as np
import numpy.typing as npt

from stepline.errors import DatasetError
from stepline.evaluate.htm_align import Annotation
from stepline.evaluate.spans import Pairs, as_spans


def alignable_labels(annotation: Annotation) -> npt.NDArray[np.bool_]:
    """Return (K,): whether any part of the video shows what the sentence says."""
    return annotation.alignable


def narration_labels(annotation: Annotation, spoken: Pairs | None = None) -> npt.NDArray[np.bool_]:
    """Return (K,): whether the sentence is shown while it is said. spoken: (K, 2) seconds of the transcript.

    Raises DatasetError when there is not one spoken span a sentence.
    """
    if spoken is None:
        return annotation.alignable
    said = as_spans(spoken, "spoken")
    if len(said) != len(annotation.spans):
        raise DatasetError(f"{len(said)} spoken spans for {len(annotation.spans)} sentences; give the same transcript")
    start = np.maximum(said[:, 0], annotation.spans[:, 0])
    end = np.minimum(said[:, 1], annotation.spans[:, 1])
    return np.asarray(annotation.alignable & (end > start))
