import pytest
from curate_cells import NARRATION, transcript, work

from stepline.curate.settings import FilterSettings
from stepline.curate.stage import LeftOutError, Recipe
from stepline.curate.stages import per_video
from stepline.curate.stages.intermediate import ProbeResult, to_bytes
from stepline.curate.stages.per_video import FEW, LANGUAGE, LONG, SHORT, SILENT, SPARSE, FilterCounts, left_out_reason
from stepline.pipeline.understand import Speech
from stepline.records import Step
from stepline.writing import Written

SETTINGS = FilterSettings(shortest=5, longest=600, words=10, words_a_minute=15, steps=2)


@pytest.mark.parametrize(
    ("language", "duration", "words", "steps", "reason"),
    [
        ("en", 60.0, 100, 3, None),
        ("en-US", 60.0, 100, 3, None),
        (None, 60.0, 100, 3, None),  # nobody tells the language
        ("en", 4.9, 100, 3, SHORT),
        ("en", 600.5, 2000, 3, LONG),
        ("es", 60.0, 100, 3, LANGUAGE),
        ("es", 60.0, 9, 3, SILENT),  # two words are no language
        ("en", 60.0, 14, 3, SPARSE),
        ("en", 60.0, 15, 3, None),
        ("en", 60.0, 100, 1, FEW),
        ("en", 0.0, 100, 2, None),  # of an unknown length nothing is said
    ],
)
def test_a_video_is_left_out_for_its_first_reason(
    language: str | None, duration: float, words: int, steps: int, reason: str | None
) -> None:
    counts = FilterCounts(language=language, words=words, steps=steps)
    assert left_out_reason(counts, duration, SETTINGS) == reason


def test_the_stage_counts_words_and_raises_the_reason() -> None:
    spoken = Speech(transcript=transcript(*NARRATION.split(". ")))
    steps = tuple(Step(id=str(n), text="chop it") for n in range(2))
    results = {
        "probe": to_bytes(ProbeResult(duration=20.0, picture=True, sound=True)),
        "transcribe": to_bytes(spoken),
        "write": to_bytes(Written(steps=steps)),
    }
    assert b'"words":18' in per_video.filter_video(work(Recipe(), results=results))
    few = results | {"write": to_bytes(Written(steps=()))}
    with pytest.raises(LeftOutError, match="too few steps"):
        per_video.filter_video(work(Recipe(), results=few))
