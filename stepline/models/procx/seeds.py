"""What trainings of several seeds came to: their scores and losses, each and together."""

import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stepline.limits import parse_json
from stepline.models.training.run_folder import LOG_FILE


@dataclass(frozen=True)
class SeedResult:
    """What came of a seed's training.

    score: the best on held-out videos, None without any.
    loss: of the last step.
    """

    seed: int
    folder: Path
    score: float | None
    loss: float


def seed_result(seed: int, folder: Path) -> SeedResult:
    """Return what the log of a finished run says."""
    text = (folder / LOG_FILE).read_text(encoding="utf-8")
    lines = [parse_json(line) for line in text.splitlines()]
    # Lines without a score are steps between two scorings.
    scores = [line["score"] for line in lines if "score" in line]
    last_loss = lines[-1]["loss"]
    return SeedResult(seed, folder, max(scores, default=None), last_loss)


def seed_summary(results: list[SeedResult]) -> dict[str, Any]:
    """Return the seeds' scores and losses with their mean and spread (standard deviation of a
    sample), plain."""
    rows = []
    for result in results:
        row = {
            "seed": result.seed,
            "folder": result.folder.name,
            "score": result.score,
            "loss": result.loss,
        }
        rows.append(row)
    scores = [result.score for result in results if result.score is not None]
    losses = [result.loss for result in results]
    return {"seeds": rows, "score": _mean_and_spread(scores), "loss": _mean_and_spread(losses)}


def _mean_and_spread(values: list[float]) -> dict[str, float] | None:
    """Return mean and standard deviation of a sample. The latter is 0 of a single value. None
    without a value."""
    if not values:
        return None
    spread = statistics.stdev(values) if len(values) > 1 else 0.0
    return {"mean": statistics.fmean(values), "spread": spread}
