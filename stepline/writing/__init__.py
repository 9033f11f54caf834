"""Steps from a transcript: what the speaker does or instructs the viewer to do, one imperative
action per step."""

from typing import TYPE_CHECKING

from stepline.plugins import load_plugin
from stepline.progress import Progress
from stepline.records import Transcript
from stepline.writing.settings import WritingSettings
from stepline.writing.types import WrittenSteps

if TYPE_CHECKING:
    from stepline.writing.extractive.narration import ParsedNarration

__all__ = ["WritingSettings", "WrittenSteps", "check_writer", "write_steps"]


def check_writer(settings: WritingSettings) -> None:
    """Raise an error where the language model that writes is missing. Other writers pass.

    Raises WriterError where its server is missing, ModelError where its file or the fetched model is.
    """
    if settings.writer == "llm" and not settings.llm.dry_run:
        from stepline.llm.availability import check_available

        check_available(settings.llm.with_model())


def write_steps(
    transcript: Transcript,
    settings: WritingSettings | None = None,
    *,
    title: str = "",
    narration: "ParsedNarration | None" = None,
    progress: Progress | None = None,
) -> WrittenSteps:
    """Return the steps that the transcript describes, each with its source sentences.

    Args:
        transcript: sentences with their times.
        settings: which writer, and how it writes.
        title: of the video, for a language model; "" without one.
        narration: the parsed transcript, for the extractive writer, where it exists already.
        progress: called with "writing", the second of the transcript up to which a language model has
            written, and the transcript's last second.
    Raises ModelError when the writer's model is missing, WriterError when it fails.
    """
    settings = WritingSettings() if settings is None else settings
    # A writer's libraries are loaded only where it is chosen.
    if settings.writer == "llm":
        from stepline.writing.llm.writer import write_llm

        return write_llm(
            transcript,
            settings.llm,
            title=title,
            writing=settings,
            narration=narration,
            progress=progress,
        )
    # A plugin's writer.
    if settings.writer != "extractive":
        written: WrittenSteps = load_plugin("writers", settings.writer)(transcript, settings)
        return written
    from stepline.writing.extractive.writer import write_extractive

    return write_extractive(transcript, settings, narration=narration)
