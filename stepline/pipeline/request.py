"""What the main job is asked: the settings of every stage, and one video with what the user
adds."""

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
    """Every setting of the main job, one section a package."""

    media: MediaSettings = MediaSettings()
    asr: AsrSettings = AsrSettings()
    writing: WritingSettings = WritingSettings()
    vision: VisionSettings = VisionSettings()
    nasva: NasvaSettings = NasvaSettings()
    judge: JudgeSettings = JudgeSettings()
    procx: DescribeSettings = DescribeSettings()
    links: LinkSettings = LinkSettings()


class RequestOptions(TypedDict, total=False):
    """Optional inputs that come with a video, as in `Request`."""

    part: Span | None
    title: str | None
    graph: "TaskGraph | None"


class SourceOptions(RequestOptions, total=False):
    """Optional inputs that a link's page can supply. texts=None: the titles of its chapters."""

    captions: Path | None
    texts: tuple[str, ...] | None


@dataclass(frozen=True)
class Request:
    """One video and what the user gives with it.

    id: keys the outputs.
    captions: a file that replaces recognition. Where it is the path itself, there is no video.
    texts: the user's own lines to ground, instead of steps written from the speech.
    graph: what other videos of the task do, whose lines the texts are.
    origin: of a video that was fetched.
    kept: whether the file stays, so that outputs may name it.
    part: the seconds that are heard and looked at alone.
    title: what the user calls it.
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
        """Second of the whole video at which the part begins."""
        return 0.0 if self.part is None else self.part.start

    @property
    def captions_alone(self) -> bool:
        """Whether there are captions and no video."""
        return self.captions == self.path
