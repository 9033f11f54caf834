"""What is said, the steps that a writer makes of it, and where each of these is said."""

from collections.abc import Sequence

from stepline import media, pipeline
from stepline.curate.stage import Work
from stepline.curate.stages.parts import Drafted, Placed, Probed, Spoken, result, to_bytes, whole
from stepline.curate.stages.picture import unpacked
from stepline.errors import MediaError, WriterError
from stepline.overrun import within
from stepline.records import Dropped, Step, Transcript
from stepline.request import Request

PROVISIONAL = "provisional"  # in a writer's note: another writer served this part
ITS_OWN = ("of the reply", "the reply is")  # in its reason: the model answered, and no use can be made of it
CHARACTERS = 4  # a token, of English
LINE = 5  # characters of a reply's line beside its text: a number, a point, a blank, an end


def transcribe(work: Work) -> bytes:
    """Return what is said: the captions where the item has some, else what a recogniser hears."""
    settings = work.recipe.steps
    if work.captions is not None:
        from stepline.asr import read_captions

        heard = read_captions(work.captions, video_id=work.item.id, settings=settings.asr)
        return to_bytes(Spoken(transcript=heard.transcript, dropped=heard.dropped))
    if work.media is None:
        return to_bytes(Spoken(transcript=Transcript(), warnings=(pipeline.NO_SOUND,)))
    info = media.probe(work.media, settings.media)
    heard, end, warnings = pipeline.hear(Request(work.media, work.item.id), info, settings)
    return to_bytes(Spoken(transcript=heard.transcript, dropped=heard.dropped, end=end, warnings=warnings))


def write(work: Work) -> bytes:
    """Return the steps that a writer makes of the transcript. Raises WriterError where its model was silent."""
    from stepline.writing import write_steps

    settings = work.recipe.steps.writing
    transcript = result(Spoken, work, "transcribe").transcript
    written = write_steps(transcript, settings)
    late = unanswered(written.notes)
    if late is not None:
        raise WriterError(f"{late}; --retry-failed asks again")
    if settings.writer == "llm":
        work.notes.update(_tokens(transcript, written.steps, settings.llm.sentences_per_chunk))
    return to_bytes(Drafted(steps=written.steps, dropped=written.dropped, notes=written.notes))


def unanswered(notes: Sequence[str]) -> str | None:
    """Return the first note of a part that a server or a deadline left open, as a later run would not; else None.

    A model's reply that nobody can use stays one, however often it is asked, and the extractive writer's steps stand.
    """
    provisional = (note for note in notes if PROVISIONAL in note)
    return next((note for note in provisional if not any(own in note for own in ITS_OWN)), None)


def _tokens(transcript: Transcript, steps: Sequence[Step], size: int) -> dict[str, float]:
    """Return about how many tokens went to a language model and came back, four characters each."""
    from stepline.writing.asking import main_prompt, question
    from stepline.writing.chunks import cut, orders_to_the_model

    asked = [question(main_prompt(), chunk) for chunk in cut(transcript, size, orders_to_the_model(transcript))]
    told = sum(len(step.text) + LINE for step in steps)
    return {"tokens_in": sum(map(len, asked)) / CHARACTERS, "tokens_out": told / CHARACTERS}


def coarse(work: Work) -> bytes:
    """Return the steps with the seconds in which they are said, without those that nobody says (NaSVA, section 3.1)."""
    spoken, drafted = result(Spoken, work, "transcribe"), result(Drafted, work, "write")
    probed, seen = result(Probed, work, "probe"), unpacked(work.results["encode"])
    duration = whole(max(spoken.end, seen.end) or probed.duration)
    if duration <= 0:
        raise MediaError("nothing in it can be decoded, and nobody tells how long it is; leave it out")
    kept = within(duration, spoken.transcript, drafted.steps, keep_all_steps=False)
    steps: tuple[Step, ...] = kept.steps
    unsaid: tuple[Dropped, ...] = ()
    if work.recipe.coarse.said == "likeness" and kept.steps:
        steps, unsaid = _linked(kept.steps, kept.transcript, duration, work)
    warnings = (*probed.warnings, *spoken.warnings, *seen.warnings, *drafted.notes, *kept.warnings)
    return to_bytes(
        Placed(
            duration=duration,
            transcript=kept.transcript,
            steps=steps,
            dropped=(*spoken.dropped, *drafted.dropped, *kept.dropped, *unsaid),
            warnings=tuple(dict.fromkeys(warnings)),
        )
    )


def _linked(
    steps: tuple[Step, ...], transcript: Transcript, duration: float, work: Work
) -> tuple[tuple[Step, ...], tuple[Dropped, ...]]:
    from stepline.nasva.coarse import coarse_spans
    from stepline.text import embed

    sentences = transcript.sentences
    likeness = embed([step.text for step in steps]) @ embed([one.text for one in sentences]).T  # (K, S)
    return coarse_spans(steps, sentences, likeness, duration=duration, settings=work.recipe.steps.nasva.coarse)
