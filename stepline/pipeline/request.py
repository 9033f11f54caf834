"""The input of the main job: the settings of every stage, and one video with what the user gives with it."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from stepline.media.settings import LinkSettings, MediaSettings
from stepline.models.nasva.settings import NasvaSettings
from stepline.models.procx.settings import DescribeSettings
from stepline.models.wys2.settings import JudgeSettings
from stepline.records import LinkOrigin, Span
from stepline.settings import Settings
from stepline.speech.settings import AsrSettings
from stepline.vision.settings import VisionSettings
from stepline.writing.settings import WritingSettings

if TYPE_CHECKING:
    from stepline.grounding.speech import TaskGraph


class StepsSettings(Settings):
    """Every setting of the main job, a section per package."""

    media: MediaSettings = MediaSettings()
    asr: AsrSettings = AsrSettings()
    writing: WritingSettings = WritingSettings()
    vision: VisionSettings = VisionSettings()
    nasva: NasvaSettings = NasvaSettings()
    judge: JudgeSettings = JudgeSettings()
    procx: DescribeSettings = DescribeSettings()
    links: LinkSettings = LinkSettings()


class RequestOptions(TypedDict, total=False):
    """Optional fields of a `Request`."""

    part: Span | None
    title: str | None
    graph: "TaskGraph | None"


class SourceOptions(RequestOptions, total=False):
    """Optional inputs of a video that the page of a link can supply. texts=None takes the titles of its chapters."""

    captions: Path | None
    texts: tuple[str, ...] | None


@dataclass(frozen=True)
class Request:
    """One video and what the user gives with it.

    Attributes:
        path: its file.
        id: names its outputs.
        captions: a file that replaces speech recognition. The path itself if there is no video.
        texts: the user's own lines to find, instead of steps written from the speech.
        origin: the page of a video that was downloaded.
        kept: whether the file stays, so that outputs may link it.
        part: the only seconds of the video that are used.
        title: given by the user.
        graph: the steps of other videos of the task, if the texts are its lines.
    """

    path: Path
    id: str
    captions: Path | None = None
    texts: tuple[str, ...] = ()
    origin: LinkOrigin | None = None
    kept: bool = True
    part: Span | None = None
    title: str | None = None
    graph: "TaskGraph | None" = None

    @property
    def start(self) -> float:
        """Second of the video at which the part begins."""
        return 0.0 if self.part is None else self.part.start

    @property
    def is_captions_only(self) -> bool:
        """Whether there are captions and no video."""
        return self.captions == self.path
