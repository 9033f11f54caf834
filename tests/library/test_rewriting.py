"""Steps are written again where people corrected their sentences, and only there."""

import pytest
from correction_samples import correction
from transcripts import transcript_of

from stepline.errors import ModelError
from stepline.library import rewriting
from stepline.library.corrections import ConflictError, apply_corrections
from stepline.library.rewriting import DROPPED_REASON, NO_STEP_REASON, PERSON_REASON, rewrite_steps
from stepline.records import Record, Step, Video
from stepline.writing import WritingSettings, WrittenSteps, write_steps

SAID = (
    "Hi everyone, welcome back to my kitchen.",
    "First of all, slice the banana.",
    "Now crack two eggs into the bowl.",
    "Then poor the silk into the bowl.",
    "Now take the whisk and whisk the batter until it's smooth.",
    "Thanks for watching and see you next time!",
)


def machine_record(writer="extractive", **settings):
    texts = {"slice the banana": 1, "crack two eggs into the bowl": 2}
    texts |= {"poor the silk into the bowl": 3, "take the whisk": 4}
    texts["whisk the batter until it's smooth"] = 4
    steps = tuple(
        Step(id=str(n), text=text, sources=(source,))
        for n, (text, source) in enumerate(texts.items(), start=1)
    )
    return Record(
        id="v",
        video=Video(id="v", duration=60.0),
        transcript=transcript_of(*SAID, every=5.0, seconds=4.0),
        steps=steps,
        settings={"writing": {"steps": "usual", **settings}},
        models={"writer": writer},
    )


def words(sentence, text):
    return {"do": "words", "sentence": sentence, "text": text}


def rewritten(new, earlier=(), record=None, settings=None):
    """The texts of the steps after a correction, and the steps that are kept."""
    record = record or machine_record()
    done, kept = rewrite_steps(record, earlier, new, settings or WritingSettings())
    after = apply_corrections(record, [*earlier, done]).record
    return {step.id: step.text for step in after.steps}, kept


@pytest.fixture
def asked(monkeypatch):
    """Writes "do WORDS" for each sentence with a verb, and keeps what it was asked for."""
    calls = []

    def write(transcript, settings, *, title):
        calls.append((transcript, settings, title))
        steps = [
            Step(id=str(n), text=f"do {sentence.text.lower()}", sources=(n,))
            for n, sentence in enumerate(transcript.sentences)
            if "everyone" not in sentence.text
        ]
        return WrittenSteps(tuple(steps))

    monkeypatch.setattr(rewriting, "write_steps", write)
    return calls


def test_the_writer_of_the_record_writes_the_step_of_the_corrected_words():
    new = correction(0, words(3, "Then pour the milk into the bowl."))
    texts, kept = rewritten(new)
    machine = {step.id: step.text for step in machine_record().steps}
    assert texts == machine | {"3": "pour the milk into the bowl"}
    assert kept == {}
    # what is written is what the writer writes of the whole corrected transcript
    corrected = apply_corrections(machine_record(), [new]).record
    assert list(texts.values()) == [step.text for step in write_steps(corrected.transcript).steps]
    fork = words(4, "Now take the fork and whisk the batter until it's thick.")
    texts, _ = rewritten(correction(0, fork))
    assert (texts["4"], texts["5"]) == ("take the fork", "whisk the batter until it's thick")


def test_a_step_that_a_person_wrote_stays_and_it_says_so(asked):
    mine = correction(0, {"do": "change", "step": "3", "text": "pour it all in"})
    texts, kept = rewritten(correction(1, words(3, "pour the milk")), [mine])
    assert (texts["3"], kept) == ("pour it all in", {"3": PERSON_REASON})
    # a text that was taken back is the machine's again
    back = correction(1, {"do": "change", "step": "3", "text": "poor the silk into the bowl"})
    texts, kept = rewritten(correction(2, words(3, "pour the milk")), [mine, back])
    assert (texts["3"], kept) == ("do pour the milk", {})


def test_what_the_writer_wrote_is_written_again_and_one_undo_takes_words_and_steps_back(asked):
    milk = correction(0, words(3, "pour milk"))
    done, _ = rewrite_steps(machine_record(), [], milk, WritingSettings())
    texts, kept = rewritten(correction(1, words(3, "pour the milk")), [done])
    assert (texts["3"], kept) == ("do pour the milk", {})
    undo = done.model_copy(update={"id": "c1", "edits": (), "undoes": done.id})
    assert apply_corrections(machine_record(), [done, undo]).record == machine_record()


def test_an_action_that_moves_into_a_step_leaves_the_next_one(monkeypatch):
    record = machine_record()
    banana, eggs, milk, *others = record.steps
    both = {"text": "pour the silk and take the whisk", "sources": (3, 4)}
    steps = (banana, eggs, milk.model_copy(update=both), *others[1:])
    record = record.model_copy(update={"steps": steps})
    texts = {"crack three eggs and pour the silk": (2, 3), "take the whisk": (4,)}
    texts |= {"whisk the batter until smooth": (4,)}
    new_steps = [Step(id=text, text=text, sources=sources) for text, sources in texts.items()]
    monkeypatch.setattr(rewriting, "write_steps", lambda *_, **__: WrittenSteps(tuple(new_steps)))
    monkeypatch.setattr(rewriting, "CONTEXT_SENTENCES", 9)
    texts, kept = rewritten(correction(0, words(2, "Now crack three eggs.")), record=record)
    assert (texts["2"], texts["3"]) == ("crack three eggs and pour the silk", "take the whisk")
    # no word of its sentence changed, and none moved
    assert (texts["5"], kept) == ("whisk the batter until it's smooth", {})


def test_a_step_without_words_and_one_that_the_writer_does_not_find_stay(asked):
    drop = {"do": "drop", "sentence": 2}
    texts, kept = rewritten(correction(0, drop, words(3, "hello everyone")))
    assert kept == {"2": DROPPED_REASON, "3": NO_STEP_REASON}
    assert texts == {step.id: step.text for step in machine_record().steps}


def test_a_sentence_that_becomes_a_step_is_written_as_one(asked):
    add = {"do": "add", "id": "new", "sentence": 5, "after": "5"}
    texts, kept = rewritten(correction(0, add))
    assert (texts["new"], kept) == ("do thanks for watching and see you next time!", {})
    assert asked[0][1].steps == "all"  # a person says that it is a step
    # of one in which the writer finds none, the words stay
    texts, kept = rewritten(correction(0, add | {"sentence": 0}))
    assert (texts["new"], kept) == (SAID[0].rstrip("."), {"new": NO_STEP_REASON})
    # a text that a person gives is the person's, now and when the sentence is corrected
    own = correction(0, add | {"text": "thank them"})
    assert (rewritten(own)[0]["new"], rewritten(own)[1]) == ("thank them", {})
    assert rewritten(correction(1, words(5, "Thanks.")), [own])[1] == {"new": PERSON_REASON}


def test_the_writer_reads_the_sentences_around_and_no_more(asked, monkeypatch):
    monkeypatch.setattr(rewriting, "CONTEXT_SENTENCES", 1)
    rewritten(correction(0, words(3, "pour the milk")))
    ((transcript, settings, _),) = asked
    read = [sentence.text for sentence in transcript.sentences]
    assert read == [SAID[2], "pour the milk", SAID[4]]
    assert (transcript.language, settings.steps) == ("en", "usual")


def test_a_record_never_says_which_server_or_file_is_asked(asked):
    stranger = {"base_url": "http://192.0.2.1/", "gguf": "/tmp/x.gguf"}
    record = machine_record(writer="llm", llm=stranger, step_scorer="/tmp/tagger", steps="few")
    rewritten(correction(0, words(3, "pour the milk")), record=record)
    settings = asked[0][1]
    assert (settings.writer, settings.steps) == ("llm", "few")
    assert (settings.llm, settings.step_scorer) == (WritingSettings().llm, None)


@pytest.mark.parametrize("writer", ["extractive", "no-such-writer"])
def test_where_the_writer_fails_the_words_are_kept_and_it_says_why(monkeypatch, writer):
    def fail(*_, **__):
        raise ModelError("no parser; install it")

    monkeypatch.setattr(rewriting, "write_steps", fail)
    record = machine_record(writer=writer)
    texts, kept = rewritten(correction(0, words(3, "pour the milk")), record=record)
    assert texts["3"] == "poor the silk into the bowl"
    assert ("no parser" if writer == "extractive" else "no-such-writer") in kept["3"]


def test_nothing_is_written_for_lines_of_the_user_and_edits_of_steps(asked):
    lines = machine_record().model_copy(update={"models": {"writer": None}})
    assert rewritten(correction(0, words(3, "pour the milk")), record=lines)[1] == {}
    rewritten(correction(0, {"do": "change", "step": "3", "text": "pour"}))
    assert asked == []


def test_a_clash_is_refused_before_anything_is_written(asked):
    ann = correction(0, words(3, "pour milk"))
    with pytest.raises(ConflictError):
        rewritten(correction(1, words(3, "pour it"), base=0, by="bob"), [ann])
    assert asked == []
