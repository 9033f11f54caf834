import pytest

from stepline.pipeline.understand import drop_speech_past_end
from stepline.records import Sentence, Span, Step, Transcript

TRANSCRIPT = Transcript(
    sentences=tuple(Sentence(text=f"said at {start}", span=Span(start, start + 3.0)) for start in (0.0, 8.0, 12.0))
)


def step(*sources):
    return Step(id="1", text="cut", sources=sources, said=Span(0.0, 20.0))


def test_what_lies_within_is_untouched():
    kept = drop_speech_past_end(12.5, TRANSCRIPT, [step(2)], keep_all_steps=False)
    assert kept.transcript is TRANSCRIPT
    assert kept.steps == (step(2),)
    assert kept.dropped == kept.warnings == ()


def test_sentences_after_the_end_go_with_the_steps_that_rest_on_nothing_else():
    kept = drop_speech_past_end(12.0, TRANSCRIPT, [step(1), step(2), step(0, 2)], keep_all_steps=False)
    assert [sentence.span.start for sentence in kept.transcript.sentences] == [0.0, 8.0]
    assert [one.sources for one in kept.steps] == [(1,), (0,)]
    assert kept.steps[1].said == Span(0.0, 3.0)
    assert [(item.what, item.text) for item in kept.dropped] == [("sentence", "said at 12.0"), ("step", "cut")]
    assert "1 of 3 sentences" in kept.warnings[0]


@pytest.mark.parametrize("sources", [(), (2,)])
def test_a_line_of_the_users_own_stays(sources):
    (line,) = drop_speech_past_end(12.0, TRANSCRIPT, [step(*sources)], keep_all_steps=True).steps
    assert line.sources == ()
    assert (line.said is None) == (sources == (2,))
