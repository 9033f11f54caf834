"""The annotated set as files: labels for `stepline evaluate vnd`, the clips behind them, and how it came about."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from stepline.annotate.answers import ASKED, NEEDED, Agreement, Answer, agreement, consensus
from stepline.annotate.clips import AnnotationClip, write_clips
from stepline.errors import DatasetError
from stepline.storage import write_atomic

LABELS, CLIPS, REPORT = "vnd.json", "vnd_clips.json", "vnd_report.json"


def export(
    clips: Sequence[AnnotationClip],
    answers: Sequence[Answer],
    folder: Path,
    *,
    asked: int = ASKED,
    needed: int = NEEDED,
) -> Agreement:
    """Write the clips on which enough annotators agree, and return how well they agree.

    Raises DatasetError when there is none.
    """
    verdicts = consensus(answers, asked=asked, needed=needed)
    agreed = [clip.model_copy(update={"shown": verdicts.get(clip.id)}) for clip in clips]
    kept = {clip.id: clip for clip in agreed if clip.shown is not None}
    if not kept:
        raise DatasetError(f"no clip has {asked} answers of which {needed} agree yet; annotate on, or ask fewer")
    measured = agreement(answers, asked=asked, needed=needed)
    write_atomic(folder / LABELS, json.dumps({id: int(bool(clip.shown)) for id, clip in kept.items()}, indent=1) + "\n")
    write_clips(kept.values(), folder / CLIPS)
    report = {
        "agreement": asdict(measured), "asked": asked, "needed": needed,
        "without consensus": sorted(id for id, verdict in verdicts.items() if verdict is None),
        "not yet answered by all": sorted(clip.id for clip in clips if clip.id not in verdicts),
        "seconds": round(sum(clip.span.duration for clip in kept.values()), 1),
        "annotators": dict(sorted(Counter(answer.annotator for answer in answers).items())),
        "confidence": dict(sorted(Counter(answer.confidence for answer in answers).items())),
    }  # fmt: skip
    write_atomic(folder / REPORT, json.dumps(report, ensure_ascii=False, indent=1) + "\n")
    return measured
