"""Settings of the report and the audit; none of them changes the dataset."""

from pathlib import Path
from typing import Annotated

from pydantic import Field

from stepline.settings import CountOrZero, Settings


class ReportSettings(Settings):
    """What the report shows of a dataset."""

    seed: int = 0  # of all that is drawn at random
    audit_videos: CountOrZero = 10  # videos that people check; as many as NaSVA's authors did
    audit_texts: CountOrZero = 25  # sentences and steps of each, at most
    frames: bool = True  # key frames of the audited texts in the page; 3 to 6 kB each
    frame_width: Annotated[int, Field(ge=32, le=640)] = 176  # pixels
    steps_read: CountOrZero = 5000  # steps whose verbs and objects are counted for the cloud
    videos_compared: CountOrZero = 20000  # videos among which near-duplicates are sought
    task: str | None = None  # whose steps are drawn in the plane; none: the task with most placed steps
    points: CountOrZero = 400  # steps drawn there, at most
    text_base: Path | None = None  # wikiHow-like texts (`stepline text-base build`) that tasks are compared with
