"""Where a video's steps are shown for good, by the network that self-training ended with."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from stepline.curate.stage_settings import PlacingSettings
from stepline.errors import DatasetError
from stepline.features import FeatureStore
from stepline.nasva.infer import Fit, Loaded, fit_texts, place_steps
from stepline.nasva.infer.foreign import calibrate_by_foreign
from stepline.nasva.infer.shown import calibration_path, write_calibration
from stepline.nasva.samples import matching_rows
from stepline.nasva.told import tell
from stepline.records import Matrix, Record


@dataclass(frozen=True)
class Vectors:
    """Features of videos and vectors of their steps, from two stores."""

    features: FeatureStore
    texts: FeatureStore

    def of(self, record: Record) -> Matrix:
        """Return (K, C) vectors of a record's steps. Raises DatasetError where they are of other texts."""
        rows = matching_rows(next(tell([record], "step")), self.texts)
        if rows is None:
            raise DatasetError(f"{record.id}: its step vectors are of other texts; remove the stage's folder")
        return self.texts.matrix(record.id)[rows]


def calibrated(
    loaded: Loaded, records: Sequence[Record], vectors: Vectors, settings: PlacingSettings
) -> tuple[Loaded, str]:
    """Return the network with P(shown) fitted to its own videos, stored beside it, and a line that says how it went."""
    if not settings.calibrate:
        return loaded, "not calibrated, as the recipe says"
    own = list(_fits(loaded, records, records, vectors, settings))
    half = max(1, len(records) // 2)
    foreign = list(_fits(loaded, records, [*records[half:], *records[:half]], vectors, settings))
    mode = settings.aligner.mode
    try:
        calibration, share = calibrate_by_foreign(loaded, own, foreign, mode=mode, rate=settings.shown_rate)
    except DatasetError as error:
        return loaded, f"not calibrated: {error}"
    write_calibration(calibration, calibration_path(loaded.path))
    return replace(loaded, calibration=calibration), f"{share:.0%} of the steps count as shown"


def placed(record: Record, loaded: Loaded, vectors: Vectors, settings: PlacingSettings) -> Record:
    """Return a record with its steps placed anew: spans, score and status."""
    fit = _fit(loaded, record, vectors.of(record), vectors, settings)
    duration = record.video.duration
    found = place_steps(record.steps, fit, loaded.calibration, settings=settings.aligner, duration=duration)
    told = {"network": "self-trained", "calibrated": loaded.calibration is not None}
    return record.model_copy(update={"steps": found.steps, "models": record.models | {"placing": told}})


def _fits(
    loaded: Loaded, records: Sequence[Record], texts: Sequence[Record], vectors: Vectors, settings: PlacingSettings
) -> Iterator[Fit]:
    """Yield how the texts of each second record fit the video of the first."""
    for record, other in zip(records, texts, strict=True):
        yield _fit(loaded, record, vectors.of(other), vectors, settings)


def _fit(loaded: Loaded, record: Record, texts: Matrix, vectors: Vectors, settings: PlacingSettings) -> Fit:
    features = vectors.features.read(record.id)
    return fit_texts(loaded.aligner, features, np.ascontiguousarray(texts), settings=settings.aligner)
