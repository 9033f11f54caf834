"""The user's own lines, found in a video or in a file of features by a trained network."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from stepline.errors import SettingsError, ShapeError
from stepline.features.files import is_feature_file, read_feature_file
from stepline.grounding.said_to_shown import Array
from stepline.grounding.speech import TaskGraph, line_steps
from stepline.media import probe
from stepline.pipeline.networks import Networks, describe_inputs, load_aligner
from stepline.pipeline.pictures import VisualOptions, extract_features
from stepline.pipeline.request import Request, StepsSettings
from stepline.records import FeatureSequence, Matrix, Record, Video
from stepline.text import embed
from stepline.vision import Backbone, PrecomputedBackbone, load_backbone

if TYPE_CHECKING:
    from stepline.models.nasva.checkpoint import LoadedAligner


def ground_texts(
    source: Path,
    texts: Sequence[str],
    settings: StepsSettings,
    *,
    vectors: Path | None,
    order_probabilities: "Array | None",
    graph: "TaskGraph | None",
) -> Record:
    """Find the seconds in which each text is shown, by a trained network.

    Args:
        source: a video, or a file of video features.
        texts: K lines to find.
        settings: settings of all stages. `nasva.aligner.path` names the network.
        vectors: a file of the texts' features. None: the network's text encoder makes them.
        order_probabilities: (K, K) P(text i comes before text j). None: the order is unknown.
        graph: the comparison of videos from which the texts come. It gives each step's kind. None:
            the texts come from elsewhere.

    Returns a record whose steps are the texts. Raises ModelError, SettingsError, ShapeError or
    MediaError if an input is missing or does not fit.
    """
    from stepline.models.nasva.predict import ground_by_aligner

    if not texts:
        raise SettingsError("no lines to find; give a text file with one per line")
    ready = is_feature_file(source)
    request = Request(source, source.name.split(".")[0], texts=tuple(texts), graph=graph)
    if ready:
        # Rows are read as they are: a network either wants that or scales them itself.
        vision = settings.vision.model_copy(
            update={"backbone": "precomputed", "path": source, "unit": False}
        )
        settings = settings.model_copy(update={"vision": vision})
    aligner = load_aligner(settings)
    if aligner is None:
        raise SettingsError("nasva.aligner.path is not set; give a trained network with --aligner")
    # What does not fit ends the run before the pictures are decoded.
    backbone = None
    if not ready:
        backbone = load_backbone(settings.vision)
        aligner.check_width(backbone.name, backbone.dim)
    rows = text_vectors(texts, aligner, vectors, settings, backbone)
    aligner.check_text_width(rows.shape[1])
    if ready:
        features = read_feature_file(source, rate=settings.vision.rate, unit=settings.vision.unit)
        duration = features.duration
    else:
        features, duration = _extract_features(request, settings, backbone)
    grounding = ground_by_aligner(
        line_steps(texts, graph),
        aligner,
        features,
        rows,
        settings=settings.nasva.aligner,
        duration=duration,
        order_probabilities=order_probabilities,
    )
    return Record(
        id=request.id,
        video=Video(id=request.id, path=str(source.absolute()), duration=round(duration, 3)),
        steps=grounding.steps,
        recipe=tuple(texts),
        warnings=grounding.report.warnings,
        settings=describe_inputs(request, settings, Networks(aligner=aligner)),
        models={"vision": features.backbone, "grounding": {"aligner": grounding.report.aligner}},
    )


def text_vectors(
    texts: Sequence[str],
    aligner: "LoadedAligner",
    file: Path | None,
    settings: StepsSettings,
    backbone: "Backbone | None",
) -> Matrix:
    """Return (K texts, C) feature vectors of the texts.

    Args:
        texts: K lines.
        aligner: the network. It names the text encoder, else the backbone's text encoder is used.
        file: a file of vectors, used instead of an encoder. None: the encoder is used.
        settings: settings of all stages of finding steps.
        backbone: sees the pictures. None for ready features.

    Raises ModelError if that encoder is not available, StoreError if the file lacks a text.
    """
    from stepline.models.training.network import UNKNOWN_SOURCES

    # A file of vectors is taken as it is.
    if file is not None:
        ready = settings.vision.model_copy(update={"path": file, "texts": file})
        return PrecomputedBackbone(ready).encode_texts(texts)
    # Else the encoder has to be the one that the network was trained with.
    vision = settings.vision
    trained = aligner.space.text
    # a released network names no encoder: that of the backbone whose rows it takes
    of_backbone = trained in UNKNOWN_SOURCES and vision.text_space == vision.backbone
    if backbone is not None and (trained == vision.text_space or of_backbone):
        return backbone.encode_texts(texts)
    return embed(texts, model=aligner.get_text_encoder_name("--text-features"))


def read_order_matrix(path: Path, lines: int) -> Array:
    """Read the (K, K) matrix P(line i comes before line j) from a JSON list of lists.

    The value null stands for 0.5, an unknown order.

    Args:
        path: the JSON file.
        lines: K, the number of lines.
    """
    from stepline.datasets.files import read_json

    # Null means that the order of two lines is not known, so both orders are as likely.
    try:
        rows = [[0.5 if cell is None else float(cell) for cell in row] for row in read_json(path)]
        matrix = np.array(rows, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ShapeError(
            f"{path}: not a table of chances ({error}); give a list of {lines} lists"
        ) from error
    if matrix.shape != (lines, lines):
        raise ShapeError(
            f"{path}: a table of {matrix.shape} for {lines} lines; give one row and column per line"
        )
    return matrix


def _extract_features(
    request: Request, settings: StepsSettings, backbone: "Backbone | None"
) -> tuple[FeatureSequence, float]:
    """Return the (T rows, D) features of a video's pictures, and the seconds that they cover.

    Raises SettingsError for a video without a picture.
    """
    info = probe(request.path, settings.media)
    visual = extract_features(request, info, settings, VisualOptions(backbone))
    if visual.features is None:
        raise SettingsError(
            f"{request.path}: no picture in it can be seen, so no line is found; give another"
        )
    return visual.features, min(visual.end or visual.features.duration, visual.features.duration)
