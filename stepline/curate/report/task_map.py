"""One task's steps in the plane: those of alike meaning stand together (NaSVA, figure 6b)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stepline.errors import ModelError
from stepline.records import Matrix

FEWEST = 6  # steps below which nothing is drawn
PERPLEXITY = 30.0  # scikit-learn's default; at most a third of the steps
SEED = 0


@dataclass(frozen=True)
class TaskMap:
    """points: (N, 2). order: of each step in its video, 0 first, 1 last."""

    task: str
    texts: tuple[str, ...]
    order: tuple[float, ...]
    points: npt.NDArray[np.floating]


def task_map(task: str, texts: Sequence[str], order: Sequence[float]) -> TaskMap | None:
    """Return the steps of a task in the plane, None where there are too few. Raises ModelError without scikit-learn."""
    if len(texts) < FEWEST:
        return None
    from stepline.text import embed

    return TaskMap(task, tuple(texts), tuple(order), plane(embed(list(texts))))


def plane(vectors: Matrix) -> npt.NDArray[np.floating]:
    """Return (N, 2) for (N, D) vectors by t-SNE from the first principal components, with a fixed seed."""
    try:
        from sklearn.manifold import TSNE
    except ImportError as error:
        raise ModelError("scikit-learn: not installed, and t-SNE needs it; pip install 'stepline[report]'") from error
    perplexity = min(PERPLEXITY, (len(vectors) - 1) / 3)
    reduced = TSNE(perplexity=perplexity, init="pca", random_state=SEED, n_jobs=1).fit_transform(vectors)
    return np.asarray(reduced, dtype=np.float64)
