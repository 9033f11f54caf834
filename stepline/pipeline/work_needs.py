"""What the speaker says that the work needs, makes and takes, in the sentences that a video holds."""

from typing import TYPE_CHECKING

from stepline.records import Material, Transcript, WorkTime

if TYPE_CHECKING:
    from stepline.writing.extractive.reading import NarrationReading
    from stepline.writing.materials import NeededThings


def needed_things(narration: "NarrationReading | None", transcript: Transcript) -> "NeededThings":
    """Return the materials and tools that the work needs.

    narration: None where there is nothing in English to read. transcript: what the video holds of
    it.
    """
    from stepline.writing.materials import NeededThings, find_materials, materials_within

    if narration is None:
        return NeededThings()
    needed = find_materials(narration)
    count = len(transcript.sentences)
    materials = materials_within(needed.materials, count)
    tools = materials_within(needed.tools, count)
    return NeededThings(materials, tools)


def work_yields(
    narration: "NarrationReading | None", transcript: Transcript, title: str
) -> tuple[Material, ...]:
    """Return how much the work makes, where the speaker says so."""
    from stepline.writing.materials import find_yields, materials_within

    if narration is None:
        return ()
    return materials_within(find_yields(narration, title), len(transcript.sentences))


def work_times(
    narration: "NarrationReading | None", transcript: Transcript
) -> tuple[WorkTime, ...]:
    """Return how long the work takes, where the speaker says so."""
    from stepline.writing.materials import find_times, times_within

    if narration is None:
        return ()
    return times_within(find_times(narration), len(transcript.sentences))
