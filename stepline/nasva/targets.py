"""From where a text is placed, in seconds, to the rows that training counts as showing it: Y of NaSVA section 3.2."""

import math
from collections.abc import Sequence

import numpy as np

from stepline.batches import Flags, Sample
from stepline.errors import ShapeError
from stepline.nasva.settings import LabelRule
from stepline.records import FeatureSequence, Matrix, Span


def labelled_sample(
    name: str,
    features: FeatureSequence,
    vectors: Matrix,
    spans: Sequence[Sequence[Span]],
    *,
    ordered: bool,
    rule: LabelRule = "covering",
) -> Sample:
    """Return a video with its texts as a training sample.

    vectors: (K, C) sentence vectors. spans: where each text is placed, empty where it is not.
    Raises ShapeError when they do not fit together.
    """
    if len(spans) != len(vectors):
        raise ShapeError(f"{name}: {len(vectors)} text vectors need as many lists of spans, not {len(spans)}")
    return Sample(name, features.values, vectors, targets(spans, features, rule), ordered)


def targets(spans: Sequence[Sequence[Span]], features: FeatureSequence, rule: LabelRule = "covering") -> Flags:
    """Return Y (K, T): in which feature rows each text is shown.

    covering: every row that a span touches, at one row a second [floor(start), max(floor(start) + 1, ceil(end)));
    never empty inside the video. inclusive: start <= t <= end where row t starts, both ends in, as the released loss
    has it; empty for a span between two rows, and 9 rows for one of 8 whole seconds. Past the video: no row.
    """
    labels = np.zeros((len(spans), len(features.values)), dtype=np.bool_)
    for row, places in zip(labels, spans, strict=True):
        for span in places:
            row[labelled_rows(span, features, rule)] = True
    return labels


def labelled_rows(span: Span, features: FeatureSequence, rule: LabelRule = "covering") -> slice:
    """Return the rows that a span labels; past the last row, or empty, where it labels none."""
    if rule == "inclusive":
        return slice(math.ceil(span.start * features.rate), math.floor(span.end * features.rate) + 1)
    rows = features.rows(span)
    return slice(rows.start, max(rows.stop, rows.start + 1))
