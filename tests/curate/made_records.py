"""Records made for the tests of the report and of the audit."""

from stepline.records import Record, Rejected, Sentence, Span, Step, Transcript, Video


def record(id, steps=(), sentences=(), *, language="en", dropped=(), calibrated=True, **video):
    """steps: (text, start, score); start None = not placed. sentences: (text, start, shown), each 2
    s long. calibrated: P(shown) of the network. video: fields of its video."""
    said = tuple(
        Sentence(text=text, span=Span(start, start + 2.0), shown=shown)
        for text, start, shown in sentences
    )
    common = {"sources": (0,) if said else (), "status": "placed"}
    made = []
    for number, (text, start, score) in enumerate(steps, start=1):
        spans = () if start is None else (Span(start, start + 4.0),)
        made.append(Step(id=str(number), text=text, spans=spans, score=score, **common))
    return Record(
        id=id,
        video=Video(id=id, **{"duration": 60.0} | video),
        transcript=Transcript(language=language, sentences=said, recogniser="captions"),
        steps=tuple(made),
        dropped=tuple(dropped),
        models={"placing": {"calibrated": calibrated}},
    )


def left_out(id, reason, stage="transcribe"):
    dropped = Rejected(what="video", text=stage, reason=reason)
    return Record(id=id, video=Video(id=id), dropped=(dropped,))


def lost(text, reason):
    return Rejected(what="step", text=text, reason=reason)
