"""The input of the main job: the settings of every stage, and one video with what the user gives with it."""

from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from stepline.grounding.speech import TaskGraph
from stepline.media.settings import LinkSettings, MediaSettings
from stepline.models.nasva.settings import NasvaSettings
from stepline.models.procx.settings import DescribeSettings
from stepline.models.wys2.settings import JudgeSettings
from stepline.records import LinkOrigin, Span
from stepline.settings import Settings
from stepline.speech.settings import AsrSettings
from stepline.vision.settings import VisionSettings
from stepline.writing.settings import WritingSettings


class StepsSettings(Settings):
    """All settings for finding the steps of a video, a section per package.

    The constructor raises pydantic's ValidationError for an unknown or invalid setting.
    `stepline.settings.load_settings(StepsSettings, overrides=["asr.beam=3"])` also reads the user's
    settings, and raises SettingsError.
    """

    media: MediaSettings = MediaSettings()
    asr: AsrSettings = AsrSettings()
    writing: WritingSettings = WritingSettings()
    vision: VisionSettings = VisionSettings()
    nasva: NasvaSettings = NasvaSettings()
    judge: JudgeSettings = JudgeSettings()
    procx: DescribeSettings = DescribeSettings()
    links: LinkSettings = LinkSettings()


class RequestOptions(TypedDict, total=False):
    """Optional fields of a `Request`.

    Attributes:
        part: start and end in seconds of the part of the video to use. None: the whole video.
        title: title given by the user. None: the title is found elsewhere.
        graph: the task graph, made from several videos, whose steps are the lines to find. None: the
            lines do not come from one.
    """

    part: Span | None
    title: str | None
    graph: "TaskGraph | None"


class SourceOptions(RequestOptions, total=False):
    """Optional inputs that are a file or lines of the user, or come from the web page of a link.

    Attributes:
        captions: a caption file. None: speech is recognised.
        texts: lines to find. None: the titles of the chapters on the web page.
    """

    captions: Path | None
    texts: tuple[str, ...] | None


@dataclass(frozen=True)
class Request:
    """One video and what the user gives with it.

    Attributes:
        path: the video file, or the caption file if there is no video.
        id: the id of the video's record. Output files are named after it.
        captions: a caption file, used instead of speech recognition. Equal to `path` if there is no
            video.
        texts: the user's lines to find, instead of steps that are written from the speech.
        origin: the web page from which the video was downloaded. None for a local file.
        kept: whether the video file is kept after the run, so that outputs may link it.
        part: start and end in seconds of the part to use. None: the whole video.
        title: title given by the user. None: the title is found elsewhere.
        graph: the comparison of videos from which `texts` come. None: the texts come from
            elsewhere.
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
