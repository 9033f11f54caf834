"""Records made for the tests of the report and of the audit."""

from stepline.records import Record, Rejected, Sentence, Span, Step, Transcript, Video


def record(
    id,
    steps=(),
    sentences=(),
    *,
    task=None,
    title=None,
    path=None,
    duration=60.0,
    language="en",
    dropped=(),
):
    """steps: (text, start, score); start None = not placed. sentences: (text, start, shown), each 2
    s long."""
    said = tuple(
        Sentence(text=text, span=Span(start, start + 2.0), shown=shown)
        for text, start, shown in sentences
    )
    made = tuple(
        Step(
            id=str(number),
            text=text,
            spans=() if start is None else (Span(start, start + 4.0),),
            score=score,
            sources=(0,) if said else (),
            status="placed",
        )
        for number, (text, start, score) in enumerate(steps, start=1)
    )
    transcript = Transcript(language=language, sentences=said, recogniser="captions")
    video = Video(id=id, duration=duration, title=title, task=task, path=path)
    return Record(id=id, video=video, transcript=transcript, steps=made, dropped=tuple(dropped))


def left_out(id, reason, stage="transcribe"):
    return Record(
        id=id, video=Video(id=id), dropped=(Rejected(what="video", text=stage, reason=reason),)
    )


def lost(text, reason):
    return Rejected(what="step", text=text, reason=reason)
